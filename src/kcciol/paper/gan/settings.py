"""What a generation experiment is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kcciol.config import FASTEST, MaskConfig, require, require_range
from kcciol.errors import UserError
from kcciol.paper.ensemble.settings import MemberConfig


@dataclass(frozen=True)
class GanConfig:
    """The two networks: layers of fully connected units with leaky ReLU between them."""

    noise: int = 100
    """Random inputs of the generator."""
    labels: int = 10
    """Classes that there are, base and novel."""
    generator: tuple[int, ...] = (128, 256, 512, 1024)
    """Units of the generator's layers, but for the last, which has one for each pixel."""
    critic: tuple[int, ...] = (512, 512, 512)
    """Units of the critic's layers, but for the last, which has one."""
    strength: float = 10.0
    """What a label counts for as an input; with 1 it is one input of many, and nearly drowned by the noise."""
    slope: float = 0.2
    """Of the leaky ReLU below zero."""
    penalty: float = 10.0
    """Weight of the gradient penalty."""

    def __post_init__(self) -> None:
        sizes = (self.noise, self.labels, *self.generator, *self.critic)
        if min(sizes) < 1 or max(sizes) > 2**14 or not self.generator or not self.critic:
            raise UserError("gan: every size must be between 1 and 16384, and each network needs at least one layer.")
        require_range(self, "gan", 0, 1, "slope")
        require_range(self, "gan", 0, FASTEST, "penalty", "strength")
        if self.slope == 1 or self.strength == 0:
            raise UserError("gan: slope must be below 1, and strength above 0.")


@dataclass(frozen=True)
class DigitTrajectoryConfig:
    """tau_tr: images of one class. tau_val: other images of it, and images of any base class."""

    support: int = 10
    """Images of the class in tau_tr; each is one step of the inner loop."""
    query: int = 5
    """Held-out images of the class in tau_val."""
    remember: int = 10
    """Images of any base class in tau_val."""
    count: int = 16
    """Trajectories in one meta-step; their losses are averaged."""

    def __post_init__(self) -> None:
        require_range(self, "trajectory", 1, 2**16, "support", "query", "remember", "count")


@dataclass(frozen=True)
class GenerationConfig(MemberConfig):
    """A whole generation experiment of one member."""

    problem: Literal["generation"] = "generation"
    gan: GanConfig = field(default_factory=GanConfig)
    trajectory: DigitTrajectoryConfig = field(default_factory=DigitTrajectoryConfig)
    clamp: float = 0.0
    """Clamp each element of the meta-gradient to plus or minus this; 0 means off."""
    beta1: float = 0.5
    """Adam's memory of the gradient; Wasserstein GANs want a short one."""
    beta2: float = 0.9
    """Adam's memory of its square."""
    mask: MaskConfig = field(default_factory=lambda: MaskConfig(delta=1.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "at least 0 and below 1")
