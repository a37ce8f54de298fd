"""One meta-step of all members, on tensors that stay in place: what it is made of, whatever the problem, and which
members learn nothing from such steps any more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kcciol.engine.graph import TRIALS
from kcciol.engine.loop import BLOCK
from kcciol.optim import BETAS, adam_, corrections, with_l1
from kcciol.paper.ensemble.settings import MemberConfig

PATIENCE = 100  # steps in a row that teach a member nothing, where it retreats; then it is lost
MUCH = 0.5  # of a phase's steps; if more of them teach nothing, that is said


class MemberStep(ABC):
    """The state of one phase of members that differ in seed, rates, gamma and lambda; calling it does the next step."""

    betas = BETAS

    def __init__(self, members: Sequence[MemberConfig], number: int, Theta: Tensor, mask: Tensor | None) -> None:
        """Theta (M, length) is changed in place; mask is needed when a member's phase has a lambda."""
        device, phases = Theta.device, [m.phases[number - 1] for m in members]
        self.number, self.Theta, self.mask = number, Theta, mask
        self.clamp, self.clip = members[0].clamp, members[0].clip
        self.m, self.v = torch.zeros_like(Theta), torch.zeros_like(Theta)
        self.last = Theta.clone() if members[0].retreat else None  # where a member's trajectories were last finite
        self.alpha, self.gamma, self.lam = (
            torch.tensor([getattr(p, name) for p in phases], device=device) for name in ("alpha", "gamma", "lam")
        )
        self.constrained = mask is not None and any(p.lam for p in phases)
        self.seeds = torch.tensor([m.seed for m in members], device=device)
        self.rates = torch.stack([self.schedule(m) for m in members], 1).to(device)  # (steps, M)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # steps done in this phase
        self.metrics = torch.zeros(BLOCK, 3, len(members), device=device)

    @abstractmethod
    def gradient(self, time: Tensor, mask: Tensor | None, lam: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """The meta-gradient (M, length) at a time, which says what is drawn, and three metrics (M,)."""

    @staticmethod
    def learns_nothing(values: Sequence[Tensor] | Tensor) -> Tensor:
        """Whether the metrics of a step say that nothing can be learned from where a member stands, (M,)."""
        return ~values[0].isfinite()

    def schedule(self, config: MemberConfig) -> Tensor:
        """beta at each step, (steps,)."""
        phase = config.phases[self.number - 1]
        return torch.full((max(phase.steps, TRIALS),), phase.beta)

    @property
    def state(self) -> list[Tensor]:
        """What a step changes, but for the counter."""
        return [self.metrics, *self.saved.values()]

    @property
    def saved(self) -> dict[str, Tensor]:
        """What a step changes and a run that is resumed must have."""
        every = {"Theta": self.Theta, "m": self.m, "v": self.v, "last": self.last}
        return {name: tensor for name, tensor in every.items() if tensor is not None}

    @property
    def counters(self) -> list[Tensor]:
        return [self.step]

    def load_block(self, block: int, slot: int) -> None:
        """Stand before the step number `slot` of a block; each step draws its own data."""
        self.step.fill_(block * BLOCK + slot)

    def __call__(self) -> None:
        time = self.step + (self.number << 40)  # the phases draw different trajectories
        g, values = self.gradient(time, *((self.mask, self.lam) if self.constrained else (None, None)))
        if self.clip:
            g = clipped(g, self.clip)
        g = with_l1(g, self.Theta, self.gamma[:, None], self.clamp)  # Algorithm 2, lines 11 and 12
        if self.last is not None:
            g = self._retreat(self.last, g, values)
        rate = self.rates.index_select(0, self.step)[0][:, None]
        step, root = corrections(rate, (self.step + 1).to(g.dtype), self.betas)
        adam_(self.Theta, g, self.m, self.v, step, root, self.betas)
        self.metrics.index_copy_(0, self.step % BLOCK, torch.stack(values).to(self.metrics.dtype)[None])
        self.step += 1

    def _retreat(self, last: Tensor, g: Tensor, values: list[Tensor]) -> Tensor:
        """Members that stand where nothing can be learned go back to where they last could, and stand still there: the
        gradient without theirs."""
        gone = (self.learns_nothing(values) | ~g.isfinite().all(1))[:, None]
        self.Theta.copy_(torch.where(gone, last, self.Theta))
        last.copy_(self.Theta)
        self.m.masked_fill_(gone, 0.0)
        return torch.where(gone, 0.0, g)


class Watch:
    """Over the steps of one phase, or of what is left of it. A member that cannot retreat is lost where it once learns
    nothing for as long as is looked at; one that can has patience."""

    def __init__(self, members: Sequence[MemberConfig], fails: Callable[[Tensor], Tensor]) -> None:
        """fails: whether metrics (metrics, M) say that a member learns nothing, (M,)."""
        self.members, self.fails = members, fails
        self.lost = torch.zeros(len(members), dtype=torch.bool)
        self.in_row, self.in_vain = torch.zeros(2, len(members), dtype=torch.int64)
        self.taken = 0

    def see(self, steps: Tensor, last: bool) -> None:
        """The metrics of some steps more (steps, metrics, M); whether they end the phase."""
        for values in steps:
            fails = self.fails(values)
            self.in_row, self.in_vain = torch.where(fails, self.in_row + 1, 0), self.in_vain + fails
        self.taken += len(steps)
        if self.members[0].retreat:
            self.lost = (self.in_row >= PATIENCE) | ((self.in_vain == self.taken) & last)
        else:
            self.lost = self.lost | self.fails(steps.mean(0))

    def sentences(self, phase: int) -> list[str]:
        """What is to be said at the end of a phase."""
        shares = (self.in_vain / max(self.taken, 1)).tolist()
        return [
            f"of seed {member.seed}, {share:.0%} of the steps of phase {phase} taught nothing: lower its rates."
            for member, share in zip(self.members, shares, strict=True)
            if share > MUCH
        ]


def clipped(g: Tensor, most: float) -> Tensor:
    """Vectors (M, length) scaled down to this norm where theirs is larger, however large."""
    largest = g.abs().amax(1, keepdim=True).clamp_min(torch.finfo(g.dtype).tiny)
    small = g / largest  # whose squares do not overflow
    norm = small.norm(dim=1, keepdim=True)
    return torch.where(norm > most / largest, small * (most / norm), g)


def with_constraint(
    loss: Tensor, leaf: Tensor, mask: Tensor | None, lam: Tensor | None, held: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient in leaf (M, length) of loss (M,), with that of lam |mask * gradient|^2 where there is a mask, and
    |mask * gradient|^2 itself (M,). held: the loss whose gradient it is there, where that is another."""
    if mask is None or lam is None:
        (g,) = torch.autograd.grad(loss.sum(), leaf)
        return g, torch.zeros_like(loss.detach())
    (g,) = torch.autograd.grad(loss.sum(), leaf, create_graph=held is None)
    to_hold = g if held is None else torch.autograd.grad(held.sum(), leaf, create_graph=True)[0]
    constraint = (to_hold * mask).square().sum(1)
    (more,) = torch.autograd.grad((lam * constraint).sum(), leaf)
    return g.detach() + more, constraint.detach()
