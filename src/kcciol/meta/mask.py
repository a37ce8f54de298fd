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
        keep = round(config.delta * len(values))
        if keep:
            threshold = values.sort(descending=True).values[keep - 1]  # line 2
            for name in names:
                marks[name].copy_(tensors[name] >= threshold)  # lines 5 to 8
    return mask
