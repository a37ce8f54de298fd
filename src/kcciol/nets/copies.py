"""The encoder's convolutions for copies that each have a theta of their own; autograd can go through them, twice.

Three ways to the same maps: `grouped` is the definition, one convolution in which each copy is a group of channels;
`by_kernels` is how a GPU runs it; `by_patches`, a matrix product over 3x3 patches for each copy, is for a GPU without
Triton or before Ampere, and what the second derivatives of `by_kernels` go through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.kernels import have_triton


def maps(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    """The output of each convolution, (B, m, channels, h, w), of images x (B, m, c, h, w) scaled to 0..1.

    theta's tensors are (B, ...).
    """
    if not x.is_cuda:
        return grouped(theta, x, strides)
    able = have_triton() and x.dtype == torch.float32 and torch.cuda.get_device_capability(x.device) >= (8, 0)
    return (by_kernels if able else by_patches)(theta, x, strides)


def grouped(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    copies = len(x)
    a = x.transpose(0, 1).flatten(1, 2)  # (m, B c, h, w)
    for layer, stride in enumerate(strides, 1):
        w, b = theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"]
        a = F.relu(F.conv2d(a, w.flatten(0, 1), b.flatten(), stride, groups=copies))
        yield a.view(len(a), copies, -1, *a.shape[2:]).transpose(0, 1)


def by_patches(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    a = x
    for layer, stride in enumerate(strides, 1):
        a = _linear(a, theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"], stride).relu()
        yield a


def by_kernels(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    a = x.permute(0, 1, 3, 4, 2).contiguous()
    for layer, stride in enumerate(strides, 1):
        w, b = theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"]
        a = _Layer.apply(a, w, b, stride)  # type: ignore[no-untyped-call]
        yield a.permute(0, 1, 4, 2, 3)


def inputs_last(weights: Tensor) -> Tensor:
    """Weights (B, outputs, inputs, 3, 3) as they are, but with the inputs last in memory, as the kernels read them."""
    return _in_memory(weights).permute(0, 1, 4, 2, 3)


def _linear(a: Tensor, w: Tensor, b: Tensor, stride: int) -> Tensor:
    """w * a + b (B, m, channels, h', w') of a (B, m, c, h, w)."""
    views = a.unfold(3, 3, stride).unfold(4, 3, stride)  # (B, m, c, h', w', 3, 3)
    patches = views.permute(0, 2, 5, 6, 1, 3, 4).reshape(len(a), 9 * a.shape[2], -1)
    out = torch.baddbmm(b[:, :, None], w.flatten(2), patches)
    return out.view(len(a), -1, a.shape[1], *views.shape[3:5]).transpose(1, 2)


class _Layer(torch.autograd.Function):
    """relu(w * a + b) of a (B, m, h, w, c), w (B, channels, c, 3, 3) and b (B, channels)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, w: Tensor, b: Tensor, stride: int) -> Tensor:
        from kcciol.kernels import copies_triton  # here, because it needs Triton

        out = copies_triton.forward(a, _in_memory(w), b.contiguous(), stride)
        ctx.save_for_backward(a, w, b, out)
        ctx.stride = stride
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from kcciol.kernels import copies_triton

        a, w, b, out = ctx.saved_tensors
        stride, needed = ctx.stride, ctx.needs_input_grad
        if torch.is_grad_enabled():  # to be differentiated again
            linear = _linear(a.permute(0, 1, 4, 2, 3), w, b, stride)
            delta = (gradient * (out > 0)).permute(0, 1, 4, 2, 3)
            inputs = [t for t, need in zip((a, w, b), needed[:3], strict=True) if need]
            found = iter(torch.autograd.grad(linear, inputs, delta, create_graph=True))
            return (*(next(found) if need else None for need in needed[:3]), None)
        gradient = gradient.contiguous()
        in_a, in_w, in_b = copies_triton.backward(a, _in_memory(w), out, gradient, stride, needed[0], needed[1])
        return in_a, None if in_w is None else in_w.permute(0, 1, 4, 2, 3), in_b, None


def _in_memory(w: Tensor) -> Tensor:
    """(B, channels, 3, 3, c); nothing is moved when w's inputs are last in memory."""
    return w.permute(0, 1, 3, 4, 2).contiguous()
