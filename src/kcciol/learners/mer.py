"""MER: replay, with small steps towards where single-example SGD leads (Riemer et al. 2019, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kcciol.learners.base import Labels
from kcciol.learners.bounds import MOST_STEPS, bounded
from kcciol.learners.card import Card
from kcciol.learners.er import MemorySettings, ReplayLearner
from kcciol.learners.grid import RATES, Grid
from kcciol.learners.model import Parameters, per_copy


@dataclass(frozen=True)
class MERSettings(MemorySettings):
    batches: int = bounded(1, low=1, high=MOST_STEPS)
    """Passes over the new example and newly drawn ones."""
    within: float = bounded(1.0, low=0)
    """beta: how far to go from where a pass began to where it ended."""
    across: float = bounded(0.3, low=0)
    """gamma: how far to go from where all passes began to where they ended."""


class MER(ReplayLearner):
    """For each new example: `batches` times, SGD on it and on each replayed example in turn, then back a part of the
    way; then back a part of the whole way."""

    card = Card(
        "replay with Reptile's interpolation, one example a step",
        "Riemer et al. 2019",
        keeps="200 examples",
        replay=True,
        capacity="slots",
    )
    settings_type = MERSettings
    no_adam = "MER goes back a part of its way, which leaves Adam's moments behind"
    grid: ClassVar[Grid] = {"rate": RATES[1:], "across": (0.03, 0.1, 0.3, 1.0), "reserve": (0, 100)}

    def _learn(self, x: Tensor, y: Labels) -> None:
        label = self.labels(y)
        before = self._copy()
        for batch in range(self.choice("batches")):
            began = self._copy()
            self.error_step(x[:, None], label[:, None])
            slots = self.kept.draw(self.steps, self.choice("replay"), purpose=batch)
            if slots is not None:
                xs, ys = self.kept.read("x", slots), self.kept.read("y", slots)
                for i in range(slots.shape[1]):
                    self.error_step(xs[:, i : i + 1], ys[:, i : i + 1])
            self._interpolate(began, "within")
        self._interpolate(before, "across")
        self.kept.add(self.steps, {"x": x, "y": label})

    def _copy(self) -> Parameters:
        return {name: p.clone() for name, p in self.parameters.items()}

    def _interpolate(self, began: Parameters, name: str) -> None:
        part = self.column(name)
        for key, p in self.parameters.items():
            p.copy_(began[key] + per_copy(part, p) * (p - began[key]))
