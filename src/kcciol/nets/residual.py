"""A residual network with batch normalisation, images -> feature vectors: what the encoders that we train are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol.config import require, require_range
from kcciol.random import seeded


@dataclass(frozen=True)
class ResidualConfig:
    """A convolution, residual blocks of two convolutions each, and a linear map of what is left of the places."""

    channels: int = 1
    """Of the images: 1 or 3."""
    size: int = 32
    """Images are of size x size pixels."""
    stem: int = 32
    """Channels of the first convolution."""
    stem_stride: int = 2
    """Its stride."""
    widths: tuple[int, ...] = (32, 64, 128)
    """Channels of each block."""
    strides: tuple[int, ...] = (1, 2, 2)
    """The stride of each block's first convolution."""
    features: int = 256
    """Features of an image; 0: the mean over places of the last block, as wide as that is."""
    places: int = 4
    """The linear map sees the last block's output brought to places x places; 1 is the mean over all."""

    def __post_init__(self) -> None:
        require(self.channels in (1, 3), "net.channels", self.channels, "1 or 3")
        require_range(self, "net", 8, 1024, "size")
        require_range(self, "net", 1, 2**12, "stem")
        require_range(self, "net", 1, 4, "stem_stride")
        require(
            1 <= len(self.widths) == len(self.strides),
            "net.widths",
            self.widths,
            f"one for each of the {len(self.strides)} net.strides",
        )
        require(all(1 <= w <= 2**12 for w in self.widths), "net.widths", self.widths, "numbers between 1 and 4,096")
        require(all(s in (1, 2) for s in self.strides), "net.strides", self.strides, "a list of 1s and 2s")
        require_range(self, "net", 0, 2**14, "features")
        require_range(self, "net", 1, 16, "places")

    @property
    def width(self) -> int:
        """How many features an image has."""
        return self.features or self.widths[-1]


class ResidualBlock(nn.Module):
    """relu(x + two convolutions of x)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.around = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        found = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(found + self.around(x))


class Residual(nn.Module):
    """Images (n, channels, size, size) -> features (n, width)."""

    def __init__(self, config: ResidualConfig, seed: int = 0) -> None:
        """seed: of the first weights."""
        super().__init__()
        self.config = config
        self.conv = nn.Conv2d(config.channels, config.stem, 3, config.stem_stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(config.stem)
        inputs, blocks = config.stem, []
        for outputs, stride in zip(config.widths, config.strides, strict=True):
            blocks.append(ResidualBlock(inputs, outputs, stride))
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.linear, self.last = nn.Sequential(), nn.Sequential()
        if config.features:
            self.linear.append(nn.Linear(inputs * config.places**2, config.features, bias=False))
            self.last.append(nn.BatchNorm1d(config.features))
        self._draw(seeded(seed))

    @torch.no_grad()
    def _draw(self, generator: torch.Generator) -> None:
        """Kaiming-normal weights; each block begins as what goes around it."""
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                fan = module.weight[0].numel()
                module.weight.normal_(0, (2 / fan) ** 0.5, generator=generator)
            elif isinstance(module, ResidualBlock):
                module.norm2.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        places = self.config.places if self.config.features else 1
        if x.shape[-1] != places:
            x = F.adaptive_avg_pool2d(x, places)
        found: Tensor = self.last(self.linear(x.flatten(1)))
        return found
