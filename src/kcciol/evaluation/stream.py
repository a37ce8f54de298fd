"""Which classes arrive in which order (Algorithm 4, line 2), and when each of their examples comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol import random
from kcciol.errors import UserError

Purpose = Literal["search", "report"]
_PURPOSES: tuple[Purpose, ...] = ("search", "report")
Order = Literal["class", "task", "shuffled"]


def generator(seed: int, purpose: Purpose, classes: int, *more: int) -> np.random.Generator:
    """A counter-based source of randomness that depends on these numbers and on nothing else."""
    return random.generator(seed % 2**64, _PURPOSES.index(purpose), classes, *more)


def draw(seed: int, purpose: Purpose, available: int, classes: int, count: int) -> Tensor:
    """`count` trajectories, each of `classes` different classes out of `available`, as ids (count, classes).

    The label of a class is its position in its trajectory. The images of a class come in their stored order. Asking
    for more trajectories leaves the first ones as they were.

    >>> draw(0, "report", available=4, classes=4, count=1).sort().values
    tensor([[0, 1, 2, 3]])
    """
    numbers = generator(seed, purpose, classes)
    drawn = [numbers.permutation(available)[:classes] for _ in range(count)]
    return torch.from_numpy(np.stack(drawn))


def draw_filled(seed: int, purpose: Purpose, first: int, others: int, fillers: int, count: int) -> Tensor:
    """The same, but each of all of the first classes and of so many of the others, which are numbered after them.

    >>> draw_filled(0, "search", first=2, others=9, fillers=1, count=1).sort().values[:, :2]
    tensor([[0, 1]])
    """
    numbers = generator(seed, purpose, first + fillers)
    drawn = []
    for _ in range(count):
        chosen = np.concatenate([np.arange(first), first + numbers.permutation(others)[:fillers]])
        drawn.append(numbers.permutation(chosen))
    return torch.from_numpy(np.stack(drawn))


@dataclass(frozen=True)
class Schedule:
    """When each example comes, for every trajectory: `task_classes` classes a task, `samples` examples of each class.

    class: class after class, in the stored order. task: the examples of a task in random order. shuffled: all examples
    in random order, which is no continual learning any more and shows what that costs.
    """

    classes: int
    samples: int
    task_classes: int = 1
    order: Order = "class"
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.classes, self.samples, self.task_classes) < 1:
            raise UserError("An empty stream teaches nothing: classes, samples and task_classes must be at least 1.")
        if self.classes % self.task_classes:
            raise UserError(
                f"{self.classes} classes cannot be split into tasks of {self.task_classes}: "
                "choose a number of classes that can."
            )

    @property
    def tasks(self) -> int:
        return self.classes // self.task_classes

    def positions(self, trajectory: int) -> NDArray[np.int64]:
        """(tasks, examples of a task, 2): position of the class in the stream, and number of the example."""
        size = self.task_classes * self.samples
        label, sample = np.divmod(np.arange(self.classes * self.samples), self.samples)
        pairs = np.stack([label, sample], 1)
        numbers = random.generator(self.seed, trajectory)
        if self.order == "shuffled":
            pairs = pairs[numbers.permutation(len(pairs))]
        elif self.order == "task":
            pairs = np.concatenate([part[numbers.permutation(size)] for part in np.split(pairs, self.tasks)])
        return pairs.reshape(self.tasks, size, 2)
