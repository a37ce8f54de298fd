"""What Algorithm 4 works on: theta is frozen, so every image is its feature vector, computed once elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.errors import UserError
from kcciol.evaluation.shown import Images, redrawn
from kcciol.evaluation.stream import Purpose


@dataclass(frozen=True)
class Features:
    """Features of C classes: the images to learn from and the held-out ones, both floating point, on one device."""

    train: Tensor  # (C, S_train, d)
    test: Tensor  # (C, S_test, d)

    def __post_init__(self) -> None:
        assert self.train.ndim == self.test.ndim == 3
        assert self.train.dtype == self.test.dtype
        assert self.train.is_floating_point()
        assert (len(self.train), self.train.shape[2]) == (len(self.test), self.test.shape[2])

    def __len__(self) -> int:
        return len(self.train)

    @property
    def width(self) -> int:
        """d, the number of features of an image."""
        return self.train.shape[2]

    def shown(self, config: EvaluationConfig, streams: Tensor, purpose: Purpose) -> tuple[Images, Images, Tensor]:
        """What trajectories (R, n) learn and are asked of their classes, with a one after each feature, and the
        trajectories in terms of these."""
        sizes = config.train_samples, config.test_samples
        if config.redraw:
            everything = with_one(torch.cat([self.train, self.test], 1))
            return redrawn(everything, streams, range(len(streams)), sizes, config.seed, purpose)
        train, test = with_one(self.train[:, : sizes[0]]), with_one(self.test[:, : sizes[1]])
        return Images.all_of(train), Images.all_of(test), streams

    def require(self, kind: str, classes: int, train_samples: int, test_samples: int) -> None:
        """Refuse the features when they are too few; kind says of which classes they are."""
        if classes > len(self):
            raise UserError(
                f"evaluation.classes asks for trajectories of {classes} classes, but there are {len(self)} {kind} "
                f"classes: ask for at most {len(self)}."
            )
        for part, wanted, there in (
            ("train", train_samples, self.train.shape[1]),
            ("test", test_samples, self.test.shape[1]),
        ):
            if wanted > there:
                raise UserError(
                    f"evaluation.{part}_samples is {wanted}, but the {kind} classes have {there} such images each: "
                    f"ask for at most {there}."
                )


def columns(width: int) -> int:
    """Columns of a weight matrix on `width` inputs: one more for the bias, rounded up to a multiple of 16.

    >>> columns(15), columns(16), columns(2304)
    (16, 32, 2320)
    """
    return (width + 16) // 16 * 16


def with_one(images: Tensor) -> Tensor:
    """(C, S, d) -> (C, S, columns(d)): an always-one feature after the d, whose weight is the bias, then zeros.

    For SGD and Adam alike this is exactly the same as a bias of its own. The zeros have zero gradient, so they change
    nothing; they let every row begin at an address that vector loads like.
    """
    wide = images.new_zeros(*images.shape[:-1], columns(images.shape[-1]))
    wide[..., : images.shape[-1]] = images
    wide[..., images.shape[-1]] = 1
    return wide
