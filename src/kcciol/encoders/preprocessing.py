"""What is done to pictures before a network sees them. `PREPROCESSINGS` is the list of the kinds there are.

A preprocessing is a frozen dataclass of settings, so that a file can keep it: `settings` is what the file holds, and
`preprocessing_of` makes the same of it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from torch import Tensor

from kcciol.encoders.pictures import Pixels
from kcciol.errors import UserError, quoted
from kcciol.plugins import Registry
from kcciol.serialization import from_dict, to_dict


class Preprocessing(Protocol):
    """Pictures of any size, grey or colour -> what a network takes."""

    def __call__(self, pictures: Sequence[Pixels], /) -> Tensor:
        """(n, channels, h, w) float32; each picture's do not depend on others."""

    def remarks(self, picture: Pixels, /) -> tuple[str, ...]:
        """What is odd about a picture, so that its features may be worth little: a sentence each, or none."""

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides what it does, JSON-ready; "kind" is its name among `PREPROCESSINGS`."""


PREPROCESSINGS: Registry[type[Preprocessing]] = Registry(
    "kcciol.preprocessings",
    "preprocessing",
    {"photo": "kcciol.encoders.photo:Photo", "ink": "kcciol.encoders.ink:Ink"},
)


def settings_of(kind: str, preprocessing: object) -> dict[str, Any]:
    """The settings of a dataclass, with the name of its kind."""
    return {"kind": kind, **to_dict(preprocessing)}


def preprocessing_of(settings: object) -> Preprocessing:
    """The preprocessing that has these settings, as a file holds them."""
    if not isinstance(settings, Mapping) or not isinstance(kind := settings.get("kind"), str):
        raise UserError(f"{quoted(settings)} does not say how pictures are prepared.")
    found = PREPROCESSINGS.find(kind)
    rest = {name: value for name, value in settings.items() if name != "kind"}
    return cast(Preprocessing, from_dict(cast("type[Any]", found), rest, kind))
