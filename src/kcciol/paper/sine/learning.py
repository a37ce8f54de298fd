"""Which implementation of the inner loop runs where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.kernels import Affine, have_triton
from kcciol.paper.sine import adjoint, network
from kcciol.paper.sine.network import Learn

Through = Callable[[Sequence[Affine], Tensor, Tensor, Tensor, int, Tensor], list[Affine]]


@dataclass(frozen=True)
class Loops:
    """The inner loop: from W, z, y and alpha to what is learned."""

    learn: Learn
    """Without derivatives."""
    through: Through
    """With a derivative, at several moments: `adjoint.learn`."""


PLAIN = Loops(network.learn, adjoint.learn)


def inner_loops(device: torch.device, exact: bool) -> Loops:
    """The kernels where they can run, else the plain loops. exact: products in float32 on a GPU, else their operands
    are rounded to TF32."""
    if device.type != "cuda" or not have_triton():
        return PLAIN
    from kcciol.kernels import regression_back_triton, regression_triton

    way = adjoint.Way(
        lambda W, z, y, alpha, times: regression_triton.learn_and_keep(W, z, y, alpha, times, exact),
        lambda stages, adjoints, z, alpha, kept: regression_back_triton.back(adjoints, z, alpha, kept, exact),
    )

    def learn(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor) -> list[Affine]:
        if not regression_triton.fits(W, y):
            return network.learn(W, z, y, alpha)
        return regression_triton.learn(W, z, y, alpha, exact)

    def through(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor, times: int, lost: Tensor) -> list[Affine]:
        return adjoint.learn(W, z, y, alpha, times, lost, way if regression_triton.fits(W, y) else None)

    return Loops(learn, through)
