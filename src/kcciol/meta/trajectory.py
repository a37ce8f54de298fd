"""Algorithm 2, line 2: learning trajectories, drawn for many steps at once.

A draw is a pure function of (seed, phase, block of steps): a run that is cut and resumed, on whatever device, sees the
trajectories it would have seen. A step's trajectories are a row of index tables, so that a GPU that holds the images
needs nothing else from the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.config import TrajectoryConfig
from kcciol.data.classset import ClassSet
from kcciol.engine.loop import BLOCK
from kcciol.errors import UserError
from kcciol.random import generator


@dataclass(frozen=True)
class TrajectoryBlock:
    """The trajectories of one block of steps; b steps, t trajectories each, n classes, k support, s query images."""

    images: Tensor  # int64 (b, t k + t s): which images (class * samples + sample); tau_tr of all, then tau_val of all
    classes: Tensor  # int64 (b, t n): the classes of the trajectories, whose rows of W may be reset


class Sampler:
    """Draws from one class set."""

    def __init__(self, data: ClassSet, config: TrajectoryConfig) -> None:
        if config.classes:
            data.require(config.support + config.query, "a trajectory")
        if config.count * config.classes > len(data):
            raise UserError(
                f"A step draws {config.count} x {config.classes} different classes (trajectory.count x "
                f"trajectory.classes), but there are {len(data)} base classes: lower one of them, or add base classes."
            )
        self.config, self.counts = config, data.counts.numpy()
        self.samples = data.images.shape[1]
        real = np.arange(self.samples) < self.counts[:, None]
        self.pool = np.flatnonzero(real)  # every image there is
        self.missing = ~real
        if config.remember > len(self.pool):
            raise UserError(
                f"trajectory.remember is {config.remember}, but there are {len(self.pool)} images: lower it."
            )

    def draw(self, seed: int, phase: int, block: int) -> TrajectoryBlock:
        """Block number `block` of phase number `phase`."""
        rng, c = generator(seed, phase, block), self.config
        rows = BLOCK * c.count
        # no class twice in a step, so that the rows of W to reset are all different
        classes = distinct(rng, BLOCK, len(self.counts), c.count * c.classes).reshape(rows, c.classes)
        keys = rng.random((rows, c.classes, self.samples), dtype=np.float32)
        keys[self.missing[classes]] = 2.0  # slots without an image come last
        order = keys.argsort(-1)[..., : c.support + c.query]
        images = classes[..., None] * self.samples + order  # (rows, n, support + query)
        support = images[..., : c.support].reshape(BLOCK, -1)
        query = images[..., c.support :].reshape(rows, -1)
        remember = self.pool[distinct(rng, rows, len(self.pool), c.remember)]
        val = np.concatenate([query, remember], 1).reshape(BLOCK, -1)
        return TrajectoryBlock(
            torch.from_numpy(np.concatenate([support, val], 1)), torch.from_numpy(classes.reshape(BLOCK, -1))
        )


def distinct(rng: np.random.Generator, rows: int, n: int, r: int) -> NDArray[np.int64]:
    """(rows, r): in each row r different numbers below n, uniformly."""
    if r * r > n:
        return rng.random((rows, n), dtype=np.float32).argsort(1)[:, :r]
    drawn = rng.integers(n, size=(rows, r))
    while True:  # rows with a repetition are drawn again as a whole, which keeps the others' distribution uniform
        ordered = np.sort(drawn, 1)
        again = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        if not again.any():
            return drawn
        drawn[again] = rng.integers(n, size=(int(again.sum()), r))
