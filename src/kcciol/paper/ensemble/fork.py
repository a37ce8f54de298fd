"""Which members are still alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcciol.paper.ensemble.settings import MemberConfig
from kcciol.serialization import to_dict


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
