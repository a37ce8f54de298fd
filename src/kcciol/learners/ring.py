"""Replay from the last few examples of each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from kcciol.learners.bounds import bounded
from kcciol.learners.gradient import GradientLearner, GradientSettings
from kcciol.learners.memory import WeightingSettings, shares
from kcciol.random import uniform

_REPLAY = 100  # purpose of random numbers
KEPT, COUNT = "memory.x", "memory.count"


@dataclass(frozen=True)
class RingSettings(WeightingSettings, GradientSettings):
    """Every method that keeps examples class by class has these."""

    ring: int = bounded(1, low=1, remedy="use `online` to keep nothing")
    """Examples kept of each class: those that came last."""


class RingLearner(GradientLearner):
    """A gradient learner with a ring of examples for each class, whose row is their label. Copies may hold unequally
    many: what is drawn beyond them is marked as void and weighs nothing."""

    settings_type = RingSettings
    idle: ClassVar[Mapping[str, Any]] = {"replay": 0}

    def _setup(self) -> None:
        super()._setup()
        self.ring = self.choice("ring")
        self.add_rows(KEPT, self.ring, *self.model.input_shape, dtype=self.model.input_dtype)
        self.add_rows(COUNT, dtype=torch.int64)  # examples that have come of each class

    def keep(self, x: Tensor, label: Tensor) -> None:
        """x (B, ...), label (B,)."""
        count = self.rows[COUNT]
        self.rows[KEPT][self.each, label, count[self.each, label] % self.ring] = x
        count[self.each, label] += 1

    def draw(self, allowed: Tensor, count: int, purpose: int) -> tuple[Tensor, Tensor]:
        """Different places (B, k) among those allowed (B, n), all sets equally likely, and which are not void (B, k);
        k = min(count, n)."""
        order = torch.from_numpy(uniform(self.keys, self.steps, purpose, allowed.shape[1])).to(self.device)
        order, places = order.masked_fill(~allowed, 2.0).topk(min(count, allowed.shape[1]), largest=False)
        return places, order < 2

    def draw_kept(self, classes: Tensor, count: int, purpose: int) -> tuple[Tensor, Tensor, Tensor]:
        """Examples (B, k, ...) of these classes (B, classes), their labels (B, k), and which are not void."""
        slots = torch.arange(self.ring, device=self.device)
        filled = slots < self.rows[COUNT][:, : self.classes, None]
        places, real = self.draw((filled & classes[..., None]).flatten(1), count, purpose)
        label = places // self.ring
        return self.rows[KEPT][self.each[:, None], label, places % self.ring], label, real

    def with_replay(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The new examples (B, 1, ...), (B, 1) and the replayed ones after them, and the weights of their losses."""
        new = self.rate.new_ones(self.copies, 1)
        if self.choice("replay") == 0:
            return x, y, new
        xs, ys, real = self.draw_kept(self._seen_mask(), self.choice("replay"), _REPLAY)
        ys = torch.where(real, ys, y)  # a void one must have a label that has a loss
        count = real.sum(1, keepdim=True).to(new)
        first, old = shares(self.choice("weighting"), count, self.column("replay_weight")[:, None])
        return torch.cat([x, xs], 1), torch.cat([y, ys], 1), torch.cat([new * first, real * old], 1)
