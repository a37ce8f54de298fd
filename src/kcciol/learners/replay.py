"""What replayed examples weigh beside the new one, and the step's examples of learners with a reservoir."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from kcciol.learners.base import Settings
from kcciol.learners.bounds import bounded
from kcciol.learners.memory import MemoryLearner

Weighting = Literal["joint", "additive"]


@dataclass(frozen=True)
class DrawSettings(Settings):
    """Every method that replays examples has these."""

    replay: int = bounded(10, low=0)
    """Examples replayed at each step."""

    @property
    def inputs(self) -> int:
        return 1 + 2 * self.replay  # DER++ takes two draws


@dataclass(frozen=True)
class WeightingSettings(DrawSettings):
    """And those with one loss over new and replayed examples these."""

    weighting: Weighting = "joint"
    """joint: one mean over the new and the replayed examples; additive: the new one, plus `replay_weight` times the
    mean of the others (which gives a single new example the weight of all the others together)."""
    replay_weight: float = bounded(1.0, low=0)
    """additive: weight of the replayed examples."""


def shares(weighting: Weighting, count: float | Tensor, weight: float | Tensor) -> tuple[Any, Any]:
    """Weights of the loss of the new example and of each of `count` replayed ones."""
    if weighting == "joint":
        return 1 / (1 + count), 1 / (1 + count)
    return 1.0, weight / (count.clamp_min(1) if isinstance(count, Tensor) else max(count, 1))


class Replaying(MemoryLearner):
    """A learner with a reservoir whose steps are on the new example and some of it."""

    rate: Tensor  # (B,), of the type that it computes in

    def weights(self, count: int) -> tuple[Any, Any]:
        """Those of the new example and of each of `count` replayed ones; what differs from copy to copy is (B, 1)."""
        how = self.choice("weighting")
        return shares(how, count, 1.0 if how == "joint" else self.column("replay_weight").to(self.rate)[:, None])

    def with_replay(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
        """The new examples (B, 1, ...), (B, 1) and the replayed ones after them, and the weights of their losses."""
        slots = self.kept.draw(self.steps, self.choice("replay"))
        if slots is None:
            return x, y, 1.0
        x, y = torch.cat([x, self.kept.read("x", slots)], 1), torch.cat([y, self.kept.read("y", slots)], 1)
        _, old = self.weights(slots.shape[1])
        if not isinstance(old, Tensor):
            return x, y, old
        return x, y, torch.cat([torch.ones_like(old), old.expand(slots.shape)], 1)
