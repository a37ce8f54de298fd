"""Which images of its classes a trajectory is shown: the same for all, or drawn anew for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kcciol.evaluation.stream import Purpose, generator


@dataclass(frozen=True)
class Images:
    """Images (V, k, ...) of V classes as a selection from a pool, indexed like a tensor and gathered when asked for."""

    pool: Tensor  # (N, ...)
    picks: Tensor  # (V, k), rows of the pool

    @classmethod
    def all_of(cls, images: Tensor) -> Images:
        """Images (C, k, ...) as they are."""
        rows = torch.arange(images.shape[0] * images.shape[1], device=images.device)
        return cls(images.flatten(0, 1), rows.view(images.shape[:2]))

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

    @property
    def dtype(self) -> torch.dtype:
        return self.pool.dtype


def redrawn(
    images: Tensor, streams: Tensor, trajectories: Sequence[int], sizes: tuple[int, int], seed: int, purpose: Purpose
) -> tuple[Images, Images, Tensor]:
    """For each class of each trajectory sizes[0] images to learn and sizes[1] others, held out, drawn from images
    (C, S, ...), and the streams (R, n) in terms of these: a class of one trajectory is a class of its own here.

    What a trajectory draws of a class depends on its number, the class and the seed only: a longer stream, another
    method or more trajectories draw the same.
    """
    samples = images.shape[1]
    picks = np.empty((*streams.shape, sum(sizes)), dtype=np.int64)
    for row, (number, classes) in enumerate(zip(trajectories, streams.cpu().tolist(), strict=True)):
        for position, label in enumerate(classes):
            order = generator(seed, purpose, label, number, samples).permutation(samples)
            picks[row, position] = label * samples + order[: sum(sizes)]
    found = torch.from_numpy(picks).to(images.device).flatten(0, 1)
    pool, ids = images.flatten(0, 1), torch.arange(streams.numel(), device=streams.device).view(streams.shape)
    return Images(pool, found[:, : sizes[0]]), Images(pool, found[:, sizes[0] :]), ids
