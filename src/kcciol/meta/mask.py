"""Algorithm 3: which parameters are important.

As printed the algorithm compares an empty mask with its threshold and never ends; docs/protocol.md says how it is read.
`mask.which` swaps the importance for another order, so that the paper's choice has something to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kcciol.config import MaskConfig
from kcciol.nets.layout import Layout
from kcciol.random import generator

_DRAW = 3  # tells the mask's random numbers from those of the resets, which are 1 and 2


def get_mask(layout: Layout, Theta: Tensor, config: MaskConfig, seed: int = 0) -> Tensor:
    """1 for the share delta of the most important parameters, else 0; a vector like Theta. seed draws random ones."""
    mask = torch.zeros_like(Theta)
    tensors, marks = layout.views(IMPORTANCE[config.which](Theta, seed)), layout.views(mask)
    groups = [[name] for name in tensors] if config.scope == "tensor" else [list(tensors)]
    for names in groups:
        values = torch.cat([tensors[name].flatten() for name in names])
        important = torch.zeros_like(values)
        important[values.argsort(descending=True, stable=True)[: round(config.delta * len(values))]] = 1  # lines 2 to 8
        for name, part in zip(names, torch.split(important, [tensors[n].numel() for n in names]), strict=True):
            marks[name].copy_(part.view(tensors[name].shape))
    return mask


def _drawn(Theta: Tensor, seed: int) -> Tensor:
    return torch.from_numpy(generator(seed, 0, 0, _DRAW).random(len(Theta), dtype="float32")).to(Theta)


IMPORTANCE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "top": lambda Theta, seed: Theta.abs(),
    "random": _drawn,
    "bottom": lambda Theta, seed: -Theta.abs(),
}
