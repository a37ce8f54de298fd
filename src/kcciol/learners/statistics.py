"""Class means, and the scatter around them: what the closed-form learners keep. No rate, no order, no replay."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.learner import Labels, Learner, Settings
from kcciol.learners.model import Head

MEAN, COUNT = "mean.sum", "mean.count"


class ClassMeans(Learner):
    """Counts and means of B copies, in float64 so that the order of examples does not show."""

    settings_type = Settings

    def _setup(self) -> None:
        super()._setup()
        if not isinstance(self.model, Head):
            raise UserError("A closed-form learner works on a frozen network: it has nothing to train below its head.")
        self.every = torch.arange(self.copies, device=self.device)
        self.add_rows(MEAN, self.width, dtype=torch.float64)
        self.add_rows(COUNT, dtype=torch.float64)

    @property
    def width(self) -> int:
        return self.model.width

    def label(self, y: Labels) -> Tensor:
        """(B,), on the device."""
        return torch.from_numpy(y).to(self.device)

    def add_class(self, z: Tensor, label: Tensor) -> Tensor:
        """Take z (B, m, width), all of one class, into its sum; how many there were before, (B,)."""
        before = self.rows[COUNT][self.every, label]
        self.add_to(MEAN, z.double(), label)
        self.rows[COUNT][self.every, label] = before + z.shape[1]
        return before

    def add_to(self, name: str, values: Tensor, label: Tensor) -> None:
        """Add values (B, m, width) to the row of a class."""
        total = values[:, 0] if values.shape[1] == 1 else values.sum(1)
        self.rows[name].index_put_((self.every, label), total, accumulate=True)

    def _learn(self, x: Tensor, y: Labels) -> None:
        self._learn_class(x[:, None], y)

    @abstractmethod
    def _learn_class(self, x: Tensor, y: Labels) -> None: ...

    def means(self) -> Tensor:
        """(B, classes, width), float64; zero where a copy has not seen the class."""
        n = self.classes
        return self.rows[MEAN][:, :n] / self.rows[COUNT][:, :n, None].clamp_min(1)


class Scatter:
    """The sum of v v^T over examples, of B copies, in tensors of the learner's state.

    Vectors wait until there are enough of them for one matrix product, which is many times faster than a product of
    rank one for each; `total` counts those that wait.
    """

    def __init__(self, state: dict[str, Tensor], copies: int, width: int, device: torch.device, wait: int = 64) -> None:
        self.state, self.wait = state, wait
        state["scatter.sum"] = torch.zeros(copies, width, width, device=device)
        state["scatter.waiting"] = torch.zeros(copies, wait, width, device=device)

    def add(self, time: int, v: Tensor) -> None:
        """Take in the vectors (B, m, width) of the examples from number `time` on, from 0."""
        waiting, first = self.state["scatter.waiting"], 0
        while first < v.shape[1]:
            place = (time + first) % self.wait
            some = v[:, first : first + self.wait - place]
            waiting[:, place : place + some.shape[1]] = some
            first += some.shape[1]
            if place + some.shape[1] == self.wait:
                self.state["scatter.sum"].baddbmm_(waiting.mT, waiting)
                waiting.zero_()

    def total(self) -> Tensor:
        """(B, width, width), float64."""
        waiting = self.state["scatter.waiting"].double()
        return self.state["scatter.sum"].to(torch.float64, copy=True).baddbmm_(waiting.mT, waiting)


def factor_of(matrix: Tensor) -> Tensor:
    """L with L L^T = matrix, for symmetric positive definite matrices (B, d, d) in float64."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if bool(info.any()):
        raise UserError("The covariance is singular: give a larger shrinkage or penalty.")
    return factor
