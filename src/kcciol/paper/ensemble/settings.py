"""What the configs of all members have in common, and which members are still alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kcciol.config import FASTEST, EngineConfig, MaskConfig, PhaseConfig, require, require_phases, require_range
from kcciol.serialization import to_dict


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
        require(not self.engine.keep, "engine.keep", True, "false: these runs keep the ends of phases only")

    @property
    def phases(self) -> tuple[PhaseConfig, PhaseConfig, PhaseConfig]:
        return (self.phase1, self.phase2, self.phase3)


@dataclass(frozen=True)
class Fork:
    """Members that are alike until the end of a phase take its steps as one."""

    firsts: list[int]
    """Of those that are alike, the first."""
    places: list[int]
    """Of each member, which of the firsts stands for it."""

    @classmethod
    def of(cls, members: Sequence[MemberConfig], phase: int) -> Fork:
        later = {f"phase{i}" for i in (1, 2, 3) if i > phase}
        if not any(p.lam for m in members for p in m.phases[:phase]):  # nothing was held so far
            later.add("mask")
        until = [{k: v for k, v in to_dict(m).items() if k not in later} for m in members]
        firsts = [i for i, own in enumerate(until) if own not in until[:i]]
        return cls(firsts, [[until[i] for i in firsts].index(own) for own in until])
