"""Images by class: the one shape all data sets are brought to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kcciol.errors import UserError

if TYPE_CHECKING:  # to list data sets must not wait for torch
    from torch import Tensor


@dataclass(frozen=True)
class ClassSet:
    """Images of many classes as one tensor, ready to be put on a GPU whole.

    Classes may have different numbers of images: `counts` says how many of a class's slots are real; the others are
    zero and are never drawn.
    """

    images: Tensor  # uint8 (class, sample, channel, height, width)
    counts: Tensor  # int64 (class,)
    names: tuple[str, ...]

    @classmethod
    def of(cls, images: npt.NDArray[np.uint8], counts: Sequence[int], names: Sequence[str]) -> ClassSet:
        """The set of an array (class, sample, channel, height, width), which becomes its memory."""
        import torch

        return cls(torch.from_numpy(images), torch.tensor(counts, dtype=torch.int64), tuple(names))

    def __post_init__(self) -> None:
        import torch

        assert self.images.dtype == torch.uint8
        assert self.images.ndim == 5
        assert len(self.names) == len(self.counts) == len(self.images)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        _, _, channels, height, width = self.images.shape
        return channels, height, width

    @property
    def identity(self) -> str:
        """A hash of all classes, with their names and images."""
        digest = hashlib.sha256(json.dumps([self.names, self.counts.tolist(), list(self.images.shape)]).encode())
        for images in self.images:
            digest.update(images.contiguous().numpy().data)
        return digest.hexdigest()

    def classes(self, start: int, stop: int) -> ClassSet:
        """The classes from start up to, not including, stop."""
        return ClassSet(self.images[start:stop], self.counts[start:stop], self.names[start:stop])

    def first_samples(self, samples: int) -> ClassSet:
        """At most the first so many images of each class."""
        return ClassSet(self.images[:, :samples], self.counts.clamp(max=samples), self.names)

    def require(self, samples: int, purpose: str) -> None:
        """Refuse the set when a class has fewer images than the purpose needs."""
        few = (self.counts < samples).nonzero().flatten().tolist()
        if few:
            i = few[0]
            count = int(self.counts[i])
            others = f", and {len(few) - 1} more have too few" if len(few) > 1 else ""
            raise UserError(
                f"Class {self.names[i]!r} has {count} image{'s' * (count != 1)}{others}, but {purpose} needs {samples} "
                "of each class: add images, remove the class, or lower the numbers in the config."
            )


@dataclass(frozen=True)
class Splits:
    """Base classes to meta-train on, base classes kept out to choose settings on (perhaps none), novel classes."""

    base: ClassSet
    validation: ClassSet
    novel: ClassSet

    @property
    def identity(self) -> str:
        """A hash of all of it."""
        parts = (self.base.identity, self.validation.identity, self.novel.identity)
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()
