"""Algorithm 3: which parameters are important.

As printed the algorithm compares an empty mask with its threshold and never ends; docs/protocol.md says how it is read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kcciol.config import MaskConfig
from kcciol.nets.layout import Layout


def get_mask(layout: Layout, Theta: Tensor, config: MaskConfig) -> Tensor:
    """1 for the share delta of the parameters with the largest absolute values, else 0; a vector like Theta."""
    mask = torch.zeros_like(Theta)
    tensors, marks = layout.views(Theta.abs()), layout.views(mask)
    groups = [[name] for name in tensors] if config.scope == "tensor" else [list(tensors)]
    for names in groups:
        values = torch.cat([tensors[name].flatten() for name in names])
        important = torch.zeros_like(values)
        important[values.argsort(descending=True, stable=True)[: round(config.delta * len(values))]] = 1  # lines 2 to 8
        for name, part in zip(names, torch.split(important, [tensors[n].numel() for n in names]), strict=True):
            marks[name].copy_(part.view(tensors[name].shape))
    return mask
