"""No network at all: an image's features are its pixels."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def pixels(source: str, /, device: torch.device | str = "cpu") -> Pixels:
    """The pixels of images of one shape, such as 1x28x28, from 0 to 1."""
    return Pixels([int(side) for side in source.split("x")], device)


class Pixels:
    def __init__(self, shape: list[int], device: torch.device | str) -> None:
        self.shape, self.device = shape, device

    @property
    def width(self) -> int:
        return math.prod(self.shape)

    @property
    def identity(self) -> str:
        return f"pixels / 255 of {self.shape}"

    def features(self, images: Tensor) -> Tensor:
        return images.to(self.device, torch.float32).flatten(-3) / 255
