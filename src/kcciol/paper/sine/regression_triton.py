"""The inner loop of regression on a GPU: steps of SGD on three layers, two kernels a step.

The plain form is `network.learn`. A step depends on the one before, so what counts is how many kernels it
takes and how long each needs. With h1 = relu(W1 z + b1), h2 = relu(W2 h1 + b2) and the answer w3 h2 + b3:

    _learn  some units of the first layer: from the errors of the step before, the gradient at their outputs and the
            update of W2's columns for them, then h1 of this step
    _apply  some units of the second layer: h2, and their part of the answer

W1, most of the weights, is left alone for a block of steps. With A_j the rate times the gradient at the first layer's
outputs in step j of the block,

    W1_t z_t + b1_t = (W1 z_t + b1) - sum over j < t of (<z_t, z_j> + 1) A_j,

where the first term and the products of features are known before the block begins, for all its steps at once; at its
end W1 -= sum over j of A_j z_j. Of the sum, all but j = t - 1 is known a step ahead: other programs of _apply take it
meanwhile. What all programs read and some write (w3, b3) has a place for each step, or two in turn. The copies lie
along the grid. Sizes are constants to the compiler: only then it knows that rows begin at addresses that take loads of
16 bytes.

To go back through it (`regression_back_triton`), h1, h2, the errors, A, and W2 and w3 before each step are kept, and W1
before each block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kcciol.engine.device import precision
from kcciol.paper.ensemble import Affine


@dataclass(frozen=True)
class RegressionTiles:
    """How a kernel is cut up: units of a program, and how much of the other side it takes at a time."""

    units: int = 32
    depth: int = 64
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True)
class Kept:
    """What T steps of C copies leave behind for the way back; W2 and w3 have a last place for what was learned."""

    h1: Tensor  # (C, T, n, h)
    h2: Tensor
    errors: Tensor  # (C, T, n), the gradient at the answer
    w1: Tensor  # (C, blocks, h, d), before each block
    w2: Tensor  # (C, T + 1, h, h), before each step
    w3: Tensor  # (C, T + 1, h)
    moved: Tensor  # (C, blocks, K, h), A, of the K examples of a block
    products: Tensor  # (C, blocks, K, K)


LEARN = RegressionTiles(units=16, depth=64, warps=4, stages=3)
APPLY = RegressionTiles(units=16, depth=64, warps=4, stages=5)
BLOCKS = (8, 4, 2, 1)  # steps that W1 is left alone for: the first that divides their number, with not more than
WIDEST = 256  # examples


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _learn(  # type: ignore[no-untyped-def]
    P, G, A, Y, E, H1, H2, Parts, b1, W2, b2, w3, b3, alpha, g_stride, t, T, slots, moves, w2_slots, w3_slots,
    h: tl.constexpr, PARTS: tl.constexpr, MANY: tl.constexpr, STEPS: tl.constexpr,
    UPDATE: tl.constexpr, FORWARD: tl.constexpr, KEEP: tl.constexpr, N: tl.constexpr, BH: tl.constexpr,
    BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Finish step t - 1 (UPDATE) and begin step t (FORWARD). The answer comes in PARTS parts; MANY is a power of two
    not below. P and G are of the block that both steps lie in, of STEPS steps. H1 and H2 have room for `slots` steps,
    A for `moves`, W2, w3 and b3 for `w2_slots` and `w3_slots`, the latest; errors are written down if they are kept."""
    copy, mine = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), mine < h
    first = tl.program_id(1) == 0
    wide = copy.to(tl.int64)
    before = (wide * slots + (t - 1) % slots) * N * h  # of the step before
    at_mine = rows[:, None] * h + mine[None, :]
    if UPDATE:
        rate = tl.load(alpha + copy)
        part = tl.arange(0, MANY)
        parts = Parts + (copy * PARTS + part[:, None]) * N + rows[None, :]
        answer = tl.sum(tl.load(parts, mask=part[:, None] < PARTS, other=0.0), 0)
        old, new = copy * w3_slots + (t - 1) % w3_slots, copy * w3_slots + t % w3_slots
        shift = tl.load(b3 + old)
        error = (answer + shift - tl.load(Y + (wide * T + t - 1) * N + rows)) * (2.0 / N)
        if first:
            tl.store(b3 + new, shift - rate * tl.sum(error, 0))
            if KEEP:
                tl.store(E + (wide * T + t - 1) * N + rows, error)
        below = tl.load(H1 + before + at_mine, mask=some[None, :], other=0.0)  # (N, BH)
        gradient = tl.zeros((N, BH), tl.float32)
        source = W2 + (wide * w2_slots + (t - 1) % w2_slots) * h * h
        target = W2 + (wide * w2_slots + t % w2_slots) * h * h
        for start in range(0, h, BD):
            units = start + tl.arange(0, BD)
            inside = units < h
            out = tl.load(H2 + before + rows[:, None] * h + units[None, :], mask=inside[None, :], other=0.0)
            last = tl.load(w3 + old * h + units, mask=inside, other=0.0)
            delta = tl.where(out > 0, error[:, None] * last[None, :], 0.0)  # (N, BD)
            place = units[:, None] * h + mine[None, :]
            both = inside[:, None] & some[None, :]
            tile = tl.load(source + place, mask=both, other=0.0)
            gradient += tl.dot(delta, tile, input_precision=PRECISION)
            tile -= rate * tl.dot(tl.trans(delta), below, input_precision=PRECISION)
            tl.store(target + place, tile, mask=both)
        moved = tl.where(below > 0, gradient, 0.0) * rate
        tl.store(A + (wide * moves + (t - 1) % moves) * N * h + at_mine, moved, mask=some[None, :])
        own = b1 + copy * h + mine
        tl.store(own, tl.load(own, mask=some, other=0.0) - tl.sum(moved, 0), mask=some)
        out = tl.load(H2 + before + at_mine, mask=some[None, :], other=0.0)  # these units of the second layer
        last = tl.load(w3 + old * h + mine, mask=some, other=0.0)
        delta = tl.where(out > 0, error[:, None] * last[None, :], 0.0)
        own = b2 + copy * h + mine
        tl.store(own, tl.load(own, mask=some, other=0.0) - rate * tl.sum(delta, 0), mask=some)
        tl.store(w3 + new * h + mine, last - rate * tl.sum(error[:, None] * out, 0), mask=some)
    if FORWARD:
        now = t % STEPS  # its place in the block
        total = tl.load(P + wide * STEPS * N * h + now * N * h + at_mine, mask=some[None, :], other=0.0)
        if UPDATE:
            g = G + wide * g_stride + (now * N + rows)[:, None] * (STEPS * N)
            near = tl.load(g + ((now - 1) * N + rows)[None, :])
            total -= tl.dot(near, moved, input_precision=PRECISION)
        tl.store(H1 + (wide * slots + t % slots) * N * h + at_mine, tl.maximum(total, 0.0), mask=some[None, :])


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def far_sum(  # type: ignore[no-untyped-def]
    G, X, begin, end, mine, h: tl.constexpr, K: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """N rows of products G times X, some units of it, over the examples [begin, end) of a block of K."""
    rows, some = tl.arange(0, N), mine < h
    total = tl.zeros((N, mine.shape[0]), tl.float32)
    for start in range(begin, end, N):
        g = tl.load(G + rows[:, None] * K + (start + rows)[None, :])
        x = tl.load(X + (start + rows)[:, None] * h + mine[None, :], mask=some[None, :], other=0.0)
        total += tl.dot(g, x, input_precision=PRECISION)
    return total


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _apply(  # type: ignore[no-untyped-def]
    H1, W2, b2, w3, H2, Parts, P, G, A, g_stride, t, slots, moves, w2_slots, w3_slots,
    h: tl.constexpr, PARTS: tl.constexpr, STEPS: tl.constexpr,
    N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """h2 of step t. Programs from PARTS on: what P, for step t + 1 of the block, takes from the steps before t."""
    copy, wide, rows = tl.program_id(0), tl.program_id(0).to(tl.int64), tl.arange(0, N)
    if tl.program_id(1) < PARTS:
        mine = tl.program_id(1) * BH + tl.arange(0, BH)
        some = mine < h
        W2 += (wide * w2_slots + t % w2_slots) * h * h
        here = (wide * slots + t % slots) * N * h
        total = tl.zeros((N, BH), tl.float32)
        for start in range(0, h, BD):
            columns = start + tl.arange(0, BD)
            inside = columns < h
            x = tl.load(H1 + here + rows[:, None] * h + columns[None, :], mask=inside[None, :], other=0.0)
            tile = tl.load(W2 + mine[:, None] * h + columns[None, :], mask=some[:, None] & inside[None, :], other=0.0)
            total += tl.dot(x, tl.trans(tile), input_precision=PRECISION)
        out = tl.maximum(total + tl.load(b2 + copy * h + mine, mask=some, other=0.0)[None, :], 0.0)
        tl.store(H2 + here + rows[:, None] * h + mine[None, :], out, mask=some[None, :])
        last = tl.load(w3 + (copy * w3_slots + t % w3_slots) * h + mine, mask=some, other=0.0)
        tl.store(Parts + (copy * PARTS + tl.program_id(1)) * N + rows, tl.sum(out * last[None, :], 1))
    else:
        mine = (tl.program_id(1) - PARTS) * BH + tl.arange(0, BH)
        now = t % STEPS
        at = P + wide * STEPS * N * h + ((now + 1) * N + rows)[:, None] * h + mine[None, :]
        g = G + wide * g_stride + (now + 1) * N * (STEPS * N)
        a = A + (wide * moves + (t - now) % moves) * N * h
        total = far_sum(g, a, 0, now * N, mine, h, STEPS * N, N, PRECISION)
        mask = (mine < h)[None, :]
        tl.store(at, tl.load(at, mask=mask, other=0.0) - total, mask=mask)


def fits(W: Sequence[Affine], y: Tensor) -> bool:
    """Whether the kernels can run it: three layers, batches of a power of two that are not too large."""
    n = y.shape[2]
    square = len(W) == 3 and W[1][0].shape[1] == W[1][0].shape[2] and W[2][0].shape[1] == 1
    return square and 16 <= n <= 128 and n & (n - 1) == 0


def learn(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor, exact: bool = False) -> list[Affine]:
    """W after one step on each of T batches, z (B, T, n, d), y (B, T, n), alpha (B, 1, 1); without derivatives.

    exact: products in float32; else their operands are rounded to TF32.
    """
    assert fits(W, y)
    with precision("float32" if exact else "tf32", z.device):  # torch's products beside the kernels
        stages, _ = _learned(W, z.contiguous(), y.contiguous(), alpha, exact, 1, keep=False)
    return [(weight[0], bias[0]) for weight, bias in stages]


def learn_and_keep(
    W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor, times: int, exact: bool = False
) -> tuple[list[Affine], Kept]:
    """The same at `times` even moments, (times, ...), the last of them the end; and what the way back needs."""
    assert fits(W, y)
    with precision("float32" if exact else "tf32", z.device):  # torch's products beside the kernels
        stages, kept = _learned(W, z.contiguous(), y.contiguous(), alpha, exact, times, keep=True)
    assert kept is not None
    return stages, kept


def block_steps(T: int, n: int) -> int:
    """Steps that W1 is left alone for."""
    return next(k for k in BLOCKS if T % k == 0 and (k == 1 or k * n <= WIDEST))


def products(blocks: Tensor) -> Tensor:
    """<z_i, z_j> + 1 of the examples of each block (copies, blocks, K, d)."""
    flat = blocks.flatten(0, 1)
    return torch.baddbmm(blocks.new_ones(()), flat, flat.mT).view(*blocks.shape[:2], *[blocks.shape[2]] * 2)


def _learned(
    W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor, exact: bool, times: int, keep: bool
) -> tuple[list[Affine], Kept | None]:
    copies, T, n, d = z.shape
    h, each = W[0][0].shape[1], T // times
    steps = block_steps(each, n)
    count = T // steps
    by_row = torch.contiguous_format  # as the kernels read them; a plain clone of a transposed one would not be
    w1, b1, b2 = (t.clone(memory_format=by_row) for t in (*W[0], W[1][1]))
    slots, moves, w2_slots, w3_slots = (T, T, T + 1, T + 1) if keep else (1, steps, 1, 2)
    w2, w3, b3 = z.new_empty(copies, w2_slots, h, h), z.new_empty(copies, w3_slots, h), z.new_empty(copies, w3_slots)
    w2[:, 0], w3[:, 0], b3[:, 0] = W[1][0], W[2][0][:, 0], W[2][1][:, 0]
    parts = triton.cdiv(h, APPLY.units)
    answers = z.new_empty(copies, parts, n)
    h1, h2 = (z.new_empty(copies, slots, n, h) for _ in range(2))
    errors = z.new_empty(copies, T, n) if keep else answers
    rates = alpha.reshape(copies).contiguous()
    both = {"h": h, "PARTS": parts, "N": n, "STEPS": steps, "PRECISION": "ieee" if exact else "tf32"}
    blocks = z.view(copies, count, steps * n, d)
    gram = products(blocks)
    base, moved = z.new_empty(copies, steps * n, h), z.new_empty(copies, moves // steps, steps * n, h)
    w1s = z.new_empty(copies, count, h, d) if keep else None
    stages = [(z.new_empty(times, *weight.shape), z.new_empty(times, *bias.shape)) for weight, bias in W]
    room = slots, moves, w2_slots, w3_slots

    def begin(t: int, block: int, update: bool, forward: bool) -> None:
        _learn[(copies, triton.cdiv(h, LEARN.units))](
            base, gram[:, block], moved, y, errors, h1, h2, answers, b1, w2, b2, w3, b3, rates, gram.stride(0), t, T,
            *room, MANY=triton.next_power_of_2(parts), UPDATE=update, FORWARD=forward, KEEP=keep,
            BH=LEARN.units, BD=LEARN.depth, num_warps=LEARN.warps, num_stages=LEARN.stages, **both,
        )  # fmt: skip

    for block in range(count):
        if w1s is not None:
            w1s[:, block] = w1
        torch.baddbmm(b1[:, None], blocks[:, block], w1.mT, out=base)
        end = (block + 1) * steps
        for t in range(block * steps, end):
            begin(t, block, update=t > block * steps, forward=True)
            ahead = block * steps < t < end - 1  # step t + 1 of the block takes something from before t
            _apply[(copies, parts * (1 + ahead))](
                h1, w2, b2, w3, h2, answers, base, gram[:, block], moved, gram.stride(0), t, *room,
                BH=APPLY.units, BD=APPLY.depth, num_warps=APPLY.warps, num_stages=APPLY.stages, **both,
            )  # fmt: skip
        begin(end, block, update=True, forward=False)
        w1.baddbmm_(moved[:, block if keep else 0].mT, blocks[:, block], alpha=-1)
        if end % each == 0:
            now2, now3 = end % w2_slots, end % w3_slots
            learned = (w1, b1), (w2[:, now2], b2), (w3[:, now3, None], b3[:, now3, None])
            for stage, layer in zip(stages, learned, strict=True):
                for found, value in zip(stage, layer, strict=True):
                    found[end // each - 1] = value
    return stages, Kept(h1, h2, errors, w1s, w2, w3, moved, gram) if w1s is not None else None
