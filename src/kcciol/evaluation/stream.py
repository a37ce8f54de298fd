"""Which novel classes arrive, and in which order (Algorithm 4, line 2)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

Purpose = Literal["search", "report"]
_PURPOSES: tuple[Purpose, ...] = ("search", "report")


def generator(seed: int, purpose: Purpose, classes: int, *more: int) -> np.random.Generator:
    """A counter-based source of randomness that depends on these numbers and on nothing else."""
    key = np.random.SeedSequence([seed % 2**64, _PURPOSES.index(purpose), classes, *more])
    return np.random.Generator(np.random.Philox(key))


def draw(seed: int, purpose: Purpose, available: int, classes: int, count: int) -> Tensor:
    """`count` trajectories, each of `classes` different classes out of `available`, as ids (count, classes).

    The label of a class is its position in its trajectory. The images of a class come in their stored order. Asking
    for more trajectories leaves the first ones as they were.

    >>> draw(0, "report", available=4, classes=4, count=1).sort().values
    tensor([[0, 1, 2, 3]])
    """
    random = generator(seed, purpose, classes)
    drawn = [random.permutation(available)[:classes] for _ in range(count)]
    return torch.from_numpy(np.stack(drawn))


def draw_filled(seed: int, purpose: Purpose, first: int, others: int, fillers: int, count: int) -> Tensor:
    """The same, but each of all of the first classes and of so many of the others, which are numbered after them.

    >>> draw_filled(0, "search", first=2, others=9, fillers=1, count=1).sort().values[:, :2]
    tensor([[0, 1]])
    """
    random = generator(seed, purpose, first + fillers)
    drawn = []
    for _ in range(count):
        chosen = np.concatenate([np.arange(first), first + random.permutation(others)[:fillers]])
        drawn.append(random.permutation(chosen))
    return torch.from_numpy(np.stack(drawn))
