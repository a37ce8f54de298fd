"""Which implementation of the inner loop runs where."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kcciol.kernels import have_triton
from kcciol.regression import network
from kcciol.regression.network import Layer

Learn = Callable[[Sequence[Layer], Tensor, Tensor, Tensor], list[Layer]]


def inner_loop(device: torch.device, exact: bool) -> Learn:
    """The kernels where they can run, else the plain loop; neither is differentiated through. exact: products in
    float32 on a GPU, else their operands are rounded to TF32."""
    if device.type != "cuda" or not have_triton():
        return network.learn
    from kcciol.kernels import regression_triton

    def learn(W: Sequence[Layer], z: Tensor, y: Tensor, alpha: Tensor) -> list[Layer]:
        if not regression_triton.fits(W, y):
            return network.learn(W, z, y, alpha)
        return regression_triton.learn(W, z, y, alpha, exact)

    return learn
