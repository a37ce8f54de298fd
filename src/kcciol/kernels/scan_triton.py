"""The scans of `scan.py` as Triton kernels: one block for each trajectory, all classes of an example at once."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _softmax_kernel(P, G, y, out, alpha, k, c, P_t, P_k, G_t, G_k, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    t = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < c
    P += t * P_t
    G += t * G_t
    out += t * k * c
    y += t * k
    for j in range(0, k):
        o = tl.load(P + j * P_k + cols, mask=inside, other=-float("inf"))
        for i in range(0, j):
            p_i = tl.load(out + i * c + cols, mask=inside, other=0.0)
            d_i = p_i - tl.where(cols == tl.load(y + i), 1.0, 0.0)
            o -= alpha * tl.load(G + j * G_k + i) * d_i
        e = tl.exp(o - tl.max(o, 0))
        tl.store(out + j * c + cols, e / tl.sum(e, 0), mask=inside)
        tl.debug_barrier()  # the next step reads what this one wrote


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _jacobian_kernel(  # type: ignore[no-untyped-def]
    start,
    G,
    p,
    offset,
    out,
    alpha,
    k,
    c,
    start_t,
    start_k,
    G_t,
    G_k,
    REVERSE: tl.constexpr,
    OFFSET: tl.constexpr,
    BLOCK: tl.constexpr,
):
    t = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < c
    start += t * start_t
    G += t * G_t
    p += t * k * c
    offset += t * k * c
    out += t * k * c
    for n in range(0, k):
        j = k - 1 - n if REVERSE else n
        x = tl.load(start + j * start_k + cols, mask=inside, other=0.0)
        for m in range(0, n):
            i = k - 1 - m if REVERSE else m
            x -= alpha * tl.load(G + j * G_k + i) * tl.load(out + i * c + cols, mask=inside, other=0.0)
        p_j = tl.load(p + j * c + cols, mask=inside, other=0.0)
        x = p_j * (x - tl.sum(p_j * x, 0))
        if OFFSET:
            x += tl.load(offset + j * c + cols, mask=inside, other=0.0)
        tl.store(out + j * c + cols, x, mask=inside)
        tl.debug_barrier()  # the next step reads what this one wrote


def _options(c: int) -> dict[str, Any]:
    block = triton.next_power_of_2(c)
    return {"BLOCK": block, "num_warps": max(1, min(16, block // 128))}


def softmax_scan(P: Tensor, G: Tensor, y: Tensor, alpha: float) -> Tensor:
    """See `scan.softmax_scan`. P and G may be slices: their last dimension must be contiguous."""
    t, k, c = P.shape
    assert P.stride(2) == G.stride(2) == 1
    out = torch.empty(t, k, c, dtype=P.dtype, device=P.device)
    y = y.contiguous()
    _softmax_kernel[(t,)](P, G, y, out, alpha, k, c, P.stride(0), P.stride(1), G.stride(0), G.stride(1), **_options(c))
    return out


def jacobian_scan(start: Tensor, G: Tensor, p: Tensor, alpha: float, reverse: bool, offset: Tensor | None) -> Tensor:
    """See `scan.jacobian_scan`."""
    t, k, c = p.shape
    assert start.stride(2) == G.stride(2) == 1
    p = p.contiguous()
    out = torch.empty_like(p)
    _jacobian_kernel[(t,)](
        start,
        G,
        p,
        p if offset is None else offset.contiguous(),
        out,
        alpha,
        k,
        c,
        start.stride(0),
        start.stride(1),
        G.stride(0),
        G.stride(1),
        REVERSE=reverse,
        OFFSET=offset is not None,
        **_options(c),
    )
    return out
