"""The encoder's convolutions for copies that each have a theta of their own; autograd can go through them, twice.

Two ways to the same maps: `grouped` is the definition, one convolution in which each copy is a group of channels;
`by_patches` is a matrix product over 3x3 patches for each copy, which is how a GPU runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def maps(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    """The output of each convolution, (B, m, channels, h, w), of images x (B, m, c, h, w) scaled to 0..1.

    theta's tensors are (B, ...).
    """
    return (by_patches if x.is_cuda else grouped)(theta, x, strides)


def grouped(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    copies = len(x)
    a = x.transpose(0, 1).flatten(1, 2)  # (m, B c, h, w)
    for layer, stride in enumerate(strides, 1):
        w, b = theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"]
        a = F.relu(F.conv2d(a, w.flatten(0, 1), b.flatten(), stride, groups=copies))
        yield a.view(len(a), copies, -1, *a.shape[2:]).transpose(0, 1)


def by_patches(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    a = x.transpose(1, 2)
    for layer, stride in enumerate(strides, 1):
        w, b = theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"]
        a = _Layer.apply(a, w, b, stride)  # type: ignore[no-untyped-call]
        yield a.transpose(1, 2)


def patches_of(a: Tensor, stride: int) -> tuple[Tensor, tuple[int, int]]:
    """The 3x3 patches (B, 9 c, m h' w') of a (B, c, m, h, w), and h', w'."""
    views = a.unfold(3, 3, stride).unfold(4, 3, stride)  # (B, c, m, h', w', 3, 3)
    patches = views.permute(0, 1, 5, 6, 2, 3, 4).reshape(len(a), 9 * a.shape[1], -1)
    return patches, (views.shape[3], views.shape[4])


def images_of(patches: Tensor, shape: torch.Size, stride: int) -> Tensor:
    """The transpose of `patches_of`: each value is added where it came from."""
    copies, c, m, h, w = shape
    each = patches.view(copies, 9 * c, m, -1).transpose(1, 2).flatten(0, 1)
    images = F.fold(each, (h, w), 3, stride=stride)
    return images.view(copies, m, c, h, w).transpose(1, 2)


class _Layer(torch.autograd.Function):
    """relu(w * a + b) of a (B, c, m, h, w), w (B, channels, c, 3, 3) and b (B, channels).

    In few kernels: what a step on one example costs is mostly how many there are.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, w: Tensor, b: Tensor, stride: int) -> Tensor:
        patches, sides = patches_of(a, stride)
        out = torch.baddbmm(b[:, :, None], w.flatten(2), patches).relu_()
        ctx.save_for_backward(a, w, b, patches, out)
        ctx.stride = stride
        return out.view(len(a), -1, a.shape[2], *sides)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a, w, b, patches, out = ctx.saved_tensors
        stride, needed = ctx.stride, ctx.needs_input_grad
        delta = gradient.reshape(out.shape) * (out > 0)
        if torch.is_grad_enabled():  # to be differentiated again
            linear = torch.baddbmm(b[:, :, None], w.flatten(2), patches_of(a, stride)[0])
            inputs = [t for t, need in zip((a, w, b), needed[:3], strict=True) if need]
            found = iter(torch.autograd.grad(linear, inputs, delta, create_graph=True))
            return (*(next(found) if need else None for need in needed[:3]), None)
        in_w = delta.bmm(patches.mT).view(w.shape)
        in_a = images_of(w.flatten(2).mT.bmm(delta), a.shape, stride) if needed[0] else None
        return in_a, in_w, delta.sum(2), None
