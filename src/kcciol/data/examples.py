"""What classes show a learner: examples to learn and examples held out, as features or as images."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.errors import UserError


@dataclass(frozen=True)
class Examples:
    """Examples of C classes, those to learn from and those held out, of one type and on one device."""

    train: Tensor  # (C, S, ...)
    test: Tensor  # (C, m, ...)

    def __post_init__(self) -> None:
        assert min(self.train.ndim, self.test.ndim) >= 3
        assert self.train.dtype == self.test.dtype
        assert (len(self.train), self.train.shape[2:]) == (len(self.test), self.test.shape[2:])

    def __len__(self) -> int:
        return len(self.train)

    @property
    def width(self) -> int:
        """d, the number of features of an example (C, S, d)."""
        return self.train.shape[-1]

    def followed_by(self, others: Examples | None) -> Examples:
        """These classes and then the others."""
        if others is None:
            return self
        return Examples(torch.cat([self.train, others.train]), torch.cat([self.test, others.test]))

    def require(self, kind: str, classes: int, train_samples: int, test_samples: int) -> None:
        """Refuse them when they are too few, or hold what is no number; kind says of which classes they are."""
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
        for examples in (self.train, self.test):
            if examples.is_floating_point() and not bool(examples.isfinite().all()):
                raise UserError(f"The examples of {kind} classes hold a value that is not a finite number.")
