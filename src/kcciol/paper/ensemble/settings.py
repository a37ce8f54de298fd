"""What the configs of all members have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

from kcciol.config import FASTEST, EngineConfig, MaskConfig, PhaseConfig, require, require_phases, require_range


@dataclass(frozen=True)
class MemberConfig:
    """Three phases of meta-training, of whatever problem."""

    seed: int = 0
    """A run is a function of its config and this number."""
    clamp: float = 5.0
    """Clamp each element of the meta-gradient to plus or minus this; 0 means off."""
    clip: float = 0.0
    """Scale a meta-gradient, with the constraint's, whose norm is larger down to this; 0 means off."""
    retreat: bool = False
    """Where all trajectories of a step diverge, go back to where they last did not, without Adam's momentum."""
    mask: MaskConfig = field(default_factory=MaskConfig)
    phase1: PhaseConfig = field(default_factory=PhaseConfig)
    phase2: PhaseConfig = field(default_factory=PhaseConfig)
    phase3: PhaseConfig = field(default_factory=PhaseConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, "seed", self.seed, "0 or more (and below 2^63)")
        require_range(self, "", 0, FASTEST, "clamp", "clip")
        require_phases(self.phases)
        require(not self.engine.tensorboard, "engine.tensorboard", True, "false: these runs keep metrics.jsonl only")

    @property
    def phases(self) -> tuple[PhaseConfig, PhaseConfig, PhaseConfig]:
        return (self.phase1, self.phase2, self.phase3)
