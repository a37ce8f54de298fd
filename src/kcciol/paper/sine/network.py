"""theta and W of the regression network, for many members at once, and the inner loop on W.

`learn` is the definition of the inner loop: SGD on the mean squared error, a batch a step. It is written out, not
differentiated, so that autograd can go through it (order "exact").
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kcciol.nets.layout import Layout
from kcciol.paper.ensemble import Affine
from kcciol.paper.sine.settings import WidthConfig
from kcciol.random import seeded

Learn = Callable[[Sequence[Affine], Tensor, Tensor, Tensor], list[Affine]]  # as `learn` below


class RegressionNetwork:
    """The shapes; holds no parameters. Theta is (M, length)."""

    def __init__(self, net: WidthConfig, inputs: int, outputs: int = 1) -> None:
        theta = [inputs, *[net.width] * (net.theta - 1), net.features]
        W = [net.features, *[net.width] * (net.W - 1), outputs]
        shapes: dict[str, tuple[int, ...]] = {}
        for part, sizes in (("theta", theta), ("W", W)):
            for i in range(len(sizes) - 1):
                shapes[f"{part}.{i}.weight"] = (sizes[i + 1], sizes[i])
                shapes[f"{part}.{i}.bias"] = (sizes[i + 1],)
        self.layout, self.inputs, self.features = Layout(shapes), inputs, net.features

    def init(self, seed: int) -> Tensor:
        """One member's Theta: Kaiming-normal weights, zero biases."""
        generator = seeded(seed)
        tensors = {}
        for name, shape in self.layout.shapes.items():
            scale = math.sqrt(2 / shape[1]) if len(shape) == 2 else 0.0
            tensors[name] = torch.randn(shape, generator=generator) * scale
        return self.layout.pack(tensors)

    def layers(self, Theta: Tensor, part: str) -> list[Affine]:
        """The layers of "theta" or "W" as views of Theta (M, length)."""
        begins = [*self.layout.offsets.values(), self.layout.length]
        room = [b - a for a, b in itertools.pairwise(begins)]
        flat = torch.split(Theta, room, 1)  # the derivative of all these views is one operation
        views = [
            t[:, : math.prod(shape)].view(len(Theta), *shape)
            for t, (name, shape) in zip(flat, self.layout.shapes.items(), strict=True)
            if name.startswith(f"{part}.")
        ]
        return list(zip(views[::2], views[1::2], strict=True))


def represent(theta: Sequence[Affine], x: Tensor) -> Tensor:
    """Features (M, n, d) of inputs (M, n, slots + 1): every layer ends in a ReLU."""
    for weight, bias in theta:
        x = torch.baddbmm(bias[:, None], x, weight.mT).relu()
    return x


def predict(W: Sequence[Affine], z: Tensor) -> Tensor:
    """Answers (B, n) to features (B, n, d)."""
    return activations(W, z)[-1][..., 0]


def activations(W: Sequence[Affine], z: Tensor) -> list[Tensor]:
    """The inputs of all layers, and the answers (B, n, outputs)."""
    found = [z]
    for i, (weight, bias) in enumerate(W):
        a = torch.baddbmm(bias[:, None], found[-1], weight.mT)
        found.append(a.relu() if i < len(W) - 1 else a)
    return found


def gradients(W: Sequence[Affine], a: Sequence[Tensor], y: Tensor) -> list[Tensor]:
    """Those of the mean squared error at the outputs of all layers, before the ReLU."""
    found = [(a[-1] - y[..., None]) * (2 / y.shape[1])]
    for i in range(len(W) - 1, 0, -1):
        found.insert(0, (found[0] @ W[i][0]) * (a[i] > 0))
    return found


def step(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor) -> list[Affine]:
    """W after one step of SGD on the mean squared error of z (B, n, d), y (B, n), with a rate (B, 1, 1) each."""
    a = activations(W, z)
    g = gradients(W, a, y)
    return [
        (weight - alpha * (g[i].mT @ a[i]), bias - alpha[..., 0] * g[i].sum(1)) for i, (weight, bias) in enumerate(W)
    ]


def learn(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor) -> list[Affine]:
    """W after one step on each of T batches, z (B, T, n, d), y (B, T, n)."""
    moved = list(W)
    for t in range(z.shape[1]):
        moved = step(moved, z[:, t], y[:, t], alpha)
    return moved


def stages(learn: Learn, W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor, times: int) -> list[Affine]:
    """W at `times` evenly spaced moments of learning, (times, B, ...), the last of them its end."""
    found, learned = [], W
    for some, answers in zip(z.chunk(times, 1), y.chunk(times, 1), strict=True):
        learned = learn(learned, some, answers, alpha)
        found.append(learned)
    return stack(found)


def stack(found: Sequence[Sequence[Affine]]) -> list[Affine]:
    """Networks W as one, (times, B, ...)."""
    return [
        (torch.stack([weight for weight, _ in layers]), torch.stack([bias for _, bias in layers]))
        for layers in zip(*found, strict=True)
    ]
