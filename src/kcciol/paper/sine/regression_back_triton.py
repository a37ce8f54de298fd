"""Back through the inner loop of regression on a GPU: the adjoints of its start and features, two kernels a step.

The plain form is `paper.sine.adjoint.step_back`, the loop itself `regression_triton`, which has kept W1 before each
block of steps, W2 and w3 before each step, and of each step h1, h2, the error, and A, the rate times the gradient at
the first layer's outputs. With L2, l3 the adjoints of W2, w3 after a step, q1 and q2 those of the gradients at the
outputs of the first two layers, and p1, p2, p3 those of all three outputs:

    _reach  some units of the second layer: q2, and their part of p3
    _turn   some units of the first layer: p1, the adjoint of W2's columns for them, and q1 of the step below; the
            adjoint of w3 goes into a second buffer, as all read it

The adjoint L1 of W1, like W1, is left alone for a block of steps. With L1 that after the block,

    q1_t = -rate (L1 z_t + c1 + sum over j > t of (<z_t, z_j> + 1) p1_j),    where h1_t > 0,

of which all but j = t + 1 is known a step ahead: other programs of _reach take it meanwhile. At the end, with W1 before
each block, of the features z of all blocks at once,

    adjoint of z = p1 W1 - A L1 - (S + S') z,    S = p1 A' where the step of the row is later than that of the column.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from kcciol.engine.device import precision
from kcciol.paper.ensemble import Affine
from kcciol.paper.sine.regression_triton import Kept, RegressionTiles, far_sum

REACH = RegressionTiles(units=16, depth=64, warps=2, stages=4)
TURN = RegressionTiles(units=16, depth=64, warps=4, stages=3)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _reach(  # type: ignore[no-untyped-def]
    Base, G, P1, H1, H2, Q1, Q2, Parts, W2, L2, c2, w3, l3, alpha, g_stride, t, T,
    h: tl.constexpr, PARTS: tl.constexpr, STEPS: tl.constexpr,
    N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """q2 of step t. Programs from PARTS on: what Base, for step t - 1 of the block, takes from the steps after t."""
    copy, wide, rows = tl.program_id(0), tl.program_id(0).to(tl.int64), tl.arange(0, N)
    here = (wide * T + t) * N * h
    if tl.program_id(1) < PARTS:
        mine = tl.program_id(1) * BH + tl.arange(0, BH)
        some = mine < h
        W2 += (wide * (T + 1) + t) * h * h
        L2 += wide * h * h
        Q1 += copy * N * h
        rate = tl.load(alpha + copy)
        total = tl.zeros((N, BH), tl.float32)
        for start in range(0, h, BD):
            columns = start + tl.arange(0, BD)
            inside = columns < h
            at, place = rows[:, None] * h + columns[None, :], mine[:, None] * h + columns[None, :]
            both = some[:, None] & inside[None, :]
            x = tl.load(H1 + here + at, mask=inside[None, :], other=0.0)
            q = tl.load(Q1 + at, mask=inside[None, :], other=0.0)
            tile = tl.load(W2 + place, mask=both, other=0.0)
            adjoint = tl.load(L2 + place, mask=both, other=0.0)
            total += tl.dot(q, tl.trans(tile), input_precision=PRECISION)
            total -= rate * tl.dot(x, tl.trans(adjoint), input_precision=PRECISION)
        total -= rate * tl.load(c2 + copy * h + mine, mask=some, other=0.0)[None, :]
        out = tl.load(H2 + here + rows[:, None] * h + mine[None, :], mask=some[None, :], other=0.0)
        q2 = tl.where(out > 0, total, 0.0)
        tl.store(Q2 + copy * N * h + rows[:, None] * h + mine[None, :], q2, mask=some[None, :])
        last = tl.load(w3 + (wide * (T + 1) + t) * h + mine, mask=some, other=0.0)
        behind = tl.load(l3 + copy * h + mine, mask=some, other=0.0)
        part = tl.sum(q2 * last[None, :] - rate * out * behind[None, :], 1)
        tl.store(Parts + (copy * PARTS + tl.program_id(1)) * N + rows, part)
    else:
        mine = (tl.program_id(1) - PARTS) * BH + tl.arange(0, BH)
        now = t % STEPS
        mask = (mine < h)[None, :]
        at = Base + wide * STEPS * N * h + ((now - 1) * N + rows)[:, None] * h + mine[None, :]
        g = G + wide * g_stride + (now - 1) * N * (STEPS * N)
        p = P1 + here - now * N * h
        total = far_sum(g, p, (now + 1) * N, STEPS * N, mine, h, STEPS * N, N, PRECISION)
        tl.store(at, tl.load(at, mask=mask, other=0.0) + total, mask=mask)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _turn(  # type: ignore[no-untyped-def]
    Base, G, H1, H2, E, P1, Q1, Q2, Parts, c1, W2, L2, c2, w3, l3, c3, l3_new, c3_new, alpha, g_stride, t, T,
    h: tl.constexpr, PARTS: tl.constexpr, MANY: tl.constexpr, STEPS: tl.constexpr,
    UPDATE: tl.constexpr, FORWARD: tl.constexpr,
    N: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Finish the way back through step t (UPDATE), and begin with step t - 1 (FORWARD). Base and G are of the block
    that both lie in, of STEPS steps."""
    copy, mine = tl.program_id(0), tl.program_id(1) * BH + tl.arange(0, BH)
    rows, some = tl.arange(0, N), mine < h
    wide = copy.to(tl.int64)
    at_mine = rows[:, None] * h + mine[None, :]
    here = (wide * T + t) * N * h
    rate = tl.load(alpha + copy)
    if UPDATE:
        error = tl.load(E + (wide * T + t) * N + rows)
        part = tl.arange(0, MANY)
        parts = Parts + (copy * PARTS + part[:, None]) * N + rows[None, :]
        total = tl.sum(tl.load(parts, mask=part[:, None] < PARTS, other=0.0), 0)
        shift = tl.load(c3 + copy)
        p3 = (total - rate * shift) * (2.0 / N)
        if tl.program_id(1) == 0:
            tl.store(c3_new + copy, shift + tl.sum(p3, 0))
        below = tl.load(H1 + here + at_mine, mask=some[None, :], other=0.0)  # (N, BH)
        q1 = tl.load(Q1 + copy * N * h + at_mine, mask=some[None, :], other=0.0)
        gradient = tl.zeros((N, BH), tl.float32)
        W2 += (wide * (T + 1) + t) * h * h
        L2 += wide * h * h
        w3 += (wide * (T + 1) + t) * h
        for start in range(0, h, BD):
            units = start + tl.arange(0, BD)
            inside = units < h
            both = inside[:, None] & some[None, :]
            place = units[:, None] * h + mine[None, :]
            out = tl.load(H2 + here + rows[:, None] * h + units[None, :], mask=inside[None, :], other=0.0)
            last = tl.load(w3 + units, mask=inside, other=0.0)
            behind = tl.load(l3 + copy * h + units, mask=inside, other=0.0)
            p2 = tl.where(out > 0, p3[:, None] * last[None, :] - rate * error[:, None] * behind[None, :], 0.0)
            delta = tl.where(out > 0, error[:, None] * last[None, :], 0.0)  # (N, BD)
            tile = tl.load(W2 + place, mask=both, other=0.0)
            adjoint = tl.load(L2 + place, mask=both, other=0.0)
            gradient += tl.dot(p2, tile, input_precision=PRECISION)
            gradient -= rate * tl.dot(delta, adjoint, input_precision=PRECISION)
            adjoint += tl.dot(tl.trans(p2), below, input_precision=PRECISION)
            adjoint += tl.dot(tl.trans(delta), q1, input_precision=PRECISION)
            tl.store(L2 + place, adjoint, mask=both)
        p1 = tl.where(below > 0, gradient, 0.0)
        tl.store(P1 + here + at_mine, p1, mask=some[None, :])
        own = c1 + copy * h + mine
        tl.store(own, tl.load(own, mask=some, other=0.0) + tl.sum(p1, 0), mask=some)
        out = tl.load(H2 + here + at_mine, mask=some[None, :], other=0.0)  # these units of the second layer
        last = tl.load(w3 + mine, mask=some, other=0.0)
        behind = tl.load(l3 + copy * h + mine, mask=some, other=0.0)
        p2 = tl.where(out > 0, p3[:, None] * last[None, :] - rate * error[:, None] * behind[None, :], 0.0)
        own = c2 + copy * h + mine
        tl.store(own, tl.load(own, mask=some, other=0.0) + tl.sum(p2, 0), mask=some)
        q2 = tl.load(Q2 + copy * N * h + at_mine, mask=some[None, :], other=0.0)
        tl.store(l3_new + copy * h + mine, behind + tl.sum(error[:, None] * q2 + p3[:, None] * out, 0), mask=some)
    if FORWARD:
        now = (t - 1) % STEPS  # its place in the block
        total = tl.load(Base + wide * STEPS * N * h + now * N * h + at_mine, mask=some[None, :], other=0.0)
        if UPDATE:
            g = G + wide * g_stride + (now * N + rows)[:, None] * (STEPS * N)
            near = tl.load(g + ((now + 1) * N + rows)[None, :])
            total += tl.dot(near, p1, input_precision=PRECISION)
        active = tl.load(H1 + here - N * h + at_mine, mask=some[None, :], other=0.0) > 0
        tl.store(Q1 + copy * N * h + at_mine, tl.where(active, -rate * total, 0.0), mask=some[None, :])


