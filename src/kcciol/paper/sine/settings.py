"""What a regression experiment is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kcciol.config import GradientOrder, require, require_range
from kcciol.paper.ensemble.settings import MemberConfig


@dataclass(frozen=True)
class SineConfig:
    """Functions A sin(z + phi) with A in [0.1, 5.1], phi in [0, pi] and z in [-5, 5], learned in sequence."""

    functions: int = 400
    """Functions to meta-train on."""
    novel: int = 500
    """Functions to evaluate on."""
    slots: int = 10
    """Functions in a trajectory; the input is which of them it is (one-hot) and z."""
    batches: int = 40
    """Batches of each function in tau_tr, each one step of the inner loop."""
    batch: int = 32
    """Examples in a batch."""
    query: int = 32
    """Examples of each function in tau_val."""
    count: int = 1
    """Trajectories in one meta-step; their losses are averaged."""

    def __post_init__(self) -> None:
        require_range(self, "sine", 1, 2**20, "functions", "novel", "slots", "batches", "batch", "query", "count")
        enough = self.slots <= min(self.functions, self.novel)
        require(enough, "sine.slots", self.slots, "at most the number of functions")


@dataclass(frozen=True)
class WidthConfig:
    """Layers of fully connected units with ReLU between them."""

    width: int = 300
    """Units of a layer."""
    features: int = 900
    """Units of theta's last layer, which W reads."""
    theta: int = 6
    """Layers of theta."""
    W: int = 3
    """Layers of W, the last of which has one unit."""

    def __post_init__(self) -> None:
        require_range(self, "net", 1, 2**14, "width", "features", "theta", "W")


@dataclass(frozen=True)
class RegressionConfig(MemberConfig):
    """A whole regression experiment of one member."""

    problem: Literal["regression"] = "regression"
    sine: SineConfig = field(default_factory=SineConfig)
    net: WidthConfig = field(default_factory=WidthConfig)
    order: GradientOrder = "first"
    """first takes the inner loop's updates as constants; exact differentiates through all of them."""
    constraint: Literal["same", "first"] = "same"
    """The order of the gradient that phase 3 holds. With order exact, same is slow: autograd goes through twice."""
    loss: Literal["end", "every"] = "end"
    """The meta-loss is the error on all functions after the last one, or after every one on those seen so far."""
    decay: float = 0.3
    """In phase 1 beta is multiplied by this at each of the milestones."""
    milestones: tuple[int, ...] = (1500, 2500, 3500)
    """Steps of phase 1."""
    rise: int = 0
    """Steps of phase 1 over which alpha rises to what it is from a tenth of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.decay <= 1, "decay", self.decay, "above 0 and at most 1")
        require_range(self, "", 0, 10**8, "rise")
        fits = all(0 <= step <= 10**8 for step in self.milestones)
        require(fits, "milestones", list(self.milestones), "between 0 and 100,000,000 each")
