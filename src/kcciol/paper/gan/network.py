"""The generator and the critic, for many members at once.

What is W: the last layers, and the columns of the labels in the first layers. A label that was never seen has columns
that were never trained, and were they theta's, they would stay so: novel classes could not be told from each other, and
each would be learned over the one before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.nets.layout import Layout
from kcciol.paper.ensemble import Affine
from kcciol.paper.gan.settings import GanConfig
from kcciol.random import seeded


@dataclass(frozen=True)
class LabelledHead:
    """W of one network, for each of B copies."""

    weight: Tensor  # (B, out, in) of the last layer
    bias: Tensor  # (B, out)
    labels: Tensor  # (B, labels, units): what a label adds to the first layer

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.weight, self.bias, self.labels


class Networks:
    """The shapes of G and D; holds no parameters. Theta is (M, length): theta of both before W of both."""

    def __init__(self, gan: GanConfig, pixels: int) -> None:
        self.gan, self.pixels = gan, pixels
        sizes = {"G": [gan.noise, *gan.generator, pixels], "D": [pixels, *gan.critic, 1]}
        shapes: dict[str, tuple[int, ...]] = {}
        for name, widths in sizes.items():
            for i in range(len(widths) - 2):
                shapes[f"theta.{name}.{i}.weight"] = (widths[i + 1], widths[i])
                shapes[f"theta.{name}.{i}.bias"] = (widths[i + 1],)
        for name, widths in sizes.items():
            shapes[f"W.{name}.weight"] = (widths[-1], widths[-2])
            shapes[f"W.{name}.bias"] = (widths[-1],)
            shapes[f"W.{name}.labels"] = (gan.labels, widths[1])
        self.layout = Layout(shapes)

    def init(self, seed: int) -> Tensor:
        """One member's Theta: Kaiming-normal weights, the last layers' by their inputs alone, zero biases."""
        generator = seeded(seed)
        tensors = {}
        for name, shape in self.layout.shapes.items():
            _, net, *_ = name.split(".")
            first = self.layout.shapes[f"theta.{net}.0.weight"][1] + self.gan.labels  # inputs of the first layer
            inputs = first if name.endswith((".0.weight", "labels")) else shape[-1]
            gain = 1.0 if name == f"W.{net}.weight" else 2 / (1 + self.gan.slope**2)
            scale = 0.0 if name.endswith("bias") else math.sqrt(gain / inputs)
            tensors[name] = torch.randn(shape, generator=generator) * scale
        return self.layout.pack(tensors)

    def theta(self, Theta: Tensor, name: str) -> list[Affine]:
        """The layers of G or D but for the last, as views of Theta (M, length)."""
        count = sum(key.startswith(f"theta.{name}.") for key in self.layout.shapes) // 2
        return [
            (self._view(Theta, f"theta.{name}.{i}.weight"), self._view(Theta, f"theta.{name}.{i}.bias"))
            for i in range(count)
        ]

    def head(self, Theta: Tensor, name: str) -> LabelledHead:
        """W of G or D, as views of Theta (M, length)."""
        weight, bias, labels = (self._view(Theta, f"W.{name}.{part}") for part in ("weight", "bias", "labels"))
        return LabelledHead(weight, bias, labels)

    def _view(self, Theta: Tensor, name: str) -> Tensor:
        start, shape = self.layout.offsets[name], self.layout.shapes[name]
        return Theta[:, start : start + math.prod(shape)].view(len(Theta), *shape)

    def apply(self, theta: Sequence[Affine], head: LabelledHead, x: Tensor, labels: Tensor) -> Tensor:
        """A network on inputs (B, n, d) that are to show, or show, labels (B, n): (B, n, out). theta is of M members,
        head of B = M R copies, those of a member together."""
        hot = (labels[..., None] == torch.arange(self.gan.labels, device=x.device)).to(x.dtype)
        added = torch.bmm(hot, head.labels) * self.gan.strength
        members = len(theta[0][0])
        x = self._linear(theta[0], x, members) + added
        for layer in theta[1:]:
            x = self._linear(layer, F.leaky_relu(x, self.gan.slope), members)
        x = F.leaky_relu(x, self.gan.slope)
        return torch.baddbmm(head.bias[:, None], x, head.weight.mT)

    @staticmethod
    def _linear(layer: Affine, x: Tensor, members: int) -> Tensor:
        """A member's layer on the inputs (B, n, d) of all its copies."""
        copies, n, d = x.shape
        found = torch.baddbmm(layer[1][:, None], x.reshape(members, copies // members * n, d), layer[0].mT)
        return found.view(copies, n, -1)
