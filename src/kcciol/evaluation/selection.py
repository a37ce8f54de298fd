"""Which images of its classes a trajectory learns and is asked: the same for all, or drawn anew for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.evaluation.stream import Purpose, generator


@dataclass(frozen=True)
class Selection:
    """Images (V, k, ...) of V classes, taken from a pool; indexed like a tensor, and gathered when asked for."""

    pool: Tensor  # (N, ...)
    picks: Tensor  # (V, k), rows of the pool

    @classmethod
    def first(cls, images: Tensor, count: int) -> Selection:
        """The first of images (C, S, ...) of each class."""
        rows = torch.arange(images.shape[0] * images.shape[1], device=images.device).view(images.shape[:2])
        return cls(images.flatten(0, 1), rows[:, :count])

    def columns(self, first: int, last: int) -> Selection:
        """Some of the images of each class."""
        return Selection(self.pool, self.picks[:, first:last])

    def __getitem__(self, key: Any) -> Tensor:
        return self.pool[self.picks[key]]

    def __len__(self) -> int:
        return len(self.picks)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.picks.shape, *self.pool.shape[1:])

    @property
    def device(self) -> torch.device:
        return self.pool.device

    def different(self, classes: Tensor) -> int:
        """How many different images trajectories of classes (R, n) are shown between them."""
        return len(torch.unique(self.picks[classes.to(self.picks.device)]))


def image_order(seed: int, purpose: Purpose, label: int, trajectory: int, samples: int) -> NDArray[np.int64]:
    """The images of a class in the order in which a trajectory takes them. What it draws of a class depends on these
    numbers only: a longer stream, another method or more trajectories draw the same."""
    return generator(seed, purpose, label, trajectory, samples).permutation(samples)


def redrawn(
    images: Tensor,
    streams: Tensor,
    trajectories: Sequence[int],
    sizes: tuple[int, int],
    seed: int,
    purpose: Purpose,
    free: NDArray[np.bool_] | None = None,
) -> tuple[Selection, Selection, Tensor]:
    """For each class of each trajectory sizes[0] images to learn and sizes[1] others, held out, drawn from images
    (C, S, ...), and the streams (R, n) in terms of these: a class of one trajectory is a class of its own here.

    free (C, S): the images that may be drawn; None: all.
    """
    samples = images.shape[1]
    picks = np.empty((*streams.shape, sum(sizes)), dtype=np.int64)
    for row, (number, classes) in enumerate(zip(trajectories, streams.cpu().tolist(), strict=True)):
        for position, label in enumerate(classes):
            order = image_order(seed, purpose, label, number, samples)
            order = order if free is None else order[free[label, order]]
            picks[row, position] = label * samples + order[: sum(sizes)]
    found = torch.from_numpy(picks).to(images.device).flatten(0, 1)
    pool, ids = images.flatten(0, 1), torch.arange(streams.numel(), device=streams.device).view(streams.shape)
    return Selection(pool, found[:, : sizes[0]]), Selection(pool, found[:, sizes[0] :]), ids


def never_held_out(
    classes: int, samples: int, sizes: tuple[int, int], trajectories: int, seed: int
) -> NDArray[np.bool_]:
    """(C, S): which images of each class are held out in none of the reported trajectories, whose images are drawn
    anew. Of every length: a trajectory takes the same images of a class, however long it is."""
    free = np.ones((classes, samples), dtype=bool)
    for label in range(classes):
        for number in range(trajectories):
            free[label, image_order(seed, "report", label, number, samples)[sizes[0] : sum(sizes)]] = False
    return free
