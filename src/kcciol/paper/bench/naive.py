"""The meta-loss as public code computes it: the whole network in every inner step, unrolled by autograd.

Slow and easy to check; the tests hold the fast meta-step equal to it, and `kcciol bench step` times both.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import GradientOrder
from kcciol.meta.inner import TrajectoryLabels
from kcciol.nets.classification import Classification
from kcciol.nets.pixels import to_unit


def network(problem: Classification, theta: Mapping[str, Tensor], W: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Logits of images x (n, c, h, w), scaled to 0..1."""
    for layer, stride in enumerate(problem.convolutions.strides, 1):
        x = F.relu(F.conv2d(x, theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"], stride=stride))
    return problem.head.logits(W, x.permute(0, 2, 3, 1).flatten(1))


def naive_loss(
    problem: Classification, Theta: Tensor, images: Tensor, y: TrajectoryLabels, alpha: float, order: GradientOrder
) -> Tensor:
    """l_meta as a function of Theta, ready to be differentiated; images (t k + t s, c, h, w) uint8."""
    theta, W_0 = problem.theta(Theta), problem.W(Theta)
    x = to_unit(images, Theta.dtype)
    n = y.train.numel()
    x_tr, x_val = x[:n].unflatten(0, y.train.shape), x[n:].unflatten(0, y.val.shape)  # type: ignore[no-untyped-call]
    losses = []
    for t in range(len(y.train)):
        W = W_0
        for j in range(y.train.shape[1]):
            loss = F.cross_entropy(network(problem, theta, W, x_tr[t, j : j + 1]), y.train[t, j : j + 1])
            steps = torch.autograd.grad(loss, list(W.values()), create_graph=order == "exact", retain_graph=True)
            W = {name: w - alpha * step for (name, w), step in zip(W.items(), steps, strict=True)}
        losses.append(F.cross_entropy(network(problem, theta, W, x_val[t]), y.val[t]))
    return torch.stack(losses).mean()
