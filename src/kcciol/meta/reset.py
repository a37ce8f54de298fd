"""What happens to W before a step. Algorithm 2 says nothing; its ancestors re-draw the rows of the trajectory's class.

The reset is done once for a step, on W itself: with several trajectories a step, each of them sees the rows of all of
them reset. Adam's moments of these rows are kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kcciol.config import Config
from kcciol.engine.loop import BLOCK
from kcciol.nets.classification import Classification
from kcciol.random import generator

_BANK = 8  # reset = "all" takes W from a bank of random numbers so many times its size, each time from another place


class Reset:
    """None at all; the others are below. `like` is a vector of Theta's shape and device."""

    def __init__(self, config: Config, problem: Classification, phase: int, like: Tensor) -> None:
        self.config, self.problem, self.phase = config, problem, phase

    def load_block(self, block: int) -> None:
        """Draw what the steps of a block need."""

    def __call__(self, Theta: Tensor, classes: Tensor, slot: Tensor) -> None:
        """Reset W in Theta before the step number `slot` of the block, whose trajectories have these classes."""


class ZeroRows(Reset):
    """The rows of the trajectory's classes to zero."""

    def __call__(self, Theta: Tensor, classes: Tensor, slot: Tensor) -> None:
        self.problem.reset_rows_(Theta, classes, None)


class DrawRows(Reset):
    """The rows of the trajectory's classes drawn anew, Kaiming-normal; their biases to zero."""

    def __init__(self, config: Config, problem: Classification, phase: int, like: Tensor) -> None:
        super().__init__(config, problem, phase, like)
        self.fan_in = problem.head.hidden or problem.head.features
        rows = config.trajectory.count * config.trajectory.classes
        self.rows = like.new_zeros(BLOCK, rows, self.fan_in)

    def load_block(self, block: int) -> None:
        drawn = generator(self.config.seed, self.phase, block, 1).standard_normal(self.rows.shape, dtype="float32")
        self.rows.copy_(torch.from_numpy(drawn)).mul_((2 / self.fan_in) ** 0.5)

    def __call__(self, Theta: Tensor, classes: Tensor, slot: Tensor) -> None:
        self.problem.reset_rows_(Theta, classes, self.rows.index_select(0, slot)[0])


class DrawAll(Reset):
    """All of W anew. Drawing so many numbers for each step would outlast the step, so they come from a bank."""

    def __init__(self, config: Config, problem: Classification, phase: int, like: Tensor) -> None:
        super().__init__(config, problem, phase, like)
        size = len(like) - problem.theta_length
        bank = generator(config.seed, phase, 0, 1).standard_normal(_BANK * size, dtype="float32")
        self.bank, self.places = torch.from_numpy(bank).to(like), torch.arange(size, device=like.device)
        scale = torch.zeros_like(like)
        for view in problem.W(scale).values():
            if view.ndim == 2:  # biases and padding stay zero
                view.fill_((2 / view.shape[1]) ** 0.5)
        self.scale = scale[problem.theta_length :].clone()
        self.offsets = torch.zeros(BLOCK, dtype=torch.int64, device=like.device)

    def load_block(self, block: int) -> None:
        top = len(self.bank) - len(self.places)
        drawn = generator(self.config.seed, self.phase, block, 2).integers(top + 1, size=BLOCK)
        self.offsets.copy_(torch.from_numpy(drawn))

    def __call__(self, Theta: Tensor, classes: Tensor, slot: Tensor) -> None:
        at = self.places + self.offsets.index_select(0, slot)
        Theta[self.problem.theta_length :] = self.bank[at] * self.scale


KINDS: dict[str, type[Reset]] = {"none": Reset, "zero": ZeroRows, "draw": DrawRows, "all": DrawAll}
