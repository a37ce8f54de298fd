"""One meta-step of all members, from drawing the functions to the updated Theta, on tensors that stay in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kcciol.engine.execute import TRIALS
from kcciol.kernels import BETA1, BETA2, EPS, have_triton
from kcciol.regression import network
from kcciol.regression.functions import Functions, draw
from kcciol.regression.network import Layer, Network
from kcciol.regression.outer import Learn, meta_gradient
from kcciol.regression.settings import RegressionConfig
from kcciol.together.train import BLOCK


class MetaStep:
    """The state of one phase of members that differ in seed, rates, gamma and lambda; calling it does the next step."""

    def __init__(
        self,
        net: Network,
        members: Sequence[RegressionConfig],
        number: int,
        Theta: Tensor,
        mask: Tensor | None = None,
    ) -> None:
        """Theta (M, length) is changed in place; mask is needed when a member's phase has a lambda."""
        device, config = Theta.device, members[0]
        phases = [m.phases[number - 1] for m in members]
        self.net, self.config, self.number, self.Theta, self.mask = net, config, number, Theta, mask
        self.m, self.v = torch.zeros_like(Theta), torch.zeros_like(Theta)
        self.alpha, self.gamma, self.lam = (
            torch.tensor([getattr(p, name) for p in phases], device=device) for name in ("alpha", "gamma", "lam")
        )
        self.constrained = mask is not None and any(p.lam for p in phases)
        self.seeds = torch.tensor([m.seed for m in members], device=device)
        self.functions = Functions.drawn(self.seeds, config.sine.functions)
        self.rates = torch.stack([rates(m, number) for m in members], 1).to(device)  # (steps, M)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # steps done in this phase
        self.metrics = torch.zeros(BLOCK, 3, len(members), device=device)  # l_meta, constraint, diverged

    @property
    def state(self) -> list[Tensor]:
        """What a step changes, but for the counter."""
        return [self.Theta, self.m, self.v, self.metrics]

    @property
    def counters(self) -> list[Tensor]:
        return [self.step]

    def __call__(self) -> None:
        sine = self.config.sine
        time = self.step + (self.number << 40)  # the phases draw different trajectories
        batch = draw(self.functions, sine, self.seeds, time, sine.count)
        mask, lam = (self.mask, self.lam) if self.constrained else (None, None)
        found = meta_gradient(self.net, self.Theta, batch, self.alpha, self.config.order, mask, lam, self._learn)
        self._update(found.gradient)
        values = torch.stack([found.loss, found.constraint, found.diverged.to(found.loss.dtype)])
        self.metrics.index_copy_(0, self.step % BLOCK, values[None])
        self.step += 1

    @property
    def _learn(self) -> Learn:
        """The inner loop: the kernels where they run and nothing is differentiated through it."""
        if not self.Theta.is_cuda or not have_triton() or self.config.order == "exact":
            return network.learn
        from kcciol.kernels import regression_triton

        def learn(W: Sequence[Layer], z: Tensor, y: Tensor, alpha: Tensor) -> list[Layer]:
            if not regression_triton.fits(W, y):
                return network.learn(W, z, y, alpha)
            return regression_triton.learn(W, z, y, alpha, exact=not torch.backends.cuda.matmul.allow_tf32)

        return learn

    def _update(self, gradient: Tensor) -> None:
        """Algorithm 2, lines 11 and 12: the l1 term, the clamp, Adam."""
        g = gradient + self.gamma[:, None] * self.Theta.sign()
        if self.config.clamp:
            g = g.clamp(-self.config.clamp, self.config.clamp)
        t = (self.step + 1).to(g.dtype)
        self.m.lerp_(g, 1 - BETA1)
        self.v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        rate = self.rates.index_select(0, self.step)[0] / (1 - BETA1**t)
        self.Theta.sub_(rate[:, None] * self.m / ((self.v / (1 - BETA2**t)).sqrt_().add_(EPS)))


def rates(config: RegressionConfig, number: int) -> Tensor:
    """beta at each step of a phase, (steps,): in phase 1 it falls at the milestones.

    >>> from kcciol.config import PhaseConfig
    >>> config = RegressionConfig(phase1=PhaseConfig(steps=4, beta=1.0), milestones=(1, 3), decay=0.5)
    >>> rates(config, 1)[:4].tolist()
    [1.0, 0.5, 0.5, 0.25]
    """
    phase = config.phases[number - 1]
    table = torch.full((max(phase.steps, TRIALS),), phase.beta)
    if number == 1:
        for milestone in config.milestones:
            table[milestone:] *= config.decay
    return table
