"""Networks of one's own to try things on. `tests.nets.networks:NAME` is what net.module says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ImageShape = tuple[int, int, int]


class Paper(nn.Module):
    """The paper's convolutions, with the names and the order of features that ours have."""

    def __init__(self, image_shape: ImageShape, channels: int = 5, strides: tuple[int, ...] = (2, 1)) -> None:
        super().__init__()
        inputs = image_shape[0]
        for layer, stride in enumerate(strides, 1):
            self.add_module(f"conv{layer}", nn.Conv2d(inputs, channels, 3, stride))
            inputs = channels

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.children():
            x = F.relu(convolution(x))
        return x.permute(0, 2, 3, 1).flatten(1)


class Residual(nn.Module):
    """A convolution, a block with a way around it, the mean over places. Smooth, so that differences can check it."""

    def __init__(self, image_shape: ImageShape, norm: Callable[[int], nn.Module], dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(image_shape[0], 8, 3, 2), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList(norm(8) for _ in range(2))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norms[0](self.first(x)))
        x = x + self.norms[1](self.second(self.drop(x)))
        return F.silu(x).mean((2, 3))


def batch(image_shape: ImageShape) -> Residual:
    return Residual(image_shape, nn.BatchNorm2d)


def batch_dropout(image_shape: ImageShape) -> nn.Module:
    return Residual(image_shape, nn.BatchNorm2d, dropout=0.3)


def group(image_shape: ImageShape) -> nn.Module:
    return Residual(image_shape, lambda channels: nn.GroupNorm(2, channels))


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, no-untyped-call, unused-ignore]
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class Once(Paper):
    """Can be differentiated once."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = _Once.apply(super().forward(x))  # type: ignore[no-untyped-call, unused-ignore]
        return found


class Maps(Paper):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(next(self.children())(x))


class Missing(Paper):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.nan


class Whole(Paper):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).long()


class Pair(Paper):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x), x  # type: ignore[return-value]


class Wide(Paper):
    def __init__(self, image_shape: ImageShape) -> None:
        super().__init__(image_shape)
        self.double()


class Empty(nn.Flatten):
    def __init__(self, image_shape: ImageShape) -> None:
        super().__init__()


class Ever(Paper):
    """Another width each time."""

    made = 0

    def __init__(self, image_shape: ImageShape) -> None:
        Ever.made += 1
        super().__init__(image_shape, channels=Ever.made)


def colour_only(image_shape: ImageShape) -> nn.Module:
    return Paper((3, *image_shape[1:]))


def broken(image_shape: ImageShape) -> nn.Module:
    raise ZeroDivisionError("nothing is here")


def unsaid(image_shape: ImageShape):  # type: ignore[no-untyped-def]
    return Paper(image_shape)


def none(image_shape: ImageShape) -> nn.Module:
    return None  # type: ignore[return-value]
