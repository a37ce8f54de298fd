"""One meta-step, from drawing the images to the updated Theta, on tensors that stay in place.

Nothing in it waits for the host: the images are on the device, the trajectories of a block of steps too, and counters
on the device say which one is next. So the same code runs eagerly on a CPU and as one graph on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kcciol.config import Config, PhaseConfig
from kcciol.data.classset import ClassSet
from kcciol.meta import adam, trajectory
from kcciol.meta.inner import Inner, Labels, Plain
from kcciol.meta.lowrank import HiddenLowRank, LinearLowRank
from kcciol.meta.outer import meta_gradient
from kcciol.problems.classification import Classification

_BANK = (
    8  # reset = "all" takes its random numbers from a bank so many times the size of W, each time from another place
)


def make_inner(config: Config, problem: Classification, alpha: float) -> Inner:
    """The implementation of the inner loop that the config names."""
    kind: type[Inner] = Plain
    if config.meta.inner == "lowrank":
        kind = HiddenLowRank if problem.head.hidden else LinearLowRank
    return kind(problem.head, alpha, config.meta.order)


class MetaStep:
    """The state of one phase on one device; calling it does the next step."""

    def __init__(
        self, problem: Classification, base: ClassSet, config: Config, phase: PhaseConfig, Theta: Tensor, number: int
    ) -> None:
        self.problem, self.config, self.phase, self.number = problem, config, phase, number
        device = Theta.device
        self.Theta, self.adam, self.mask = Theta, adam.Adam.new(Theta), None
        self.precision = torch.float32
        self.samples = base.images.shape[1]
        self.rows = problem.encoder.rows(base.images.flatten(0, 1)).to(device)
        self.sampler = trajectory.Sampler(base, config.trajectory)
        self.scales = adam.scales(phase.steps, phase.beta, device)
        c = config.trajectory
        self.k, self.s = c.classes * c.support, c.classes * c.query + c.remember
        self.images = torch.zeros(trajectory.BLOCK, c.count * (self.k + self.s), dtype=torch.int64, device=device)
        self.classes = torch.zeros(trajectory.BLOCK, c.count * c.classes, dtype=torch.int64, device=device)
        self.redrawn = self._reset_buffers(device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # steps done in this phase
        self.slot = torch.zeros(1, dtype=torch.int64, device=device)  # of those, in this block
        self.metrics = torch.zeros(trajectory.BLOCK, 3, device=device)  # l_meta, l_constraint, its share
        self.inner = make_inner(config, problem, phase.alpha)

    mask: Tensor | None

    @property
    def state(self) -> list[Tensor]:
        """What a step changes."""
        return [self.Theta, self.adam.m, self.adam.v, self.step, self.slot, self.metrics]

    def load_block(self, block: int, slot: int) -> None:
        """Draw a block's trajectories and stand before its step number `slot`."""
        table = self.sampler.draw(self.config.seed, self.number, block)
        self.images.copy_(table.images)
        self.classes.copy_(table.classes)
        if self.redrawn is not None:
            self._redraw(block)
        self.slot.fill_(slot)
        self.step.fill_(block * trajectory.BLOCK + slot)

    def __call__(self) -> None:
        images = self.images.index_select(0, self.slot)[0]
        self._reset()
        count, n = self.config.trajectory.count, self.config.trajectory.count * self.k
        labels = images.div(self.samples, rounding_mode="floor")
        y = Labels(labels[:n].view(count, self.k), labels[n:].view(count, self.s))
        rows = self.rows.index_select(0, images)
        result = meta_gradient(self.problem, self.Theta, rows, y, self.inner, self.mask, self.phase.lam, self.precision)
        scale = self.scales.index_select(0, self.step)[0]
        adam.update_(self.Theta, result.gradient, self.adam, scale, self.phase.gamma, self.config.meta.clamp)
        zero = result.loss.new_zeros(())
        values = [result.loss, zero if result.constraint is None else result.constraint]
        values.append(zero if result.share is None else result.share)
        self.metrics.index_copy_(0, self.slot, torch.stack(values).to(self.metrics.dtype)[None])
        self.slot += 1
        self.step += 1

    # --- the reset of W before a step --------------------------------------------------------------------------------

    def _reset_buffers(self, device: torch.device) -> Tensor | None:
        fan_in = self.problem.head.hidden or self.problem.head.features
        if self.config.meta.reset == "draw":
            return torch.zeros(*self.classes.shape, fan_in, device=device)
        if self.config.meta.reset == "all":
            size = len(self.Theta) - self.problem.theta_length
            self.bank = trajectory.redraw(self.config.seed, self.number, 0, (_BANK * size,), 2).to(device)
            scale = torch.zeros_like(self.Theta)
            for view in self.problem.W(scale).values():
                if view.ndim == 2:
                    view.fill_((2 / view.shape[1]) ** 0.5)
            self.bank_scale = scale[self.problem.theta_length :].clone()
            self.bank_range = torch.arange(size, device=device)
            return torch.zeros(trajectory.BLOCK, dtype=torch.int64, device=device)  # where in the bank
        return None

    def _redraw(self, block: int) -> None:
        assert self.redrawn is not None
        if self.config.meta.reset == "draw":
            shape = tuple(self.redrawn.shape)
            self.redrawn.copy_(trajectory.redraw(self.config.seed, self.number, block, shape, shape[-1]))
        else:
            top = len(self.bank) - len(self.bank_range)
            self.redrawn.copy_(trajectory.offsets(self.config.seed, self.number, block, top))

    def _reset(self) -> None:
        kind = self.config.meta.reset
        if kind == "all":
            assert self.redrawn is not None
            at = self.bank_range + self.redrawn.index_select(0, self.slot)
            self.Theta[self.problem.theta_length :] = self.bank[at] * self.bank_scale
        elif kind != "none":
            rows = self.redrawn.index_select(0, self.slot)[0] if self.redrawn is not None else None
            self.problem.reset_rows_(self.Theta, self.classes.index_select(0, self.slot)[0], rows)
