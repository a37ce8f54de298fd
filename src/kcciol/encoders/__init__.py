"""Encoders: what turns images into features. `ENCODERS` is the list of the kinds there are.

Importing this imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kcciol.plugins import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Encoder(Protocol):
    """What a learner on features needs to know of where they come from."""

    @property
    def width(self) -> int:
        """How many features an image has."""

    @property
    def identity(self) -> str:
        """A hash of all that decides the features: the weights, what is done to an image before, to the output after.
        Features of encoders with one identity may be mixed, others may not."""

    def features(self, images: Tensor) -> Tensor:
        """Images (..., c, h, w), bytes from 0 to 255, -> (..., width) float32; each image's do not depend on others."""


class EncoderKind(Protocol):
    """Makes an encoder of one kind; the first line of its docstring says of what."""

    def __call__(self, source: str, /, device: torch.device | str = "cpu") -> Encoder:
        """source says which: a file, a folder, a name, as the kind takes it."""


def _require_kind(found: object) -> None:
    if not callable(found):
        raise TypeError("it is no function that makes an encoder")


ENCODERS: Registry[EncoderKind] = Registry(
    "kcciol.encoders", "kind of encoder", {"run": "kcciol.encoders.run:load"}, _require_kind
)
