"""The inner loop of regression on a GPU: steps of SGD on three layers, three kernels a step.

The plain form is `regression.network.learn`. A step depends on the one before, so what counts is how many kernels it
takes and how often it reads the weights. With h1 = relu(W1 z + b1), h2 = relu(W2 h1 + b2) and the answer w3 h2 + b3:

    first   update W1 by the step before, tile by tile, and compute h1 of this step from the tile at hand
    second  h2
    third   the error, its gradients at h2 and h1, the update of W2; that of w3 into a second buffer, as all read w3

The copies B lie along the grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

Layer = tuple[Tensor, Tensor]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _first(  # type: ignore[no-untyped-def]
    Z, W, b, H, D, alpha, t, T, d, h,
    UPDATE: tl.constexpr, FORWARD: tl.constexpr, N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    copy, units = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), units < h
    W += copy.to(tl.int64) * h * d
    Z += (copy.to(tl.int64) * T + t) * N * d
    rate = tl.load(alpha + copy)
    bias = tl.load(b + copy * h + units, mask=some, other=0.0)
    at_units = copy * N * h + rows[:, None] * h + units[None, :]
    if UPDATE:
        delta = tl.load(D + at_units, mask=some[None, :], other=0.0) * rate  # (N, BH)
        bias -= tl.sum(delta, 0)
        tl.store(b + copy * h + units, bias, mask=some)
        delta = tl.trans(delta)
    total = tl.zeros((N, BH), tl.float32)
    for start in range(0, d, BD):
        columns = start + tl.arange(0, BD)
        inside = columns < d
        place = W + units[:, None] * d + columns[None, :]
        both = some[:, None] & inside[None, :]
        tile = tl.load(place, mask=both, other=0.0)
        if UPDATE:
            before = tl.load(Z - N * d + rows[:, None] * d + columns[None, :], mask=inside[None, :], other=0.0)
            tile -= tl.dot(delta, before, input_precision=PRECISION)
            tl.store(place, tile, mask=both)
        if FORWARD:
            z = tl.load(Z + rows[:, None] * d + columns[None, :], mask=inside[None, :], other=0.0)
            total += tl.dot(z, tl.trans(tile), input_precision=PRECISION)
    if FORWARD:
        tl.store(H + at_units, tl.maximum(total + bias[None, :], 0.0), mask=some[None, :])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _second(  # type: ignore[no-untyped-def]
    H1, W, b, H2, h, N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    copy, units = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), units < h
    W += copy.to(tl.int64) * h * h
    total = tl.zeros((N, BH), tl.float32)
    for start in range(0, h, BD):
        columns = start + tl.arange(0, BD)
        inside = columns < h
        x = tl.load(H1 + copy * N * h + rows[:, None] * h + columns[None, :], mask=inside[None, :], other=0.0)
        tile = tl.load(W + units[:, None] * h + columns[None, :], mask=some[:, None] & inside[None, :], other=0.0)
        total += tl.dot(x, tl.trans(tile), input_precision=PRECISION)
    bias = tl.load(b + copy * h + units, mask=some, other=0.0)
    at_units = copy * N * h + rows[:, None] * h + units[None, :]
    tl.store(H2 + at_units, tl.maximum(total + bias[None, :], 0.0), mask=some[None, :])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _third(  # type: ignore[no-untyped-def]
    Y, H1, H2, W, b, w3, b3, w3_new, b3_new, D, alpha, t, T, h,
    N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    copy, inputs = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), inputs < h
    first = tl.program_id(1) == 0
    W += copy.to(tl.int64) * h * h
    rate, shift = tl.load(alpha + copy), tl.load(b3 + copy)
    answer = tl.zeros((N,), tl.float32)
    for start in range(0, h, BD):
        units = start + tl.arange(0, BD)
        inside = units < h
        out = tl.load(H2 + copy * N * h + rows[:, None] * h + units[None, :], mask=inside[None, :], other=0.0)
        answer += tl.sum(out * tl.load(w3 + copy * h + units, mask=inside, other=0.0)[None, :], 1)
    y = tl.load(Y + (copy.to(tl.int64) * T + t) * N + rows)
    error = (answer + shift - y) * (2.0 / N)
    if first:
        tl.store(b3_new + copy, shift - rate * tl.sum(error, 0))
    at_inputs = copy * N * h + rows[:, None] * h + inputs[None, :]
    below = tl.load(H1 + at_inputs, mask=some[None, :], other=0.0)  # (N, BH)
    gradient = tl.zeros((N, BH), tl.float32)
    for start in range(0, h, BD):
        units = start + tl.arange(0, BD)
        inside = units < h
        out = tl.load(H2 + copy * N * h + rows[:, None] * h + units[None, :], mask=inside[None, :], other=0.0)
        last = tl.load(w3 + copy * h + units, mask=inside, other=0.0)
        delta = tl.where(out > 0, error[:, None] * last[None, :], 0.0)  # (N, BD)
        place = W + units[:, None] * h + inputs[None, :]
        both = inside[:, None] & some[None, :]
        tile = tl.load(place, mask=both, other=0.0)
        gradient += tl.dot(delta, tile, input_precision=PRECISION)
        tile -= rate * tl.dot(tl.trans(delta), below, input_precision=PRECISION)
        tl.store(place, tile, mask=both)
        if first:
            bias = tl.load(b + copy * h + units, mask=inside, other=0.0)
            tl.store(b + copy * h + units, bias - rate * tl.sum(delta, 0), mask=inside)
            tl.store(w3_new + copy * h + units, last - rate * tl.sum(error[:, None] * out, 0), mask=inside)
    tl.store(D + at_inputs, tl.where(below > 0, gradient, 0.0), mask=some[None, :])


def fits(W: Sequence[Layer], y: Tensor) -> bool:
    """Whether the kernels can run it: three layers, batches of a power of two."""
    n = y.shape[2]
    square = len(W) == 3 and W[1][0].shape[1] == W[1][0].shape[2] and W[2][0].shape[1] == 1
    return square and n >= 16 and n & (n - 1) == 0


def learn(W: Sequence[Layer], z: Tensor, y: Tensor, alpha: Tensor, exact: bool = False) -> list[Layer]:
    """W after one step on each of T batches, z (B, T, n, d), y (B, T, n), alpha (B, 1, 1); without derivatives.

    exact: products in float32; else their operands are rounded to TF32.
    """
    assert fits(W, y)
    copies, T, n, d = z.shape
    h = W[0][0].shape[1]
    (w1, b1), (w2, b2), (last, shift) = [(w.clone(), b.clone()) for w, b in W]  # clones are contiguous
    w3 = [last.view(copies, h), torch.empty_like(last.view(copies, h))]
    b3 = [shift.view(copies), torch.empty_like(shift.view(copies))]
    h1, h2, delta = (z.new_empty(copies, n, h) for _ in range(3))
    z, y, rates = z.contiguous(), y.contiguous(), alpha.reshape(copies).contiguous()
    tile, precision = 32, "ieee" if exact else "tf32"
    grid = (copies, triton.cdiv(h, tile))
    for t in range(T + 1):
        _first[grid](
            z, w1, b1, h1, delta, rates, t, T, d, h,
            UPDATE=t > 0, FORWARD=t < T, N=n, BH=tile, BD=64, PRECISION=precision,
        )  # fmt: skip
        if t < T:
            old, new = t % 2, 1 - t % 2
            _second[grid](h1, w2, b2, h2, h, N=n, BH=tile, BD=64, PRECISION=precision)
            _third[grid](
                y, h1, h2, w2, b2, w3[old], b3[old], w3[new], b3[new], delta, rates, t, T, h,
                N=n, BH=tile, BD=64, PRECISION=precision,
            )  # fmt: skip
    end = T % 2
    return [(w1, b1), (w2, b2), (w3[end].view(copies, 1, h), b3[end].view(copies, 1))]
