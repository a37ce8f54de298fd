"""Algorithm 3: which parameters are important.

As printed the algorithm compares an empty mask with its threshold and never ends; docs/protocol.md says how it is read.
`mask.which` swaps the importance for another order, so that the paper's choice has something to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kcciol.config import MaskConfig
from kcciol.errors import UserError
from kcciol.nets.layout import Layout
from kcciol.random import generator

_DRAW = 3  # tells the mask's random numbers from those of the resets, which are 1 and 2


Squares = Callable[[], Tensor]


def get_mask(
    layout: Layout, Theta: Tensor, config: MaskConfig, seed: int = 0, squares: Squares | None = None
) -> Tensor:
    """1 for the share delta of the most important parameters, else 0; a vector like Theta. With mask.soft it falls from
    1 to 0 with their rank.

    seed: draws random ones.
    squares: says of each parameter the mean square of the meta-gradient, where it is known.
    """
    mask = torch.zeros_like(Theta)
    tensors, marks = layout.views(IMPORTANCE[config.which](Theta, seed, squares)), layout.views(mask)
    groups = [[name] for name in tensors] if config.scope == "tensor" else [list(tensors)]
    for names in groups:
        values = torch.cat([tensors[name].flatten() for name in names])
        important = torch.zeros_like(values)
        order = values.argsort(descending=True, stable=True)
        if config.soft:
            important[order] = torch.linspace(1, 0, len(values)).to(values)
        else:
            important[order[: round(config.delta * len(values))]] = 1  # lines 2 to 8
        for name, part in zip(names, torch.split(important, [tensors[n].numel() for n in names]), strict=True):
            marks[name].copy_(part.view(tensors[name].shape))
    return mask


def _drawn(Theta: Tensor, seed: int) -> Tensor:
    return torch.from_numpy(generator(seed, 0, 0, _DRAW).random(len(Theta), dtype="float32")).to(Theta)


def _squared(squares: Squares | None) -> Tensor:
    if squares is None:
        raise UserError(
            "mask.which is 'fisher', but that is for encoders of images only: choose top, random or bottom."
        )
    return squares()


IMPORTANCE: dict[str, Callable[[Tensor, int, Squares | None], Tensor]] = {
    "top": lambda Theta, seed, squares: Theta.abs(),
    "random": lambda Theta, seed, squares: _drawn(Theta, seed),
    "bottom": lambda Theta, seed, squares: -Theta.abs(),
    "fisher": lambda Theta, seed, squares: _squared(squares),
}
