"""The nearest moving average answers: like class means, but a class may change while it is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kcciol.learners.base import Labels, Learner, Settings
from kcciol.learners.bounds import bounded
from kcciol.learners.card import Card
from kcciol.learners.grid import Grid


@dataclass(frozen=True)
class MovingMeanSettings(Settings):
    share: float = bounded(0.2, above=0, high=1)
    """Share of the newest example in the average of its class."""


class MovingMean(Learner):
    """score_c(z) = -|z - a_c|^2, where an example of c takes a_c to (1 - share) a_c + share z; the first sets it."""

    card = Card(
        "the nearest moving average of a class answers",
        "none: an example of how a learner is added",
        keeps="an average for each class",
        trains=("head",),
    )
    settings_type = MovingMeanSettings
    grid: ClassVar[Grid] = {"share": (0.05, 0.2, 0.5)}

    def _setup(self) -> None:
        self.share = self.column("share")
        self.add_rows("average", self.model.width)
        self.add_rows("started")

    def _learn(self, x: Tensor, y: Labels) -> None:
        own = torch.arange(self.copies, device=self.device), torch.from_numpy(y).to(self.device)
        average, started = self.rows["average"], self.rows["started"]
        share = torch.where(started[own] > 0, self.share, 1)[:, None]
        average[own] += share * (x - average[own])
        started[own] = 1

    def _scores(self, x: Tensor) -> Tensor:
        return -torch.cdist(x, self.rows["average"], compute_mode="donot_use_mm_for_euclid_dist").square()
