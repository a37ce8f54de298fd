"""Regression as a kind of problem for members that train together: one meta-step of all of them, from drawing the
functions to the meta-gradient, and the training that takes such steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from kcciol.config import GradientOrder
from kcciol.paper.ensemble.settings import MemberConfig
from kcciol.paper.ensemble.step import MemberStep
from kcciol.paper.ensemble.train import Kind, State, load_state, train_members
from kcciol.paper.sine.adjoint import inner_loops
from kcciol.paper.sine.functions import Functions, draw
from kcciol.paper.sine.network import RegressionNetwork
from kcciol.paper.sine.outer import meta_gradient
from kcciol.paper.sine.settings import RegressionConfig


class SineStep(MemberStep):
    """See `MemberStep`; the metrics are l_meta, the constraint, and the share of trajectories that diverged."""

    def __init__(
        self,
        net: RegressionNetwork,
        members: Sequence[RegressionConfig],
        number: int,
        Theta: Tensor,
        mask: Tensor | None = None,
    ) -> None:
        super().__init__(members, number, Theta, mask)
        self.net, self.sine = net, members[0].sine
        self.order = members[0].order
        self.constraint: GradientOrder = "first" if members[0].constraint == "first" else self.order
        slots = self.sine.slots
        shares = {"end": [0.0] * (slots - 1) + [1.0], "every": [1 / slots] * slots}
        self.alphas = torch.stack([self.risen(m) for m in members], 1).to(Theta.device)  # (steps, M)
        rows = torch.tensor([shares[m.loss] for m in members], device=Theta.device)
        self.shares = rows if any(m.loss == "every" for m in members) else None
        self.functions = Functions.drawn(self.seeds, self.sine.functions)
        exact = not torch.backends.cuda.matmul.allow_tf32
        self.loops = inner_loops(Theta.device, exact)

    def schedule(self, config: MemberConfig) -> Tensor:
        """In phase 1 beta falls at the milestones."""
        assert isinstance(config, RegressionConfig)
        table = super().schedule(config)
        for milestone in config.milestones if self.number == 1 else ():
            table[milestone:] *= config.decay
        return table

    def risen(self, config: RegressionConfig) -> Tensor:
        """alpha at each step, (steps,)."""
        table = torch.full((len(self.rates),), config.phases[self.number - 1].alpha)
        first = table[: config.rise] if self.number == 1 else table[:0]
        first *= 0.1 + 0.9 * torch.arange(len(first)) / max(config.rise, 1)
        return table

    @staticmethod
    def learns_nothing(values: Sequence[Tensor] | Tensor) -> Tensor:
        """All trajectories diverge."""
        return values[2] >= 1

    def gradient(self, time: Tensor, mask: Tensor | None, lam: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        batch = draw(self.functions, self.sine, self.seeds, time, self.sine.count)
        how = self.constraint, self.loops, self.shares
        alpha = self.alphas.index_select(0, self.step)[0]
        found = meta_gradient(self.net, self.Theta, batch, alpha, self.order, mask, lam, *how)
        return found.gradient, [found.loss, found.constraint, found.diverged / self.sine.count]


KIND = Kind(
    RegressionConfig,
    lambda config: RegressionNetwork(config.net, config.sine.slots + 1),
    SineStep,
    ("loss", "constraint", "diverged"),
    ("loss", "decay", "milestones", "rise"),
    SineStep.learns_nothing,
)


def train_sine(members: Sequence[RegressionConfig], out: Path, resume: bool = False, quiet: bool = False) -> Tensor:
    """Meta-train the members and leave everything in the folder `out`; Theta (M, length) at the end."""
    return train_members(KIND, members, out, resume, quiet)


def load_sine(path: Path) -> tuple[list[RegressionConfig], State]:
    """A checkpoint, or the state at the end of a phase."""
    return load_state(KIND, path)
