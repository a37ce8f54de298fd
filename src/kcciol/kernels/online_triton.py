"""The online heads on a GPU, touching each weight once an example.

`learn_class` is the whole of a linear head: one launch learns one example in all copies. `adam_rank_one` is Adam's step
of one layer on a gradient of rank one, for heads of several layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 4, 512  # of W, the tile one program holds at a time


@triton.jit(do_not_specialize=["rows", "multiplicity", "label"])  # type: ignore
def _learn_one(  # type: ignore
    W, M, V, X, X_next, Rates, Logits, Logits_next, x_stride, outputs, rows, multiplicity, label, step, eps,
    columns: tl.constexpr, ADAM: tl.constexpr, LEARN: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program (b, i) updates ROWS rows of copy b on its current image, and applies them to its next image.

    W, M, V are (B, outputs, columns), W in units of the copy's rate; X and X_next point at the copies' images, a
    stride apart; Logits are (B, outputs). The first `rows` rows are in use, the last of which stands for `multiplicity`
    equal ones. Without LEARN the rows are only applied. OUTPUTS is a power of two.
    """
    copy = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    row_ok = row < rows
    if LEARN:
        # Every program of a copy takes the same softmax: cheaper than a launch of its own.
        every = tl.arange(0, OUTPUTS)
        logits = tl.load(Logits + copy * outputs + every, mask=every < rows, other=-float("inf"))
        highest = tl.max(logits, 0)
        count = tl.where(every == rows - 1, multiplicity, 1)
        total = tl.sum(tl.exp(logits - highest) * count, 0)
        mine = tl.load(Logits + copy * outputs + row, mask=row_ok, other=0.0)
        delta = tl.exp(mine - highest) / total - tl.where(row == label, 1.0, 0.0)
    W += copy * outputs * columns
    M += copy * outputs * columns
    V += copy * outputs * columns
    product = tl.zeros([ROWS], dtype=tl.float32)
    for first in range(0, columns, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        column_ok = column < columns
        at = row[:, None] * columns + column[None, :]
        ok = row_ok[:, None] & column_ok[None, :]
        w = tl.load(W + at, mask=ok, other=0.0)
        if LEARN:
            x = tl.load(X + copy * x_stride + column, mask=column_ok, other=0.0)
            gradient = delta[:, None] * x[None, :]
            if ADAM:
                m = tl.load(M + at, mask=ok, other=0.0)
                v = tl.load(V + at, mask=ok, other=0.0)
                m += (gradient - m) * (1 - BETA1)
                v = v * BETA2 + gradient * gradient * (1 - BETA2)
                w -= step * tl.div_rn(m, tl.sqrt_rn(v) + eps)
                tl.store(M + at, m, mask=ok)
                tl.store(V + at, v, mask=ok)
            else:
                w -= gradient
            tl.store(W + at, w, mask=ok)
        x_next = tl.load(X_next + copy * x_stride + column, mask=column_ok, other=0.0)
        product += tl.sum(w * x_next[None, :], 1)
    rate = tl.load(Rates + copy)
    tl.store(Logits_next + copy * outputs + row, product * rate, mask=row_ok)


def learn_class(
    weight: Tensor,
    moments: tuple[Tensor, Tensor] | None,
    rates: Tensor,
    rows: tuple[int, int],
    images: Tensor,
    label: int,
    scalars: Sequence[tuple[float, float]],
    betas: tuple[float, float],
) -> None:
    """Learn images (B, S, columns), one after another, in B copies of a linear head; all tensors are float32.

    weight (B, outputs, columns), in units of the copies' rates (B,), and Adam's moments, both of that shape (None:
    SGD), are changed in place. rows says how many rows are in use, and how many equal ones the last of them stands
    for. scalars are Adam's step for rate 1 and its eps for each of the S examples.
    """
    copies, outputs, columns = weight.shape
    images = images.contiguous()
    logits, following = torch.empty(2, copies, outputs, device=images.device).unbind()
    mean, square = moments or (weight, weight)
    grid = (copies, triton.cdiv(rows[0], ROWS))

    def launch(now: Tensor, after: Tensor, learn: bool, step: float = 0.0, eps: float = 0.0) -> None:
        _learn_one[grid](
            weight, mean, square, now, after, rates, logits, following, images.stride(0), outputs, *rows, label,
            step, eps, columns=columns, ADAM=moments is not None, LEARN=learn, BETA1=betas[0], BETA2=betas[1],
            OUTPUTS=triton.next_power_of_2(outputs), ROWS=ROWS, COLUMNS=COLUMNS,
        )  # fmt: skip

    pictures = images.unbind(1)
    launch(pictures[0], pictures[0], learn=False)
    # The last image has no next one here (the class after it comes in another call): it is applied to itself, in vain.
    for now, after, (step, eps) in zip(pictures, [*pictures[1:], pictures[-1]], scalars, strict=True):
        logits, following = following, logits
        launch(now, after, True, step, eps)


@triton.jit(do_not_specialize=["rows"])  # type: ignore
def _adam_rank_one(  # type: ignore
    W, M, V, Delta, X, rows, copy_stride, delta_stride, x_stride, step, eps,
    columns: tl.constexpr, BETA1: tl.constexpr, BETA2: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program (b, i, j) updates a tile of copy b's first `rows` rows by Adam on the gradient Delta X^T."""
    copy = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    delta = tl.load(Delta + copy * delta_stride + row, mask=row < rows, other=0.0)
    x = tl.load(X + copy * x_stride + column, mask=column < columns, other=0.0)
    at = copy * copy_stride + row[:, None] * columns + column[None, :]
    ok = (row < rows)[:, None] & (column < columns)[None, :]
    gradient = delta[:, None] * x[None, :]
    m = tl.load(M + at, mask=ok, other=0.0)
    v = tl.load(V + at, mask=ok, other=0.0)
    m += (gradient - m) * (1 - BETA1)
    v = v * BETA2 + gradient * gradient * (1 - BETA2)
    w = tl.load(W + at, mask=ok, other=0.0) - step * tl.div_rn(m, tl.sqrt_rn(v) + eps)
    tl.store(M + at, m, mask=ok)
    tl.store(V + at, v, mask=ok)
    tl.store(W + at, w, mask=ok)


def adam_rank_one(
    weight: Tensor,
    moments: tuple[Tensor, Tensor],
    rows: int,
    delta: Tensor,
    x: Tensor,
    scalars: tuple[float, float],
    betas: tuple[float, float],
) -> None:
    """Adam's step in place on the first `rows` rows of weight (B, outputs, columns), gradient delta x^T.

    delta (B, 1, rows) and x (B, 1, columns) may be slices whose last dimension is contiguous; all tensors are float32.
    """
    assert delta.stride(2) == x.stride(2) == 1
    copies, _, columns = weight.shape
    grid = (copies, triton.cdiv(rows, ROWS), triton.cdiv(columns, COLUMNS))
    _adam_rank_one[grid](
        weight, *moments, delta, x, rows, weight.stride(0), delta.stride(0), x.stride(0), *scalars,
        columns=columns, BETA1=betas[0], BETA2=betas[1], ROWS=ROWS, COLUMNS=COLUMNS,
    )  # fmt: skip
