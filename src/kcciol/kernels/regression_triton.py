"""The inner loop of regression on a GPU: steps of SGD on three layers, two kernels a step.

The plain form is `regression.network.learn`. A step depends on the one before, so what counts is how many kernels it
takes and how much each reads. With h1 = relu(W1 z + b1), h2 = relu(W2 h1 + b2) and the answer w3 h2 + b3:

    _learn  some units of the first layer: from the errors of the step before, the gradient at their outputs and the
            update of W2's columns for them, then h1 of this step; the update of w3 goes into a second buffer, as all
            read w3
    _apply  some units of the second layer: h2, and their part of the answer

W1, most of the weights, is left alone for a block of steps. With A_j the rate times the gradient at the first layer's
outputs in step j of the block,

    W1_t z_t + b1_t = (W1 z_t + b1) - sum over j < t of (<z_t, z_j> + 1) A_j,

where the first term and the products of features are known before the block begins, for all its steps at once; at its
end W1 -= sum over j of A_j z_j. The copies B lie along the grid. Sizes are constants to the compiler: only then it
knows that rows begin at addresses that take loads of 16 bytes.

To go back through it (`regression_back_triton`), all of h1, h2, the errors and A is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


@dataclass(frozen=True)
class Kept:
    """What T steps of C copies leave behind for the way back."""

    h1: Tensor  # (C, T, n, h)
    h2: Tensor
    errors: Tensor  # (C, T, n), the gradient at the answer
    moved: Tensor  # (C, blocks, K, h), A, of the K examples of a block
    products: Tensor  # (C, blocks, K * K)


LEARN, APPLY = Tiles(), Tiles()
BLOCKS = (8, 4, 2, 1)  # steps that W1 is left alone for: the first that divides their number, with not more than
WIDEST = 256  # examples, whose products with each other must fit into a program's memory


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _learn(  # type: ignore[no-untyped-def]
    P, G, A, Y, E, H1, H2, Parts, W2, b2, w3, b3, w3_new, b3_new, alpha, g_stride, t, T, slots, moves,
    h: tl.constexpr, PARTS: tl.constexpr, MANY: tl.constexpr, STEPS: tl.constexpr,
    UPDATE: tl.constexpr, FORWARD: tl.constexpr, KEEP: tl.constexpr, N: tl.constexpr, BH: tl.constexpr,
    BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Finish step t - 1 (UPDATE) and begin step t (FORWARD). The answer comes in PARTS parts; MANY is a power of two
    not below. P and G are of the block that both steps lie in, of STEPS steps. H1 and H2 have room for `slots` steps,
    A for `moves`, the latest; errors are written down if they are to be kept."""
    copy, mine = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), mine < h
    first = tl.program_id(1) == 0
    W2 += copy.to(tl.int64) * h * h
    P += copy.to(tl.int64) * STEPS * N * h
    G += copy.to(tl.int64) * g_stride
    before = (copy.to(tl.int64) * slots + (t - 1) % slots) * N * h  # of the step before
    at_mine = rows[:, None] * h + mine[None, :]
    now = t % STEPS  # places of steps in the block
    last_place = (t + STEPS - 1) % STEPS
    if UPDATE:
        rate = tl.load(alpha + copy)
        part = tl.arange(0, MANY)
        parts = Parts + (copy * PARTS + part[:, None]) * N + rows[None, :]
        answer = tl.sum(tl.load(parts, mask=part[:, None] < PARTS, other=0.0), 0)
        shift = tl.load(b3 + copy)
        error = (answer + shift - tl.load(Y + (copy.to(tl.int64) * T + t - 1) * N + rows)) * (2.0 / N)
        if first:
            tl.store(b3_new + copy, shift - rate * tl.sum(error, 0))
            if KEEP:
                tl.store(E + (copy.to(tl.int64) * T + t - 1) * N + rows, error)
        below = tl.load(H1 + before + at_mine, mask=some[None, :], other=0.0)  # (N, BH)
        gradient = tl.zeros((N, BH), tl.float32)
        for start in range(0, h, BD):
            units = start + tl.arange(0, BD)
            inside = units < h
            out = tl.load(H2 + before + rows[:, None] * h + units[None, :], mask=inside[None, :], other=0.0)
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
        tl.store(A + (copy.to(tl.int64) * moves + (t - 1) % moves) * N * h + at_mine, moved, mask=some[None, :])
    if FORWARD:
        total = tl.load(P + (now * N + rows)[:, None] * h + mine[None, :], mask=some[None, :], other=0.0)
        if UPDATE:
            g = G + (now * N + rows)[:, None] * (STEPS * N)
            near = tl.load(g + (last_place * N + rows)[None, :])
            total -= tl.dot(near, moved, input_precision=PRECISION)
            if STEPS > 2:
                steps = tl.arange(0, STEPS * N)
                sooner = steps < last_place * N
                far = tl.load(g + steps[None, :], mask=sooner[None, :], other=0.0)
                mask = sooner[:, None] & some[None, :]
                begin = (copy.to(tl.int64) * moves + (t - now) % moves) * N * h
                a = A + begin + steps[:, None] * h + mine[None, :]
                a = tl.load(a, mask=mask, other=0.0)
                total -= tl.dot(far, a, input_precision=PRECISION)
        tl.store(
            H1 + (copy.to(tl.int64) * slots + t % slots) * N * h + at_mine, tl.maximum(total, 0.0), mask=some[None, :]
        )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _apply(  # type: ignore[no-untyped-def]
    H1, W2, b2, w3, H2, Parts, t, slots, h: tl.constexpr, PARTS: tl.constexpr,
    N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    copy, mine = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), mine < h
    W2 += copy.to(tl.int64) * h * h
    H1 += (copy.to(tl.int64) * slots + t % slots) * N * h
    H2 += (copy.to(tl.int64) * slots + t % slots) * N * h
    total = tl.zeros((N, BH), tl.float32)
    for start in range(0, h, BD):
        columns = start + tl.arange(0, BD)
        inside = columns < h
        x = tl.load(H1 + rows[:, None] * h + columns[None, :], mask=inside[None, :], other=0.0)
        tile = tl.load(W2 + mine[:, None] * h + columns[None, :], mask=some[:, None] & inside[None, :], other=0.0)
        total += tl.dot(x, tl.trans(tile), input_precision=PRECISION)
    out = tl.maximum(total + tl.load(b2 + copy * h + mine, mask=some, other=0.0)[None, :], 0.0)
    tl.store(H2 + rows[:, None] * h + mine[None, :], out, mask=some[None, :])
    last = tl.load(w3 + copy * h + mine, mask=some, other=0.0)
    tl.store(Parts + (copy * PARTS + tl.program_id(1)) * N + rows, tl.sum(out * last[None, :], 1))


