"""The encoder's convolutions for copies that each have a theta of their own; autograd differentiates them.

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
    a = x.permute(0, 1, 3, 4, 2)  # channels last
    for layer, stride in enumerate(strides, 1):
        w, b = theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"]
        a = _Layer.apply(a, w, b, stride)  # type: ignore[no-untyped-call]
        yield a.permute(0, 1, 4, 2, 3)


def copies_of(value: Tensor, count: int, matrices: bool) -> Tensor:
    """So many copies (B, ...) of a tensor of theta. matrices: in memory a convolution's weights lie as `matrix_of` has
    them, so that `by_patches` uses them, and makes their gradients, without moving them about."""
    if value.ndim != 4 or not matrices:
        return value.expand(count, *value.shape).clone()
    matrix = value.permute(2, 3, 1, 0)  # (3, 3, c, channels)
    return matrix.expand(count, *matrix.shape).clone(memory_format=torch.contiguous_format).permute(0, 4, 3, 1, 2)


def patches_of(a: Tensor, stride: int) -> tuple[Tensor, tuple[int, int]]:
    """The 3x3 patches (B, m h' w', 9 c) of a (B, m, h, w, c), and h', w'."""
    views = a.unfold(2, 3, stride).unfold(3, 3, stride)  # (B, m, h', w', c, 3, 3)
    return views.permute(0, 1, 2, 3, 5, 6, 4).reshape(len(a), -1, 9 * a.shape[-1]), (views.shape[2], views.shape[3])


def matrix_of(w: Tensor) -> Tensor:
    """(B, channels, c, 3, 3) -> (B, 9 c, channels)."""
    return w.permute(0, 3, 4, 2, 1).reshape(len(w), -1, w.shape[1])


class _Layer(torch.autograd.Function):
    """relu(w * a + b) of a (B, m, h, w, c), w (B, channels, c, 3, 3) and b (B, channels).

    The gradient in a is gathered from its patches slice by slice, which is quicker than what autograd makes of it.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, w: Tensor, b: Tensor, stride: int) -> Tensor:
        (patches, sides), matrix = patches_of(a, stride), matrix_of(w)
        out = torch.baddbmm(b[:, None], patches, matrix).relu_()
        ctx.save_for_backward(a, w, b, patches, matrix, out)
        ctx.sides, ctx.stride = sides, stride
        return out.view(*a.shape[:2], *sides, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a, w, b, patches, matrix, out = ctx.saved_tensors
        (height, width), stride, needed = ctx.sides, ctx.stride, ctx.needs_input_grad
        delta = gradient.reshape(out.shape) * (out > 0)
        if torch.is_grad_enabled():  # to be differentiated again
            linear = torch.baddbmm(b[:, None], patches_of(a, stride)[0], matrix_of(w))
            inputs = [t for t, need in zip((a, w, b), needed[:3], strict=True) if need]
            found = iter(torch.autograd.grad(linear, inputs, delta, create_graph=True))
            return (*(next(found) if need else None for need in needed[:3]), None)
        in_w = patches.mT.bmm(delta).view(len(a), 3, 3, a.shape[-1], -1).permute(0, 4, 3, 1, 2)
        if not needed[0]:
            return None, in_w, delta.sum(1), None
        of_patches = delta.bmm(matrix.mT).view(*a.shape[:2], height, width, 3, 3, -1)
        in_a = torch.zeros(a.shape, dtype=a.dtype, device=a.device)
        for y in range(3):
            for x in range(3):
                rows, columns = slice(y, y + stride * height, stride), slice(x, x + stride * width, stride)
                in_a[:, :, rows, columns] += of_patches[..., y, x, :]
        return in_a, in_w, delta.sum(1), None