def back(
    adjoints: Sequence[Affine], z: Tensor, alpha: Tensor, kept: Kept, exact: bool = False
) -> tuple[Tensor, list[Affine]]:
    """The adjoints of z (C, T, n, d) and of the start, from those of what was learned, (times, C, ...).

    exact: products in float32; else their operands are rounded to TF32.
    """
    with precision("float32" if exact else "tf32", z.device):
        return _back(adjoints, z.contiguous(), alpha, kept, exact)


def _back(adjoints: Sequence[Affine], z: Tensor, alpha: Tensor, kept: Kept, exact: bool) -> tuple[Tensor, list[Affine]]:
    copies, T, n, d = z.shape
    h, times, count = kept.h1.shape[3], len(adjoints[0][0]), kept.w1.shape[1]
    steps, each = T // count, count // times  # of a block; blocks of a stage
    (l1, c1), (l2, c2), _ = [tuple(z.new_zeros(t.shape[1:]) for t in layer) for layer in adjoints]
    l3, c3 = z.new_zeros(2, copies, h), z.new_zeros(2, copies)  # in turn
    parts = triton.cdiv(h, REACH.units)
    q1, q2 = (z.new_empty(copies, n, h) for _ in range(2))
    sums = z.new_empty(copies, parts, n)
    rates = alpha.reshape(copies).contiguous()
    both = {"h": h, "PARTS": parts, "N": n, "STEPS": steps, "PRECISION": "ieee" if exact else "tf32"}
    blocks, gram = z.view(copies, count, steps * n, d), kept.products
    base, p1, l1s = z.new_empty(copies, steps * n, h), torch.empty_like(kept.moved), torch.empty_like(kept.w1)

    def turn(t: int, block: int, update: bool, forward: bool) -> None:
        old, new = (T - 1 - t) % 2, (T - t) % 2
        _turn[(copies, triton.cdiv(h, TURN.units))](
            base, gram[:, block], kept.h1, kept.h2, kept.errors, p1, q1, q2, sums, c1, kept.w2, l2, c2, kept.w3,
            l3[old], c3[old], l3[new], c3[new], rates, gram.stride(0), t, T,
            MANY=triton.next_power_of_2(parts), UPDATE=update, FORWARD=forward,
            BH=TURN.units, BD=TURN.depth, num_warps=TURN.warps, num_stages=TURN.stages, **both,
        )  # fmt: skip

    for block in range(count - 1, -1, -1):
        begin, end = block * steps, (block + 1) * steps
        stage, place = divmod(block + 1, each)
        if place == 0:  # what was learned up to here was asked
            (to_w1, to_b1), (to_w2, to_b2), (to_w3, to_b3) = ((w[stage - 1], b[stage - 1]) for w, b in adjoints)
            now = (T - end) % 2
            for mine, more in (
                (l1, to_w1), (c1, to_b1), (l2, to_w2), (c2, to_b2), (l3[now], to_w3[:, 0]), (c3[now], to_b3[:, 0])
            ):  # fmt: skip
                mine += more
        l1s[:, block] = l1
        torch.baddbmm(c1[:, None], blocks[:, block], l1.mT, out=base)
        turn(end, block, update=False, forward=True)
        for t in range(end - 1, begin - 1, -1):
            ahead = begin < t < end - 1  # step t - 1 of the block takes something from after t
            _reach[(copies, parts * (1 + ahead))](
                base, gram[:, block], p1, kept.h1, kept.h2, q1, q2, sums, kept.w2, l2, c2, kept.w3,
                l3[(T - 1 - t) % 2], rates, gram.stride(0), t, T,
                BH=REACH.units, BD=REACH.depth, num_warps=REACH.warps, num_stages=REACH.stages, **both,
            )  # fmt: skip
            turn(t, block, update=True, forward=t > begin)
        l1.baddbmm_(p1[:, block].mT, blocks[:, block])
    here, moved, features = p1.flatten(0, 1), kept.moved.flatten(0, 1), blocks.flatten(0, 1)
    step = torch.arange(steps, device=z.device).repeat_interleave(n)
    mixed = torch.bmm(here, moved.mT).masked_fill_(step[:, None] <= step, 0.0)
    to_z = torch.bmm(here, kept.w1.flatten(0, 1)).baddbmm_(moved, l1s.flatten(0, 1), alpha=-1)
    to_z.baddbmm_(mixed + mixed.mT, features, alpha=-1)
    return to_z.view(copies, T, n, d), [(l1, c1), (l2, c2), (l3[T % 2][:, None], c3[T % 2][:, None])]
