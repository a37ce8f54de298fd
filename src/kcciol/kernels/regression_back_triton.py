"""Back through the inner loop of regression on a GPU: the adjoints of its start and features, two kernels a step.

The plain form is `regression.adjoint.step_back`, the loop itself `regression_triton`. The steps are undone from the
last to the first, each by what was kept of it: h1, h2, the error, and A, the rate times the gradient at the first
layer's outputs. With L2, l3 the adjoints of W2, w3 after a step, q1 and q2 those of the gradients at the outputs of the
first two layers, and p1, p2, p3 those of all three outputs:

    _reach  some units of the second layer: w3 before the step, q2, and their part of p3
    _turn   some units of the first layer: p1, the adjoint of W2's columns for them, W2 before the step below, and then
            q1 of that step; the adjoint of w3 goes into a second buffer, as all read it

The adjoint L1 of W1, like W1, is left alone for a block of steps. With L1 that after the block,

    q1_t = -rate (L1 z_t + c1 + sum over j > t of (<z_t, z_j> + 1) p1_j),    where h1_t > 0,

and with W1 that before it, of the features z of the whole block,

    adjoint of z = p1 W1 - A L1 - (S + S') z,    S = p1 A' where the step of the row is later than that of the column.

Biases need not be undone: where units are active was kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from kcciol.kernels.regression_triton import Kept, Layer, Tiles, block_steps, copied, precision

REACH, TURN = Tiles(), Tiles()


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _reach(  # type: ignore[no-untyped-def]
    H1, H2, E, Q1, Q2, Parts, W2, L2, c2, w3, l3, alpha, t, T, h: tl.constexpr, PARTS: tl.constexpr,
    N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    copy, mine = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), mine < h
    W2 += copy.to(tl.int64) * h * h
    L2 += copy.to(tl.int64) * h * h
    H1 += (copy.to(tl.int64) * T + t) * N * h
    H2 += (copy.to(tl.int64) * T + t) * N * h
    Q1 += copy * N * h
    rate = tl.load(alpha + copy)
    error = tl.load(E + (copy.to(tl.int64) * T + t) * N + rows)
    total = tl.zeros((N, BH), tl.float32)
    for start in range(0, h, BD):
        columns = start + tl.arange(0, BD)
        inside = columns < h
        at, place = rows[:, None] * h + columns[None, :], mine[:, None] * h + columns[None, :]
        both = some[:, None] & inside[None, :]
        x = tl.load(H1 + at, mask=inside[None, :], other=0.0)
        q = tl.load(Q1 + at, mask=inside[None, :], other=0.0)
        tile = tl.load(W2 + place, mask=both, other=0.0)
        adjoint = tl.load(L2 + place, mask=both, other=0.0)
        total += tl.dot(q, tl.trans(tile), input_precision=PRECISION)
        total -= rate * tl.dot(x, tl.trans(adjoint), input_precision=PRECISION)
    total -= rate * tl.load(c2 + copy * h + mine, mask=some, other=0.0)[None, :]
    out = tl.load(H2 + rows[:, None] * h + mine[None, :], mask=some[None, :], other=0.0)
    q2 = tl.where(out > 0, total, 0.0)
    tl.store(Q2 + copy * N * h + rows[:, None] * h + mine[None, :], q2, mask=some[None, :])
    last = tl.load(w3 + copy * h + mine, mask=some, other=0.0) + rate * tl.sum(error[:, None] * out, 0)
    tl.store(w3 + copy * h + mine, last, mask=some)
    behind = tl.load(l3 + copy * h + mine, mask=some, other=0.0)
    part = tl.sum(q2 * last[None, :] - rate * out * behind[None, :], 1)
    tl.store(Parts + (copy * PARTS + tl.program_id(1)) * N + rows, part)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _turn(  # type: ignore[no-untyped-def]
    Base, G, H1, H2, E, P1, Q1, Q2, Parts, W2, L2, c2, w3, l3, c3, l3_new, c3_new, alpha, g_stride, t, T,
    h: tl.constexpr, PARTS: tl.constexpr, MANY: tl.constexpr, STEPS: tl.constexpr,
    UPDATE: tl.constexpr, UNDO: tl.constexpr, FORWARD: tl.constexpr,
    N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Finish the way back through step t (UPDATE), bring W2 to where it was before step t - 1 (UNDO), and begin with
    that step (FORWARD). Base and G are of the block that both lie in, of STEPS steps."""
    copy, mine = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), mine < h
    first = tl.program_id(1) == 0
    W2 += copy.to(tl.int64) * h * h
    L2 += copy.to(tl.int64) * h * h
    E += copy.to(tl.int64) * T * N
    Q2 += copy * N * h
    at_mine = rows[:, None] * h + mine[None, :]
    here = (copy.to(tl.int64) * T + t) * N * h  # of this step, and of the one before
    there = here - N * h
    rate = tl.load(alpha + copy)
    if UPDATE:
        error = tl.load(E + t * N + rows)
        part = tl.arange(0, MANY)
        parts = Parts + (copy * PARTS + part[:, None]) * N + rows[None, :]
        total = tl.sum(tl.load(parts, mask=part[:, None] < PARTS, other=0.0), 0)
        shift = tl.load(c3 + copy)
        p3 = (total - rate * shift) * (2.0 / N)
        if first:
            tl.store(c3_new + copy, shift + tl.sum(p3, 0))
        below = tl.load(H1 + here + at_mine, mask=some[None, :], other=0.0)  # (N, BH)
        q1 = tl.load(Q1 + copy * N * h + at_mine, mask=some[None, :], other=0.0)
        gradient = tl.zeros((N, BH), tl.float32)
    if UNDO:
        error_before = tl.load(E + (t - 1) * N + rows)
    if UNDO or FORWARD:
        below_before = tl.load(H1 + there + at_mine, mask=some[None, :], other=0.0)
    if UPDATE or UNDO:
        for start in range(0, h, BD):
            units = start + tl.arange(0, BD)
            inside = units < h
            at = rows[:, None] * h + units[None, :]
            both = inside[:, None] & some[None, :]
            place = units[:, None] * h + mine[None, :]
            last = tl.load(w3 + copy * h + units, mask=inside, other=0.0)
            tile = tl.load(W2 + place, mask=both, other=0.0)
            if UPDATE:
                out = tl.load(H2 + here + at, mask=inside[None, :], other=0.0)
                behind = tl.load(l3 + copy * h + units, mask=inside, other=0.0)
                p2 = tl.where(out > 0, p3[:, None] * last[None, :] - rate * error[:, None] * behind[None, :], 0.0)
                delta = tl.where(out > 0, error[:, None] * last[None, :], 0.0)  # (N, BD)
                adjoint = tl.load(L2 + place, mask=both, other=0.0)
                gradient += tl.dot(p2, tile, input_precision=PRECISION)
                gradient -= rate * tl.dot(delta, adjoint, input_precision=PRECISION)
                adjoint += tl.dot(tl.trans(p2), below, input_precision=PRECISION)
                adjoint += tl.dot(tl.trans(delta), q1, input_precision=PRECISION)
                tl.store(L2 + place, adjoint, mask=both)
                if first:
                    q2 = tl.load(Q2 + at, mask=inside[None, :], other=0.0)
                    old = tl.load(c2 + copy * h + units, mask=inside, other=0.0)
                    tl.store(c2 + copy * h + units, old + tl.sum(p2, 0), mask=inside)
                    more = tl.sum(error[:, None] * q2 + p3[:, None] * out, 0)
                    tl.store(l3_new + copy * h + units, behind + more, mask=inside)
            if UNDO:
                before = tl.load(H2 + there + at, mask=inside[None, :], other=0.0)
                last += rate * tl.sum(error_before[:, None] * before, 0)
                delta = tl.where(before > 0, error_before[:, None] * last[None, :], 0.0)
                tile += rate * tl.dot(tl.trans(delta), below_before, input_precision=PRECISION)
                tl.store(W2 + place, tile, mask=both)
    if UPDATE:
        p1 = tl.where(below > 0, gradient, 0.0)
        tl.store(P1 + here + at_mine, p1, mask=some[None, :])
    if FORWARD:
        place = (t - 1) % STEPS  # in the block
        total = tl.load(
            Base + copy.to(tl.int64) * STEPS * N * h + place * N * h + at_mine, mask=some[None, :], other=0.0
        )
        if UPDATE:
            g = G + copy.to(tl.int64) * g_stride + (place * N + rows)[:, None] * (STEPS * N)
            near = tl.load(g + ((place + 1) * N + rows)[None, :])
            total += tl.dot(near, p1, input_precision=PRECISION)
            if STEPS > 2:
                steps = tl.arange(0, STEPS * N)
                later = steps >= (place + 2) * N
                far = tl.load(g + steps[None, :], mask=later[None, :], other=0.0)
                p = P1 + there - place * N * h + steps[:, None] * h + mine[None, :]
                p = tl.load(p, mask=later[:, None] & some[None, :], other=0.0)
                total += tl.dot(far, p, input_precision=PRECISION)
        tl.store(Q1 + copy * N * h + at_mine, tl.where(below_before > 0, -rate * total, 0.0), mask=some[None, :])


