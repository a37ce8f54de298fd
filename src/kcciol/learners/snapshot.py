"""What a learner of one stream knew at one moment, for any thread to read while others learn on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.errors import UserError

NO_CLASS = -1  # the answer where no score is finite
_SCORES = 2**22  # scores that are worked on at once
_LEAST = float(np.finfo(np.float32).min)
Classes = NDArray[np.int64]


class Snapshot(ABC):
    """Scores and answers of one stream."""

    lasting = True  # it never changes; of another nobody may learn while it is read
    classes: int

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """(m, width) -> (m, classes)."""

    def answers(self, x: Tensor) -> list[int]:
        """The class with the highest score for each of x (m, width), or `NO_CLASS`."""
        found: list[int] = []
        for part in self.parts(x):
            best, answers = self.scores(part).max(-1)
            found += answers.masked_fill_(~best.isfinite(), NO_CLASS).tolist()
        return found

    def parts(self, x: Tensor) -> Iterable[Tensor]:
        """Few enough of x (m, width) at once that their scores fit into memory."""
        return torch.split(x, max(1, _SCORES // max(1, self.classes)))


def require_classes(classes: int) -> None:
    if not classes:
        raise UserError("Nothing has been learned yet, so there is nothing to predict.")


def highest(scores: NDArray[Any], error: float, decide: Callable[[Classes], Tensor]) -> int:
    """The class of the highest score, where scores (classes,) are known up to an error.

    decide: the scores proper (1, m) of some classes, which is asked only where the error leaves several of them.
    """
    least = float(scores.max()) - 2 * error  # NaN if any score is
    some = np.flatnonzero(scores >= max(least, _LEAST)) if math.isfinite(least) else np.arange(len(scores))
    if len(some) == 1:
        return int(some[0])
    sure = decide(some)[0].nan_to_num(nan=-np.inf, posinf=np.inf, neginf=-np.inf)  # what has diverged knows nothing
    value, place = sure.max(0)
    return int(some[int(place)]) if bool(value.isfinite()) else NO_CLASS
