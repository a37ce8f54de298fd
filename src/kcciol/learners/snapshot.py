"""What a learner of one stream knew at one moment, for any thread to read while others learn on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kcciol.errors import UserError

NO_CLASS = -1  # the answer where no score is finite
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
        best, answers = self.scores(x).max(-1)
        found: list[int] = answers.masked_fill_(~best.isfinite(), NO_CLASS).tolist()
        return found


def require_classes(classes: int) -> None:
    if not classes:
        raise UserError("Nothing has been learned yet, so there is nothing to predict.")


def highest(scores: NDArray[Any], error: float, decide: Callable[[Classes], Tensor]) -> int:
    """The class of the highest score, where scores (classes,) are known up to an error.

    decide: the scores proper (1, m) of some classes, which is asked only where the error leaves several of them.
    """
    least = float(scores.max()) - 2 * error  # NaN if any score is
    some = np.flatnonzero(scores >= least) if math.isfinite(least) else np.arange(len(scores))
    if len(some) == 1:
        return int(some[0])
    sure = decide(some)[0].nan_to_num(nan=-np.inf, posinf=np.inf, neginf=-np.inf)  # what has diverged knows nothing
    value, place = sure.max(0)
    return int(some[int(place)]) if bool(value.isfinite()) else NO_CLASS