def back(
    learned: Sequence[Layer], adjoints: Sequence[Layer], z: Tensor, alpha: Tensor, kept: Kept, exact: bool = False
) -> tuple[Tensor, list[Layer]]:
    """The adjoints of z (C, T, n, d) and of the start, from those of what was learned.

    exact: products in float32; else their operands are rounded to TF32.
    """
    with precision(exact):
        return _back(learned, adjoints, z.contiguous(), alpha, kept, exact)


def _back(
    learned: Sequence[Layer], adjoints: Sequence[Layer], z: Tensor, alpha: Tensor, kept: Kept, exact: bool
) -> tuple[Tensor, list[Layer]]:
    copies, T, n, d = z.shape
    h, steps = kept.h1.shape[3], block_steps(T, n)
    (w1, _), (w2, _), (w3, _) = copied(learned)
    (l1, c1), (l2, c2), (last, shift) = copied(adjoints)
    l3 = [last.view(copies, h), torch.empty_like(last.view(copies, h))]
    c3 = [shift.view(copies), torch.empty_like(shift.view(copies))]
    parts = triton.cdiv(h, REACH.units)
    q1, q2 = (z.new_empty(copies, n, h) for _ in range(2))
    sums = z.new_empty(copies, parts, n)
    rates = alpha.reshape(copies).contiguous()
    both = {"h": h, "PARTS": parts, "N": n, "PRECISION": "ieee" if exact else "tf32"}
    blocks = z.view(copies, T // steps, steps * n, d)
    base, p1, to_z = z.new_empty(copies, steps * n, h), torch.empty_like(kept.h1), torch.empty_like(blocks)
    step = torch.arange(steps, device=z.device).repeat_interleave(n)
    later = (step[:, None] > step).to(z.dtype)

    def turn(t: int, block: int, update: bool, undo: bool, forward: bool) -> None:
        old, new = (T - 1 - t) % 2, (T - t) % 2
        _turn[(copies, triton.cdiv(h, TURN.units))](
            base, kept.products[:, block], kept.h1, kept.h2, kept.errors, p1, q1, q2, sums, w2, l2, c2, w3,
            l3[old], c3[old], l3[new], c3[new], rates, kept.products.stride(0), t, T,
            MANY=triton.next_power_of_2(parts), STEPS=steps, UPDATE=update, UNDO=undo, FORWARD=forward,
            BH=TURN.units, BD=TURN.depth, num_warps=TURN.warps, num_stages=TURN.stages, **both,
        )  # fmt: skip

    for block in range(T // steps - 1, -1, -1):
        begin, end = block * steps, (block + 1) * steps
        torch.baddbmm(c1[:, None], blocks[:, block], l1.mT, out=base)
        turn(end, block, update=False, undo=end == T, forward=True)
        for t in range(end - 1, begin - 1, -1):
            _reach[(copies, parts)](
                kept.h1, kept.h2, kept.errors, q1, q2, sums, w2, l2, c2, w3, l3[(T - 1 - t) % 2], rates, t, T,
                BH=REACH.units, BD=REACH.depth, num_warps=REACH.warps, num_stages=REACH.stages, **both,
            )  # fmt: skip
            turn(t, block, update=True, undo=t > 0, forward=t > begin)
        moved, here = kept.moved[:, block], p1[:, begin:end].flatten(1, 2)
        w1.baddbmm_(moved.mT, blocks[:, block])  # undone
        mixed = torch.bmm(here, moved.mT) * later
        found = torch.baddbmm(torch.bmm(here, w1), moved, l1, alpha=-1)
        to_z[:, block] = found.baddbmm_(mixed + mixed.mT, blocks[:, block], alpha=-1)
        l1.baddbmm_(here.mT, blocks[:, block])
        c1 += here.sum(1)
    last, shift = l3[T % 2].view(copies, 1, h), c3[T % 2].view(copies, 1)
    return to_z.view(copies, T, n, d), [(l1, c1), (l2, c2), (last, shift)]
