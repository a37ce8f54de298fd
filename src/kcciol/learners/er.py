"""ER-Reservoir: each step also sees some examples from a small memory (Chaudhry et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from kcciol.learners.base import Labels
from kcciol.learners.card import Card
from kcciol.learners.gradient import GradientLearner, GradientSettings
from kcciol.learners.memory import DrawSettings, MemoryLearner, SlotSettings, WeightingSettings


@dataclass(frozen=True)
class MemorySettings(DrawSettings, SlotSettings, GradientSettings):
    """Every method with a memory has these."""


@dataclass(frozen=True)
class ReplaySettings(WeightingSettings, MemorySettings):
    """And those with one loss over new and replayed examples these."""


class ReplayLearner(MemoryLearner, GradientLearner):
    """A gradient learner with a reservoir."""

    idle: ClassVar[Mapping[str, Any]] = {"replay": 0}


class ER(ReplayLearner):
    """One step on the new example and `replay` drawn from a reservoir."""

    card = Card(
        "replays examples from a reservoir", "Chaudhry et al. 2019", keeps="200 examples", replay=True, capacity="slots"
    )
    settings_type = ReplaySettings

    def _learn(self, x: Tensor, y: Labels) -> None:
        label = self.labels(y)
        self.error_step(*self.with_replay(x[:, None], label[:, None]))
        self.kept.add(self.steps, {"x": x, "y": label})
