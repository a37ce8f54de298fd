"""The encoder's convolutions for copies that each have a theta of their own; autograd can go through them, twice.

Three ways to the same maps: `grouped` is the definition, one convolution in which each copy is a group of channels;
`by_kernels` is how a GPU runs it; `by_patches`, a matrix product over 3x3 patches for each copy, is for a GPU without
Triton or before Ampere.
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
    return (by_kernels if kernels_can(x) else by_patches)(theta, x, strides)


def kernels_can(x: Tensor) -> bool:
    """Whether images are where the kernels run, and of their type."""
    able = x.is_cuda and have_triton() and x.dtype == torch.float32
    return able and torch.cuda.get_device_capability(x.device) >= (8, 0)


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


def single_gradients(
    theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...], gradient: Tensor
) -> Iterator[Tensor]:
    """The gradients (B, m, numbers) of single images in each of theta's tensors: the last layer's weights, its bias,
    and so on. By the kernels, from that at the last map, (B, m, h, w, channels)."""
    from kcciol.kernels import copies_triton

    weights = [_in_memory(theta[f"conv{layer}.weight"]) for layer in range(1, len(strides) + 1)]
    seen = [x.permute(0, 1, 3, 4, 2).contiguous()]
    for layer, (w, stride) in enumerate(zip(weights, strides, strict=True), 1):
        seen.append(copies_triton.forward(seen[-1], w, theta[f"conv{layer}.bias"].contiguous(), stride))
    for w, stride, a, out in list(zip(weights, strides, seen[:-1], seen[1:], strict=True))[::-1]:
        delta = torch.where(out > 0, gradient, 0.0).contiguous()
        alone, of_alone = (t.flatten(0, 1)[:, None] for t in (a, delta))  # each image a copy of its own
        yield copies_triton.in_weights(alone, of_alone, stride).view(*x.shape[:2], -1)
        yield delta.sum((2, 3))
        if a is not seen[0]:
            gradient = copies_triton.in_images(delta, w, (a.shape[2], a.shape[3]), stride)


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
        ctx.save_for_backward(a, w, out)
        ctx.stride = stride
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a, w, out = ctx.saved_tensors
        to_images, to_weights = ctx.needs_input_grad[:2]
        return *_Back.apply(gradient, a, w, out, ctx.stride, to_images, to_weights), None  # type: ignore[no-untyped-call]


class _Back(torch.autograd.Function):
    """The way back through `_Layer`, which is linear in the gradient, in a and in w: so is its own way back."""

    @staticmethod
    def forward(
        ctx: Any, gradient: Tensor, a: Tensor, w: Tensor, out: Tensor, stride: int, to_images: bool, to_weights: bool
    ) -> tuple[Tensor | None, ...]:
        from kcciol.kernels import copies_triton

        gradient = gradient.contiguous()
        in_a, in_w, in_b = copies_triton.backward(a, _in_memory(w), out, gradient, stride, to_images, to_weights)
        ctx.save_for_backward(gradient, a, w, out)
        ctx.stride = stride
        ctx.set_materialize_grads(False)
        return in_a, None if in_w is None else in_w.permute(0, 1, 4, 2, 3), in_b

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, no-untyped-call, unused-ignore]
    def backward(ctx: Any, to_a: Tensor | None, to_w: Tensor | None, to_b: Tensor | None) -> tuple[Tensor | None, ...]:
        from kcciol.kernels import copies_triton

        gradient, a, w, out = ctx.saved_tensors
        stride, needed = ctx.stride, ctx.needs_input_grad
        delta = torch.where(out > 0, gradient, 0.0)
        found, in_a, in_w = torch.zeros_like(out), None, None
        zero, size = w.new_zeros(w.shape[:2]), (a.shape[2], a.shape[3])
        if to_w is not None:
            found += copies_triton.forward(a, _in_memory(to_w), zero, stride, relu=False)
            in_a = copies_triton.in_images(delta, _in_memory(to_w), size, stride) if needed[1] else None
        if to_b is not None:
            found += to_b[:, None, None, None]
        if to_a is not None:
            to_a = to_a.contiguous()
            found += copies_triton.forward(to_a, _in_memory(w), zero, stride, relu=False)
            in_w = copies_triton.in_weights(to_a, delta, stride).permute(0, 1, 4, 2, 3) if needed[2] else None
        return torch.where(out > 0, found, 0.0), in_a, in_w, None, None, None, None


def _in_memory(w: Tensor) -> Tensor:
    """(B, channels, 3, 3, c); nothing is moved when w's inputs are last in memory."""
    return w.permute(0, 1, 3, 4, 2).contiguous()