def fits(W: Sequence[Layer], y: Tensor) -> bool:
    """Whether the kernels can run it: three layers, batches of a power of two that are not too large."""
    n = y.shape[2]
    square = len(W) == 3 and W[1][0].shape[1] == W[1][0].shape[2] and W[2][0].shape[1] == 1
    return square and 16 <= n <= 128 and n & (n - 1) == 0


def learn(W: Sequence[Layer], z: Tensor, y: Tensor, alpha: Tensor, exact: bool = False) -> list[Layer]:
    """W after one step on each of T batches, z (B, T, n, d), y (B, T, n), alpha (B, 1, 1); without derivatives.

    exact: products in float32; else their operands are rounded to TF32.
    """
    assert fits(W, y)
    with precision(exact):
        return _learned(W, z.contiguous(), y.contiguous(), alpha, exact)[0]


def learn_and_keep(
    W: Sequence[Layer], z: Tensor, y: Tensor, alpha: Tensor, exact: bool = False
) -> tuple[list[Layer], Kept]:
    """The same, and what it takes to go back."""
    assert fits(W, y)
    with precision(exact):
        learned, kept = _learned(W, z.contiguous(), y.contiguous(), alpha, exact, keep=True)
    assert kept is not None
    return learned, kept


@contextmanager
def precision(exact: bool) -> Iterator[None]:
    """Of torch's products beside the kernels."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = not exact
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def copied(W: Sequence[Layer]) -> list[Layer]:
    """Copies that lie in memory row by row, as the kernels read them; a plain clone of a transposed one would not."""
    return [tuple(t.clone(memory_format=torch.contiguous_format) for t in layer) for layer in W]  # type: ignore[misc]


def block_steps(T: int, n: int) -> int:
    """Steps that W1 is left alone for."""
    return next(k for k in BLOCKS if T % k == 0 and (k == 1 or k * n <= WIDEST))


def products(blocks: Tensor) -> Tensor:
    """<z_i, z_j> + 1 of the examples of each block (copies, blocks, K, d)."""
    flat = blocks.flatten(0, 1)
    return torch.baddbmm(blocks.new_ones(()), flat, flat.mT).view(*blocks.shape[:2], -1)


def _learned(
    W: Sequence[Layer], z: Tensor, y: Tensor, alpha: Tensor, exact: bool, keep: bool = False
) -> tuple[list[Layer], Kept | None]:
    copies, T, n, d = z.shape
    h = W[0][0].shape[1]
    steps = block_steps(T, n)
    (w1, b1), (w2, b2), (last, shift) = copied(W)
    w3 = [last.view(copies, h), torch.empty_like(last.view(copies, h))]
    b3 = [shift.view(copies), torch.empty_like(shift.view(copies))]
    parts = triton.cdiv(h, APPLY.units)
    answers = z.new_empty(copies, parts, n)
    slots, moves = (T, T) if keep else (1, steps)
    h1, h2 = (z.new_empty(copies, slots, n, h) for _ in range(2))
    errors = z.new_empty(copies, T, n) if keep else answers
    rates = alpha.reshape(copies).contiguous()
    both = {"h": h, "PARTS": parts, "N": n, "PRECISION": "ieee" if exact else "tf32"}
    blocks = z.view(copies, T // steps, steps * n, d)
    gram = products(blocks)
    base, moved = z.new_empty(copies, steps * n, h), z.new_empty(copies, moves // steps, steps * n, h)

    def begin(t: int, block: int, update: bool, forward: bool) -> None:
        old, new = (t + 1) % 2, t % 2
        _learn[(copies, triton.cdiv(h, LEARN.units))](
            base, gram[:, block], moved, y, errors, h1, h2, answers, w2, b2, w3[old], b3[old], w3[new], b3[new], rates,
            gram.stride(0), t, T, slots, moves, MANY=triton.next_power_of_2(parts), STEPS=steps, UPDATE=update,
            FORWARD=forward, KEEP=keep, BH=LEARN.units, BD=LEARN.depth, num_warps=LEARN.warps,
            num_stages=LEARN.stages, **both,
        )  # fmt: skip

    for block in range(T // steps):
        torch.baddbmm(b1[:, None], blocks[:, block], w1.mT, out=base)
        for t in range(block * steps, (block + 1) * steps):
            begin(t, block, update=t > block * steps, forward=True)
            _apply[(copies, parts)](
                h1, w2, b2, w3[t % 2], h2, answers, t, slots,
                BH=APPLY.units, BD=APPLY.depth, num_warps=APPLY.warps, num_stages=APPLY.stages, **both,
            )  # fmt: skip
        begin((block + 1) * steps, block, update=True, forward=False)
        now = moved[:, block if keep else 0]
        w1.baddbmm_(now.mT, blocks[:, block], alpha=-1)
        b1 -= now.sum(1)
    end = T % 2
    learned = [(w1, b1), (w2, b2), (w3[end].view(copies, 1, h), b3[end].view(copies, 1))]
    return learned, Kept(h1, h2, errors, moved, gram) if keep else None
