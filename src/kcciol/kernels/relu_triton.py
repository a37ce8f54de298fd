"""`nets.convolution.relu_grad` and its sums in one pass over memory."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ELEMENTS = 8192  # of a block: enough rows to be worth a partial sum


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _kernel(  # type: ignore[no-untyped-def]
    g, more, bias, output, result, sums, rows, channels,
    MORE: tl.constexpr, BIAS: tl.constexpr, SUMS: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, CHANNELS)
    inside = (row < rows)[:, None] & (column < channels)[None, :]
    at = row[:, None] * channels + column[None, :]
    value = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    if MORE:
        value += tl.load(more + at, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + column, mask=column < channels, other=0.0).to(tl.float32)[None, :]
    value = tl.where(tl.load(output + at, mask=inside, other=0.0) > 0, value, 0.0)
    tl.store(result + at, value.to(result.dtype.element_ty), mask=inside)
    if SUMS:
        tl.store(sums + tl.program_id(0) * channels + column, tl.sum(value, 0), mask=column < channels)


def relu_grad(
    g: Tensor, output: Tensor, more: Tensor | None, bias: Tensor | None, sums: bool
) -> tuple[Tensor, Tensor | None]:
    """See `nets.convolution.relu_grad`; all (n, c, h, w), channels last in memory. Sums have a fixed order."""
    n, channels, height, width = g.shape
    rows, block = n * height * width, triton.next_power_of_2(channels)
    per_block = max(1, _ELEMENTS // block)
    blocks = triton.cdiv(rows, per_block)
    result = torch.empty_like(output)
    partial = torch.empty(blocks if sums else 1, channels, device=g.device)
    _kernel[(blocks,)](
        g, g if more is None else more, g if bias is None else bias, output, result, partial, rows, channels,
        MORE=more is not None, BIAS=bias is not None, SUMS=sums, ROWS=per_block, CHANNELS=block, num_warps=8,
    )  # fmt: skip
    return result, partial.sum(0) if sums else None
