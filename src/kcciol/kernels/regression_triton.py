"""The inner loop of regression on a GPU: steps of SGD on three layers, two kernels a step.

The plain form is `regression.network.learn`. A step depends on the one before, so what counts is how many kernels it
takes and how often it reads the weights. With h1 = relu(W1 z + b1), h2 = relu(W2 h1 + b2) and the answer w3 h2 + b3:

    _learn  some units of the first layer: from the errors of the step before, the gradient at their outputs and the
            update of W2's columns for them, then that of their rows of W1 and, tile by tile, h1 of this step; the
            update of w3 goes into a second buffer, as all read w3
    _apply  some units of the second layer: h2, and their part of the answer

The copies B lie along the grid. Sizes are constants to the compiler: only then it knows that rows begin at addresses
that take loads of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

Layer = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Tiles:
    """How a kernel is cut up: units of a program, and how much of the other side it takes at a time."""

    units: int = 32
    depth: int = 64
    warps: int = 4
    stages: int = 3


LEARN, APPLY = Tiles(), Tiles()


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _learn(  # type: ignore[no-untyped-def]
    Z, Y, W1, b1, H1, H2, Parts, W2, b2, w3, b3, w3_new, b3_new, alpha, t, T,
    d: tl.constexpr, h: tl.constexpr, PARTS: tl.constexpr, MANY: tl.constexpr,
    UPDATE: tl.constexpr, FORWARD: tl.constexpr, N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Finish step t - 1 (UPDATE) and begin step t (FORWARD). The answer comes in PARTS parts; MANY is a power of two
    not below."""
    copy, mine = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), mine < h
    first = tl.program_id(1) == 0
    W1 += copy.to(tl.int64) * h * d
    W2 += copy.to(tl.int64) * h * h
    Z += (copy.to(tl.int64) * T + t) * N * d
    H2 += copy * N * h
    rate = tl.load(alpha + copy)
    bias = tl.load(b1 + copy * h + mine, mask=some, other=0.0)
    at_mine = copy * N * h + rows[:, None] * h + mine[None, :]
    if UPDATE:
        part = tl.arange(0, MANY)
        parts = Parts + (copy * PARTS + part[:, None]) * N + rows[None, :]
        answer = tl.sum(tl.load(parts, mask=part[:, None] < PARTS, other=0.0), 0)
        shift = tl.load(b3 + copy)
        error = (answer + shift - tl.load(Y + (copy.to(tl.int64) * T + t - 1) * N + rows)) * (2.0 / N)
        if first:
            tl.store(b3_new + copy, shift - rate * tl.sum(error, 0))
        below = tl.load(H1 + at_mine, mask=some[None, :], other=0.0)  # (N, BH)
        gradient = tl.zeros((N, BH), tl.float32)
        for start in range(0, h, BD):
            units = start + tl.arange(0, BD)
            inside = units < h
            out = tl.load(H2 + rows[:, None] * h + units[None, :], mask=inside[None, :], other=0.0)
            last = tl.load(w3 + copy * h + units, mask=inside, other=0.0)
            delta = tl.where(out > 0, error[:, None] * last[None, :], 0.0)  # (N, BD)
            place = W2 + units[:, None] * h + mine[None, :]
            both = inside[:, None] & some[None, :]
            tile = tl.load(place, mask=both, other=0.0)
            gradient += tl.dot(delta, tile, input_precision=PRECISION)
            tile -= rate * tl.dot(tl.trans(delta), below, input_precision=PRECISION)
            tl.store(place, tile, mask=both)
            if first:
                old = tl.load(b2 + copy * h + units, mask=inside, other=0.0)
                tl.store(b2 + copy * h + units, old - rate * tl.sum(delta, 0), mask=inside)
                tl.store(w3_new + copy * h + units, last - rate * tl.sum(error[:, None] * out, 0), mask=inside)
        moved = tl.where(below > 0, gradient, 0.0) * rate
        bias -= tl.sum(moved, 0)
        tl.store(b1 + copy * h + mine, bias, mask=some)
        moved = tl.trans(moved)
    total = tl.zeros((N, BH), tl.float32)
    for start in range(0, d, BD):
        columns = start + tl.arange(0, BD)
        inside = columns < d
        place = W1 + mine[:, None] * d + columns[None, :]
        both = some[:, None] & inside[None, :]
        tile = tl.load(place, mask=both, other=0.0)
        if UPDATE:
            before = tl.load(Z - N * d + rows[:, None] * d + columns[None, :], mask=inside[None, :], other=0.0)
            tile -= tl.dot(moved, before, input_precision=PRECISION)
            tl.store(place, tile, mask=both)
        if FORWARD:
            z = tl.load(Z + rows[:, None] * d + columns[None, :], mask=inside[None, :], other=0.0)
            total += tl.dot(z, tl.trans(tile), input_precision=PRECISION)
    if FORWARD:
        tl.store(H1 + at_mine, tl.maximum(total + bias[None, :], 0.0), mask=some[None, :])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _apply(  # type: ignore[no-untyped-def]
    H1, W2, b2, w3, H2, Parts, h: tl.constexpr, PARTS: tl.constexpr,
    N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    copy, mine = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), mine < h
    W2 += copy.to(tl.int64) * h * h
    H1 += copy * N * h
    total = tl.zeros((N, BH), tl.float32)
    for start in range(0, h, BD):
        columns = start + tl.arange(0, BD)
        inside = columns < h
        x = tl.load(H1 + rows[:, None] * h + columns[None, :], mask=inside[None, :], other=0.0)
        tile = tl.load(W2 + mine[:, None] * h + columns[None, :], mask=some[:, None] & inside[None, :], other=0.0)
        total += tl.dot(x, tl.trans(tile), input_precision=PRECISION)
    out = tl.maximum(total + tl.load(b2 + copy * h + mine, mask=some, other=0.0)[None, :], 0.0)
    tl.store(H2 + copy * N * h + rows[:, None] * h + mine[None, :], out, mask=some[None, :])
    last = tl.load(w3 + copy * h + mine, mask=some, other=0.0)
    tl.store(Parts + (copy * PARTS + tl.program_id(1)) * N + rows, tl.sum(out * last[None, :], 1))


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
    parts = triton.cdiv(h, APPLY.units)
    h1, h2 = (z.new_empty(copies, n, h) for _ in range(2))
    answers = z.new_empty(copies, parts, n)
    z, y, rates = z.contiguous(), y.contiguous(), alpha.reshape(copies).contiguous()
    both = {"h": h, "PARTS": parts, "N": n, "PRECISION": "ieee" if exact else "tf32"}
    for t in range(T + 1):
        old, new = (t + 1) % 2, t % 2
        _learn[(copies, triton.cdiv(h, LEARN.units))](
            z, y, w1, b1, h1, h2, answers, w2, b2, w3[old], b3[old], w3[new], b3[new], rates, t, T,
            d=d, MANY=triton.next_power_of_2(parts), UPDATE=t > 0, FORWARD=t < T,
            BH=LEARN.units, BD=LEARN.depth, num_warps=LEARN.warps, num_stages=LEARN.stages, **both,
        )  # fmt: skip
        if t < T:
            _apply[(copies, parts)](
                h1, w2, b2, w3[new], h2, answers,
                BH=APPLY.units, BD=APPLY.depth, num_warps=APPLY.warps, num_stages=APPLY.stages, **both,
            )  # fmt: skip
    end = T % 2
    return [(w1, b1), (w2, b2), (w3[end].view(copies, 1, h), b3[end].view(copies, 1))]
