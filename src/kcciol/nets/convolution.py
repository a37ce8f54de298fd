"""The three products a convolution consists of, without padding, on channels-last tensors.

`product` is linear in x and in w; `input_grad` and `weight_grad` are its adjoints. They are called directly, not by
autograd, so that the encoder's derivatives of any order are made of these three alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.kernels import have_triton


def product(x: Tensor, w: Tensor, stride: int) -> Tensor:
    """(n, c, h, w) * (o, c, 3, 3) -> (n, o, h', w')."""
    return F.conv2d(x, w, stride=stride)


def product_bias_relu(x: Tensor, w: Tensor, b: Tensor, stride: int) -> Tensor:
    """relu(x * w + b); on a GPU one fused kernel."""
    if x.is_cuda and x.dtype == torch.bfloat16:
        return torch.cudnn_convolution_relu(x, w, b, (stride, stride), (0, 0), (1, 1), 1)
    return F.conv2d(x, w, b, stride=stride).relu_()


def input_grad(g: Tensor, w: Tensor, x: Tensor, stride: int) -> Tensor:
    """The adjoint in x: g (n, o, h', w') -> the shape of x."""
    return _backward(g, x, w, stride, (True, False))[0]


def weight_grad(g: Tensor, x: Tensor, w: Tensor, stride: int) -> Tensor:
    """The adjoint in w: g (n, o, h', w') and x -> the shape of w."""
    return _backward(g, x, w, stride, (False, True))[1]


def _backward(g: Tensor, x: Tensor, w: Tensor, stride: int, want: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    gx, gw, _ = torch.ops.aten.convolution_backward.default(
        g, x, w, None, [stride, stride], [0, 0], [1, 1], False, [0, 0], 1, [*want, False]
    )
    return gx, gw


def relu_grad(
    g: Tensor, output: Tensor, more: Tensor | None = None, bias: Tensor | None = None, sums: bool = False
) -> tuple[Tensor, Tensor | None]:
    """g + more + bias where the rectifier's output is positive, else zero; and when asked its sum for each channel.

    Such sums are the gradients of the biases. On a GPU it is one kernel: memory, not arithmetic, is what it costs.
    """
    if g.is_cuda and g.dtype in (torch.bfloat16, torch.float32) and have_triton():
        from kcciol.kernels import relu_triton

        last = torch.channels_last
        tensors = [t if t is None else t.contiguous(memory_format=last) for t in (g, output, more)]
        return relu_triton.relu_grad(tensors[0], tensors[1], tensors[2], bias, sums)  # type: ignore[arg-type]
    if more is not None:
        g = g + more
    if bias is not None:
        g = g + bias[:, None, None]
    result: Tensor = torch.ops.aten.threshold_backward.default(g, output, 0)
    return result, result.sum((0, 2, 3)) if sums else None
