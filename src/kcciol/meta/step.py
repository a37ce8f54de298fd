"""One meta-step, from drawing the images to the updated Theta, on tensors that stay in place.

Nothing in it waits for the host: the images are on the device, the trajectories of a block of steps too, and counters
on the device say which one is next. So the same code runs eagerly on a CPU and as one graph on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kcciol import optim
from kcciol.config import ClassifierPhaseConfig, Config
from kcciol.data.classset import ClassSet
from kcciol.engine.device import encoder_dtype
from kcciol.engine.graph import TRIALS
from kcciol.engine.loop import BLOCK
from kcciol.engine.ranks import ALONE, Mean, Ranks
from kcciol.meta import reset, trajectory
from kcciol.meta.augment import Dropout, Movements, StepShape
from kcciol.meta.autograd import autograd_meta_gradient
from kcciol.meta.inner import Inner, Plain, TrajectoryLabels
from kcciol.meta.lowrank import HiddenLowRank, LinearLowRank
from kcciol.meta.objectives import Episodes, Supervised
from kcciol.meta.outer import meta_gradient
from kcciol.meta.whole import whole_gradient
from kcciol.nets.classification import Classification
from kcciol.random import torch_seeded


def make_inner(config: Config, problem: Classification, alpha: float, mean: Mean = ALONE.mean) -> Inner:
    """The loss on features that the config names, in the implementation that it names; mean goes over the ranks."""
    if config.meta.loss == "episodes":
        return Episodes(problem.head, alpha, config.meta, config.trajectory)
    if config.meta.loss != "online":
        return Supervised(problem.head, config.meta, mean)
    kind: type[Inner] = Plain
    if config.meta.inner == "lowrank":
        kind = HiddenLowRank if problem.head.hidden else LinearLowRank
    return kind(problem.head, alpha, config.meta.order)


class MetaStep:
    """The state of one phase on one device; calling it does the next step, together with the other ranks."""

    def __init__(
        self,
        problem: Classification,
        base: ClassSet,
        config: Config,
        phase: ClassifierPhaseConfig,
        number: int,
        Theta: Tensor,
        mask: Tensor | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """Theta is changed in place; mask is needed when the phase has a lambda."""
        self.problem, self.config, self.phase, self.number = problem, config, phase, number
        self.mean = ranks.mean
        self.own = ranks.slice_of(config.trajectory.count)  # which trajectories of a step are ours
        device = Theta.device
        self.Theta, self.adam, self.mask = Theta, optim.Adam.new(Theta), mask
        self.precision = encoder_dtype(config.engine.precision, device)
        self.samples = base.images.shape[1]
        self.rows = problem.encoder.rows(base.images.flatten(0, 1)).to(device)
        self.sampler = trajectory.Sampler(base, config.trajectory)
        self.scales = optim.scales(max(phase.steps, TRIALS), phase.beta, device)
        c = config.trajectory
        self.k, self.s = c.classes * c.support, c.classes * c.query + c.remember
        self.count = self.own.stop - self.own.start
        self.images = torch.zeros(BLOCK, self.count * (self.k + self.s), dtype=torch.int64, device=device)
        self.classes = torch.zeros(BLOCK, c.count * c.classes, dtype=torch.int64, device=device)
        self.reset = reset.KINDS[config.meta.reset](config, problem, number, Theta)
        shape = StepShape(self.k, self.s, c.count, self.own)
        self.movements = Movements(phase, config.seed, number, base.image_shape, shape, device)
        self.dropout = Dropout(phase.dropout, config.seed, number, problem.encoder.features, shape, device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # steps done in this phase
        self.slot = torch.zeros(1, dtype=torch.int64, device=device)  # of those, in this block
        self.metrics = torch.zeros(BLOCK, 3, device=device)  # l_meta, l_constraint, its share
        self.inner = make_inner(config, problem, phase.alpha, self.mean)

    @property
    def state(self) -> list[Tensor]:
        """What a step changes, but for the counters."""
        return [self.Theta, self.adam.m, self.adam.v, self.metrics, *self.problem.buffers.values()]

    @property
    def counters(self) -> list[Tensor]:
        return [self.step, self.slot]

    def load_block(self, block: int, slot: int) -> None:
        """Draw a block's trajectories and stand before its step number `slot`.

        Every rank draws all of them and learns its own; the rows of W are reset for all.
        """
        table = self.sampler.draw(self.config.seed, self.number, block)
        count = self.config.trajectory.count
        train, val = table.images[:, : count * self.k], table.images[:, count * self.k :]
        own = [x.view(len(x), count, n)[:, self.own].flatten(1) for x, n in ((train, self.k), (val, self.s))]
        self.images.copy_(torch.cat(own, 1))
        self.classes.copy_(table.classes)
        self.reset.load_block(block)
        self.movements.load_block(block)
        self.slot.fill_(slot)
        self.step.fill_(block * BLOCK + slot)

    def __call__(self) -> None:
        images = self.images.index_select(0, self.slot)[0]
        self.reset(self.Theta, self.classes.index_select(0, self.slot)[0], self.slot)
        n = self.count * self.k
        labels = images.div(self.samples, rounding_mode="floor")
        y = TrajectoryLabels(labels[:n].view(self.count, self.k), labels[n:].view(self.count, self.s))
        rows = self.movements(self.rows.index_select(0, images), self.slot)
        if self.config.meta.adapts == "net":
            alpha, order = self.phase.alpha, self.config.meta.order
            result = whole_gradient(self.problem, self.Theta, rows, y, alpha, order, self.precision, self.mean)
        else:
            mask, lam = self.mask, self.phase.lam
            kept = self.dropout(self.step)
            if self.problem.by_hand:
                result = meta_gradient(
                    self.problem, self.Theta, rows, y, self.inner, mask, lam, self.precision, self.mean, kept
                )
            else:
                with torch_seeded(self.config.seed, self.number, int(self.step), self.own.start):  # a module may draw
                    result = autograd_meta_gradient(
                        self.problem, self.inner, self.Theta, rows, y, mask, lam, kept, self.precision, self.mean
                    )
                for buffer in self.problem.buffers.values():
                    if buffer.is_floating_point():  # of the images of this rank
                        buffer.copy_(self.mean(buffer))
        scale = self.scales.index_select(0, self.step)[0]
        shrink = self.phase.beta * self.phase.decay
        optim.update_(self.Theta, result.gradient, self.adam, scale, self.phase.gamma, self.config.meta.clamp, shrink)
        zero = result.loss.new_zeros(())
        values = [result.loss, zero if result.constraint is None else result.constraint]
        values.append(zero if result.share is None else result.share)
        self.metrics.index_copy_(0, self.slot, torch.stack(values).to(self.metrics.dtype)[None])
        self.slot += 1
        self.step += 1
