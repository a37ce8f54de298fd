"""Many copies of W through their streams, as many at a time as memory holds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from kcciol.evaluation.online import Head, Optimizer, make_head
from kcciol.evaluation.shown import Images
from kcciol.evaluation.start import Start

GIB = 2**30
BUDGET = {"cpu": GIB}  # bytes; on a GPU half of what is free


def learn_streams(
    streams: Tensor, trajectories: Tensor, rates: Tensor, train: Tensor | Images, start: Start, optimizer: Optimizer
) -> Iterator[tuple[slice, int, Head]]:
    """Let B copies of W learn, and hand them over after each class (Algorithm 4, lines 4 to 6).

    streams are class ids (B, n), trajectories the number of each copy's trajectory (B,), rates (B,), train the images
    (C, S, columns) to learn from. Yields which copies, how many classes they have learned, and their head. Copies
    know nothing of each other: how they are split into groups changes nothing.
    """
    like = train.pool if isinstance(train, Images) else train
    group = copies_at_once(start, like)
    for first in range(0, len(streams), group):
        copies = slice(first, min(first + group, len(streams)))
        layers = start.layers(trajectories[copies], like)
        head = make_head(layers, rates[copies], optimizer, alike=start.config.start == "zero")
        for position, classes in enumerate(streams[copies].unbind(1)):
            head.learn(train[classes], position)
            yield copies, position + 1, head


def copies_at_once(start: Start, like: Tensor) -> int:
    """How many copies fit into the device's budget: four numbers a weight (itself, Adam's two and one to work with)."""
    weights = sum(math.prod(shape) for shape in start.shapes)
    return max(1, budget(like.device) // (4 * weights * like.element_size()))


def budget(device: torch.device) -> int:
    """Bytes that copies may take together."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else BUDGET["cpu"]
