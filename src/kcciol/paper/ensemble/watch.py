"""Which members learn nothing any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kcciol.paper.ensemble.settings import MemberConfig

PATIENCE = 100  # steps in a row that teach a member nothing, where it retreats; then it is lost
MUCH = 0.5  # of a phase's steps; if more of them teach nothing, that is said

Fails = Callable[[Sequence[Any], Tensor], Tensor]  # whether metrics (metrics, M) say that a member learns nothing, (M,)


class Watch:
    """Over the steps of one phase, or of what is left of it. A member that cannot retreat is lost where it once learns
    nothing for as long as is looked at; one that can has patience."""

    def __init__(self, members: Sequence[MemberConfig], fails: Fails) -> None:
        self.members, self.fails = members, fails
        self.lost = torch.zeros(len(members), dtype=torch.bool)
        self.in_row, self.in_vain = torch.zeros(2, len(members), dtype=torch.int64)
        self.taken = 0

    def see(self, steps: Tensor, last: bool) -> None:
        """The metrics of some steps more (steps, metrics, M); whether they end the phase."""
        for values in steps:
            fails = self.fails(self.members, values)
            self.in_row, self.in_vain = torch.where(fails, self.in_row + 1, 0), self.in_vain + fails
        self.taken += len(steps)
        if self.members[0].retreat:
            self.lost = (self.in_row >= PATIENCE) | ((self.in_vain == self.taken) & last)
        else:
            self.lost = self.lost | self.fails(self.members, steps.mean(0))

    def sentences(self, phase: int) -> list[str]:
        """What is to be said at the end of a phase."""
        shares = (self.in_vain / max(self.taken, 1)).tolist()
        return [
            f"of seed {member.seed}, {share:.0%} of the steps of phase {phase} taught nothing: lower its rates."
            for member, share in zip(self.members, shares, strict=True)
            if share > MUCH
        ]
