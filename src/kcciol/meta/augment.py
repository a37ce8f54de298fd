"""What training does to images and features so that it does not learn them by heart: moving, mirroring, dropping.

The paper does neither; its l1 term is compared with them (docs/consolidation.md). Both are functions of
(seed, phase, step), so that a run that is cut and resumed goes on with the numbers it would have had, and each
trajectory has its own, on however many ranks. Nothing waits for the host: how images are moved is drawn a block of
steps at a time, as trajectories are, and what is dropped is drawn on the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.config import ClassifierPhaseConfig
from kcciol.engine.loop import BLOCK
from kcciol.random import generator, keyed, keyed_uniform

_DRAW = 4  # tells these random numbers from those of the resets and of the mask


@dataclass(frozen=True)
class StepShape:
    """The images of a step: k in tau_tr and s in tau_val of each of `count` trajectories, of which `own` are ours."""

    k: int
    s: int
    count: int
    own: slice

    def in_order(self, drawn: Tensor) -> Tensor:
        """What was drawn for each trajectory (t, k + s, ...) in the order of a step's images: tau_tr of all, then
        tau_val of all."""
        return torch.cat([drawn[:, : self.k].flatten(0, 1), drawn[:, self.k :].flatten(0, 1)])


class Movements:
    """Shifts, mirrors and turns, drawn anew each time that an image is shown."""

    def __init__(
        self,
        config: ClassifierPhaseConfig,
        seed: int,
        phase: int,
        image_shape: tuple[int, int, int],
        shape: StepShape,
        device: torch.device,
    ) -> None:
        self.config, self.seed, self.phase, self.image_shape, self.shape = config, seed, phase, image_shape, shape
        own = range(shape.count)[shape.own]
        self.table = torch.zeros(BLOCK, len(own) * (shape.k + shape.s), 6, device=device)
        _, height, width = image_shape
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        self.middle = torch.tensor([(height - 1) / 2, (width - 1) / 2], device=device)
        self.places = torch.stack([y, x], -1).view(-1, 2).to(device) - self.middle  # (h w, 2), from the middle

    @property
    def moves(self) -> bool:
        return bool(self.config.shift or self.config.flip or self.config.turn)

    def load_block(self, block: int) -> None:
        """Draw the movements of a block's steps."""
        if not self.moves:
            return
        shape = self.shape
        drawn = generator(self.seed, self.phase, block, _DRAW).random((BLOCK, shape.count, shape.k + shape.s, 4))
        moved = torch.from_numpy(movements(drawn, self.config)[:, shape.own])
        self.table.copy_(torch.cat([moved[:, :, : shape.k].flatten(1, 2), moved[:, :, shape.k :].flatten(1, 2)], 1))

    def __call__(self, rows: Tensor, slot: Tensor) -> Tensor:
        """Rows of bytes (see ConvEncoder.rows), each moved as was drawn for it in the step number `slot`."""
        if not self.moves:
            return rows
        channels, height, width = self.image_shape
        drawn = self.table.index_select(0, slot)[0]  # (n, 6)
        matrix, shift = drawn[:, :4].view(-1, 1, 2, 2), drawn[:, 4:].view(-1, 1, 2)
        source = (matrix * self.places[:, None, :]).sum(-1) - shift + self.middle  # (n, h w, 2): from where it comes
        y, x = source.round().long().unbind(-1)
        pixel = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)
        plane = torch.arange(channels, device=rows.device).view(-1, 1) * (height * width)
        places = (pixel[:, None, :] + plane).flatten(1)  # (n, c h w)
        return torch.cat([rows.gather(1, places), rows[:, channels * height * width :]], 1)


def movements(drawn: NDArray[np.float64], config: ClassifierPhaseConfig) -> NDArray[np.float32]:
    """Of numbers (..., 4) in [0, 1): a 2x2 matrix and a shift (..., 6). A pixel at p, from the middle, comes from
    matrix p - shift."""
    down, across = (np.floor(drawn[..., i] * (2 * config.shift + 1)) - config.shift for i in (0, 1))
    mirror = np.where(config.flip & (drawn[..., 2] < 0.5), -1.0, 1.0)
    angle = (2 * drawn[..., 3] - 1) * math.radians(config.turn)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([cos, -sin * mirror, sin, cos * mirror, down, across], -1).astype(np.float32)


class Dropout:
    """Which features of which images are kept, and by what they are scaled up."""

    def __init__(
        self, share: float, seed: int, phase: int, features: int, shape: StepShape, device: torch.device
    ) -> None:
        self.share, self.seed, self.phase, self.features, self.shape = share, seed, phase, features, shape
        self.own = torch.arange(shape.count, device=device)[shape.own]

    def __call__(self, step: Tensor) -> Tensor | None:
        """What the features (n, d) of the step number `step` (1,) are multiplied by; none where all are kept."""
        if not self.share:
            return None
        count = self.shape.k + self.shape.s
        drawn = keyed_uniform(keyed(step, self.seed, self.phase, self.own), count * self.features)
        kept = (drawn >= self.share) / (1 - self.share)
        return self.shape.in_order(kept.view(len(self.own), count, self.features))
