"""Adam in one pass over memory: `optim.update_` and `optim.adam_copies_`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _kernel(Theta, gradient, m, v, scale, gamma, clamp, n, beta1, beta2, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    w = tl.load(Theta + at, mask=inside)
    g = tl.load(gradient + at, mask=inside)
    g += gamma * ((w > 0).to(tl.float32) - (w < 0).to(tl.float32))
    g = tl.maximum(g, -clamp, propagate_nan=tl.PropagateNan.ALL)  # a clamp must not hide that something went wrong
    g = tl.minimum(g, clamp, propagate_nan=tl.PropagateNan.ALL)
    m_new = tl.load(m + at, mask=inside)
    m_new += (1 - beta1) * (g - m_new)
    v_new = beta2 * tl.load(v + at, mask=inside) + (1 - beta2) * g * g
    w -= tl.load(scale) * m_new / (tl.sqrt(v_new) * tl.load(scale + 1) + eps)
    tl.store(m + at, m_new, mask=inside)
    tl.store(v + at, v_new, mask=inside)
    tl.store(Theta + at, w, mask=inside)


def update_(
    Theta: Tensor,
    gradient: Tensor,
    m: Tensor,
    v: Tensor,
    scale: Tensor,
    gamma: float,
    clamp: float,
    constants: tuple[float, float, float],
) -> None:
    """See `optim.update_`."""
    n = Theta.numel()
    limit = clamp if clamp else float("inf")
    _kernel[(triton.cdiv(n, _BLOCK),)](
        Theta, gradient, m, v, scale, gamma, limit, n, *constants, BLOCK=_BLOCK, num_warps=4
    )


@triton.jit(do_not_specialize=["n"])  # type: ignore
def _copies(  # type: ignore
    w, g, m, v, rate, w_stride, g_stride, m_stride, v_stride, n, first, second,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    copy = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    w += copy * w_stride + at
    m += copy * m_stride + at
    v += copy * v_stride + at
    gradient = tl.load(g + copy * g_stride + at, mask=inside)
    mean = tl.load(m, mask=inside)
    mean += (1 - BETA1) * (gradient - mean)
    square = BETA2 * tl.load(v, mask=inside) + (1 - BETA2) * gradient * gradient
    step = tl.load(rate + copy) * first
    tl.store(m, mean, mask=inside)
    tl.store(v, square, mask=inside)
    tl.store(w, tl.load(w, mask=inside) - step * mean / (tl.sqrt(square * second) + EPS), mask=inside)


def step_copies_(
    w: Tensor, gradient: Tensor, m: Tensor, v: Tensor, rate: Tensor, t: int, constants: tuple[float, float, float]
) -> None:
    """The t-th step of Adam on copies (B, ...) with a rate (B,) each, in float32. Each of w's, m's and v's copies lies
    in one piece, in an order that is the same for all three."""
    beta1, beta2, eps = constants
    n = w.numel() // len(w)
    if _order(gradient) != _order(w):
        gradient = torch.empty_like(w).copy_(gradient)
    assert all(_order(t) == _order(w) and t.dtype == torch.float32 for t in (gradient, m, v))
    assert rate.is_contiguous()
    assert 1 + sum((k - 1) * s for k, s in zip(w.shape[1:], w.stride()[1:], strict=True)) == n
    _copies[(len(w), triton.cdiv(n, _BLOCK))](
        w, gradient, m, v, rate, w.stride(0), gradient.stride(0), m.stride(0), v.stride(0), n,
        1 / (1 - beta1**t), 1 / (1 - beta2**t), BETA1=beta1, BETA2=beta2, EPS=eps, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip


def _order(tensor: Tensor) -> list[int]:
    """How a copy lies in memory: the strides of its dimensions, where they matter."""
    return [stride for size, stride in zip(tensor.shape[1:], tensor.stride()[1:], strict=True) if size > 1]
