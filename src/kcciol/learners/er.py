"""ER-Reservoir: each step also sees some examples from a small memory (Chaudhry et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.gradient import GradientLearner, GradientSettings
from kcciol.learners.keeper import Keeper, KeeperSettings
from kcciol.learners.learner import Card, Labels


@dataclass(frozen=True)
class MemorySettings(KeeperSettings, GradientSettings):
    """Every method with a memory has these."""

    replay: int = 10
    """Examples replayed at each step."""


@dataclass(frozen=True)
class ReplaySettings(MemorySettings):
    """And those with one loss over new and replayed examples these."""

    weighting: Literal["joint", "additive"] = "joint"
    """joint: one mean over the new and the replayed examples; additive: the new one, plus `replay_weight` times the
    mean of the others (which gives a single new example the weight of all the others together)."""
    replay_weight: float = 1.0
    """additive: weight of the replayed examples."""


class ReplayLearner(Keeper, GradientLearner):
    """A gradient learner with a reservoir."""

    settings_type = MemorySettings

    def _setup(self) -> None:
        super()._setup()
        if self.choice("replay") < 0:
            raise UserError(f"replay is {self.choice('replay')}, but must be 0 or more.")

    def with_replay(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
        """The new examples (B, 1, ...), (B, 1) and the replayed ones after them, and the weights of their losses."""
        slots = self.kept.draw(self.steps, self.choice("replay"))
        if slots is None:
            return x, y, 1.0
        x, y = torch.cat([x, self.kept.read("x", slots)], 1), torch.cat([y, self.kept.read("y", slots)], 1)
        if self.choice("weighting") == "joint":
            return x, y, 1 / x.shape[1]
        weights = self.column("replay_weight").to(self.rate)[:, None].expand(y.shape) / slots.shape[1]
        return x, y, torch.cat([torch.ones_like(weights[:, :1]), weights[:, 1:]], 1)


class ER(ReplayLearner):
    """One step on the new example and `replay` drawn from a reservoir."""

    card = Card("replays examples from a reservoir", "Chaudhry et al. 2019", replay=True)
    settings_type = ReplaySettings

    def _learn(self, x: Tensor, y: Labels) -> None:
        label = self.labels(y)
        self.error_step(*self.with_replay(x[:, None], label))
        self.kept.add(self.steps, {"x": x, "y": label[:, 0]})
