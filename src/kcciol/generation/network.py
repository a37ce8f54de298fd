"""The generator and the critic, for many members at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.generation.settings import GanConfig
from kcciol.nets.layout import Layout

Layer = tuple[Tensor, Tensor]  # weight (B, out, in), bias (B, out)


class Networks:
    """The shapes of G and D; holds no parameters. Theta is (M, length): theta of both before W of both."""

    def __init__(self, gan: GanConfig, pixels: int) -> None:
        self.gan, self.pixels = gan, pixels
        G = [gan.noise + gan.labels, *gan.generator, pixels]
        D = [pixels + gan.labels, *gan.critic, 1]
        shapes: dict[str, tuple[int, ...]] = {}
        for part in ("theta", "W"):
            for name, sizes in (("G", G), ("D", D)):
                layers = range(len(sizes) - 2) if part == "theta" else [len(sizes) - 2]
                for i in layers:
                    shapes[f"{part}.{name}.{i}.weight"] = (sizes[i + 1], sizes[i])
                    shapes[f"{part}.{name}.{i}.bias"] = (sizes[i + 1],)
        self.layout = Layout(shapes)

    def init(self, seed: int) -> Tensor:
        """One member's Theta: Kaiming-normal weights, the last layers' by their inputs alone, zero biases."""
        generator = torch.Generator().manual_seed(seed)
        tensors = {}
        for name, shape in self.layout.shapes.items():
            gain = 2 / (1 + self.gan.slope**2) if name.startswith("theta") else 1.0
            scale = math.sqrt(gain / shape[1]) if len(shape) == 2 else 0.0
            tensors[name] = torch.randn(shape, generator=generator) * scale
        return self.layout.pack(tensors)

    def layers(self, Theta: Tensor, prefix: str) -> list[Layer]:
        """Layers whose names begin so ("theta.G", "W.D", ...), as views of Theta (M, length)."""
        views: list[Tensor] = []
        for name, shape in self.layout.shapes.items():
            if name.startswith(prefix + "."):
                start = self.layout.offsets[name]
                views.append(Theta[:, start : start + math.prod(shape)].view(len(Theta), *shape))
        return list(zip(views[::2], views[1::2], strict=True))

    def with_label(self, x: Tensor, labels: Tensor) -> Tensor:
        """(B, n, d) and labels (B, n) -> (B, n, d + labels)."""
        hot = labels[..., None] == torch.arange(self.gan.labels, device=x.device)
        return torch.cat([x, hot.to(x.dtype)], -1)


def hidden(layers: Sequence[Layer], x: Tensor, slope: float) -> Tensor:
    """What theta makes of inputs (B, n, d)."""
    for weight, bias in layers:
        x = F.leaky_relu(torch.baddbmm(bias[:, None], x, weight.mT), slope)
    return x


def linear(layer: Layer, x: Tensor) -> Tensor:
    """What W makes of it."""
    return torch.baddbmm(layer[1][:, None], x, layer[0].mT)
