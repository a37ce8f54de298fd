"""3x3 convolutions of copies that each have weights of their own, on a GPU; the plain form is `nets.copies.grouped`.

Each is a matrix product of every copy, whose operands are gathered while it runs: nothing is laid out in patches, which
would be nine times the map. Maps are (B, m, h, w, channels) and weights (B, outputs, 3, 3, inputs), so that whatever is
summed over lies together.

    _forward   out[p, o]     = relu(b[o] + sum over taps t and c of a[p s + t, c] w[o, t, c])
    _images    at a[q, c]      sum over taps t and o of delta[(q - t) / s, o] w[o, t, c], from w as (c, t, o)
    _weights   at w[o, t, c]   sum over places p of delta[p, o] a[p s + t, c]

With stride s, only every s-th tap reaches a place q: places are taken by what q leaves when divided by s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor

_SIZES = ["images", "H", "W", "h", "w"]


@dataclass(frozen=True)
class Tiles:
    """How a product is cut up: rows and columns of a program, how much of the sum it takes at a time."""

    rows: int
    columns: int
    depth: int = 32
    warps: int = 4
    stages: int = 3


MANY, FEW = Tiles(128, 256, warps=8), Tiles(64, 128, stages=4)  # places of a copy
WEIGHTS = Tiles(256, 128, warps=8)
ENOUGH = 1024  # places that make many
_MOST = 2**16 - 1  # programs along the third side of a grid
_TURN, _BLOCK = 64, 1024  # side of a tile of weights that is turned; what a program halves


@triton.jit(do_not_specialize=_SIZES)  # type: ignore
def _forward(  # type: ignore[no-untyped-def]
    A, Weights, Bias, Out, images, H, W, h, w, S: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
    RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    copy = tl.program_id(2).to(tl.int64)
    p, o, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    inside, some = p < images * h * w, o < N
    image, y, x = p // (h * w), p % (h * w) // w, p % w
    a = A + copy * (images * H * W * C) + ((image * H + y * S) * W + x * S)[:, None] * C + k[None, :]
    b = Weights + copy * (N * 9 * C) + o[None, :] * (9 * C) + k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(9 * tl.cdiv(C, BK)):
        tap, start = step // tl.cdiv(C, BK), step % tl.cdiv(C, BK) * BK
        rows, columns = inside[:, None], some[None, :]
        if C % BK:
            rows, columns = rows & (start + k < C)[None, :], columns & (start + k < C)[:, None]
        left = tl.load(a + (tap // 3 * W + tap % 3) * C + start, mask=rows, other=0.0)
        right = tl.load(b + tap * C + start, mask=columns, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    total += tl.load(Bias + copy * N + o, mask=some, other=0.0)[None, :]
    if RELU:
        total = tl.where(total < 0, 0.0, total)  # which lets through what is no number
    place = Out + copy * (images * h * w * N) + p[:, None] * N + o[None, :]
    tl.store(place, total, mask=inside[:, None] & some[None, :])


@triton.jit(do_not_specialize=_SIZES)  # type: ignore
def _images(  # type: ignore[no-untyped-def]
    Delta, Turned, In, images, H, W, h, w, S: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    copy, part = (tl.program_id(2) // (S * S)).to(tl.int64), tl.program_id(2) % (S * S)
    down, right_ = part // S, part % S
    height, width = tl.cdiv(H - down, S), tl.cdiv(W - right_, S)
    across = tl.cdiv(3 - right_, S)
    q, c, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    inside, some = q < images * height * width, c < C
    image, i, j = q // (height * width), q % (height * width) // width, q % width
    delta = Delta + copy * (images * h * w * N) + k[None, :]
    b = Turned + copy * (C * 9 * N) + c[None, :] * (9 * N) + k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(3 - down, S) * across * tl.cdiv(N, BK)):
        tap, start = step // tl.cdiv(N, BK), step % tl.cdiv(N, BK) * BK
        y, x = i - tap // across, j - tap % across
        rows = (inside & (y >= 0) & (y < h) & (x >= 0) & (x < w))[:, None]
        columns = some[None, :]
        if N % BK:
            rows, columns = rows & (start + k < N)[None, :], columns & (start + k < N)[:, None]
        tap = (down + tap // across * S) * 3 + right_ + tap % across * S
        left = tl.load(delta + ((image * h + y) * w + x)[:, None] * N + start, mask=rows, other=0.0)
        right = tl.load(b + tap * N + start, mask=columns, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    place = ((image * H + i * S + down) * W + j * S + right_)[:, None] * C + c[None, :]
    tl.store(In + copy * (images * H * W * C) + place, total, mask=inside[:, None] & some[None, :])


@triton.jit(do_not_specialize=_SIZES)  # type: ignore
def _weights(  # type: ignore[no-untyped-def]
    A, ALow, Delta, DeltaLow, Gradient, images, H, W, h, w, S: tl.constexpr, C: tl.constexpr, N: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A and Delta as they are ("ieee"), or their halves, of whose products the smallest is left out."""
    copy, tap = tl.program_id(2).to(tl.int64), tl.program_id(1)
    o = tl.program_id(0) // tl.cdiv(C, BN) * BM + tl.arange(0, BM)
    c = tl.program_id(0) % tl.cdiv(C, BN) * BN + tl.arange(0, BN)
    from_a = copy * (images * H * W * C) + (tap // 3 * W + tap % 3) * C
    from_delta = copy * (images * h * w * N)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, images * h * w, BK):
        p = start + tl.arange(0, BK)
        inside = (p < images * h * w)[:, None]
        image, y, x = p // (h * w), p % (h * w) // w, p % w
        rows, columns = inside & (o < N)[None, :], inside & (c < C)[None, :]
        at = from_delta + p[:, None] * N + o[None, :]
        place = from_a + ((image * H + y * S) * W + x * S)[:, None] * C + c[None, :]
        delta = tl.trans(tl.load(Delta + at, mask=rows, other=0.0))
        a = tl.load(A + place, mask=columns, other=0.0)
        if PRECISION == "ieee":
            total = tl.dot(delta, a, total, input_precision=PRECISION)
        else:
            total = tl.dot(delta, tl.load(ALow + place, mask=columns, other=0.0), total)
            total = tl.dot(tl.trans(tl.load(DeltaLow + at, mask=rows, other=0.0)), a, total)
            total = tl.dot(delta, a, total)
    place = Gradient + copy * (N * 9 * C) + (o[:, None] * 9 + tap) * C + c[None, :]
    tl.store(place, total, mask=(o < N)[:, None] & (c < C)[None, :])


@triton.jit(do_not_specialize=["n"])  # type: ignore
def _halve(X, Out, Kept, High, Low, n, MASK: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """x as the sum of two bfloat16. With MASK x is the gradient at a relu's output, kept where that let it through."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(X + at, mask=inside, other=0.0)
    if MASK:
        x = tl.where(tl.load(Out + at, mask=inside, other=0.0) > 0, x, 0.0)
        tl.store(Kept + at, x, mask=inside)
    high = x.to(tl.bfloat16)
    tl.store(High + at, high, mask=inside)
    tl.store(Low + at, (x - high.to(tl.float32)).to(tl.bfloat16), mask=inside)


@triton.jit  # type: ignore
def _turn(From, To, R: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """From (B, R, 9, K) to (B, K, 9, R)."""
    copy, tap = (tl.program_id(0) // 9).to(tl.int64), tl.program_id(0) % 9
    r, k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = (r < R)[:, None] & (k < K)[None, :]
    tile = tl.load(From + copy * (R * 9 * K) + (r[:, None] * 9 + tap) * K + k[None, :], mask=inside, other=0.0)
    inside = (k < K)[:, None] & (r < R)[None, :]
    tl.store(To + copy * (R * 9 * K) + (k[:, None] * 9 + tap) * R + r[None, :], tl.trans(tile), mask=inside)


def forward(a: Tensor, weights: Tensor, bias: Tensor, stride: int, relu: bool = True) -> Tensor:
    """relu(w * a + b), or without the relu: (B, m, h, w, outputs)."""
    copies, m, H, W, C = a.shape
    N, h, w = weights.shape[1], (H - 3) // stride + 1, (W - 3) // stride + 1
    out = a.new_empty(copies, m, h, w, N)
    tiles = _tiles(m * h * w)
    grid = (triton.cdiv(m * h * w, tiles.rows), triton.cdiv(N, tiles.columns), copies)
    _launch(_forward, grid, tiles, (a, weights, bias, out), (m, H, W, h, w), stride, C, N, C, RELU=relu)
    return out


def in_images(delta: Tensor, weights: Tensor, size: tuple[int, int], stride: int) -> Tensor:
    """The gradient in a, (B, m, H, W, inputs), from that at w * a + b, delta."""
    copies, m, h, w, N = delta.shape
    (H, W), C = size, weights.shape[4]
    found = delta.new_empty(copies, m, H, W, C)
    turned = weights.new_empty(copies, C, 3, 3, N)
    _turn[(copies * 9, triton.cdiv(N, _TURN), triton.cdiv(C, _TURN))](weights, turned, R=N, K=C, BLOCK=_TURN)
    places = m * triton.cdiv(H, stride) * triton.cdiv(W, stride)
    tiles = _tiles(places)
    grid = (triton.cdiv(places, tiles.rows), triton.cdiv(C, tiles.columns), copies * stride**2)
    _launch(_images, grid, tiles, (delta, turned, found), (m, H, W, h, w), stride, C, N, N)
    return found


def in_weights(a: Tensor, delta: Tensor, stride: int, of_delta: Sequence[Tensor] = ()) -> Tensor:
    """The gradient in w, (B, outputs, 3, 3, inputs), from that at w * a + b, delta, and its halves if there are."""
    copies, m, H, W, C = a.shape
    h, w, N = delta.shape[2:]
    halves = [a, a, delta, delta] if _exact() else [*_halves(a)[1:], *(of_delta or _halves(delta)[1:])]
    found = a.new_empty(copies, N, 3, 3, C)
    tiles = FEW if _exact() else WEIGHTS
    tiles = tiles if tiles.columns <= C else replace(tiles, columns=16)
    each = triton.cdiv(N, tiles.rows) * triton.cdiv(C, tiles.columns)
    for some in zip(*(torch.split(t, _MOST) for t in (*halves, found)), strict=True):
        _launch(_weights, (each, 9, len(some[0])), tiles, some, (m, H, W, h, w), stride, C, N, m * h * w)
    return found


def backward(
    a: Tensor, weights: Tensor, out: Tensor, gradient: Tensor, stride: int, to_images: bool, to_weights: bool
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """The gradients in a and in w (B, outputs, 3, 3, inputs), if asked for, and in b, from that at `out`."""
    of_delta: list[Tensor] = []
    if _exact():
        delta = torch.where(out > 0, gradient, 0.0)
    else:
        delta, *of_delta = _halves(gradient, out)
    in_w = in_weights(a, delta, stride, of_delta) if to_weights else None
    H, W = a.shape[2:4]
    in_a = in_images(delta, weights, (H, W), stride) if to_images else None
    return in_a, in_w, delta.sum((1, 2, 3))


def _halves(x: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """x (where `out` is above 0, if given), and two bfloat16 whose sum it is."""
    kept = x if out is None else torch.empty_like(x)
    high, low = (torch.empty_like(x, dtype=torch.bfloat16) for _ in range(2))
    grid = (triton.cdiv(x.numel(), _BLOCK),)
    _halve[grid](x, x if out is None else out, kept, high, low, x.numel(), MASK=out is not None, BLOCK=_BLOCK)
    return kept, high, low


def _exact() -> bool:
    """Whether products are to be as float32 has them."""
    return not torch.backends.cuda.matmul.allow_tf32


def _tiles(places: int) -> Tiles:
    return MANY if places >= ENOUGH and not _exact() else FEW  # exact products need more registers


def _launch(  # type: ignore[no-untyped-def]
    kernel, grid: tuple[int, int, int], tiles: Tiles, tensors: tuple[Tensor, ...], shape: tuple[int, ...],
    stride: int, C: int, N: int, depth: int, **more: bool,
) -> None:  # fmt: skip
    assert all(t.is_contiguous() for t in tensors)
    assert all(t.numel() < len(t) * 2**31 for t in tensors), "a copy's place must fit into 32 bits"
    kernel[grid](
        *tensors, *shape, S=stride, C=C, N=N, BM=tiles.rows, BN=tiles.columns,
        BK=tiles.depth if depth > 16 else 16, PRECISION="ieee" if _exact() else "tf32",
        num_warps=tiles.warps, num_stages=tiles.stages, **more,
    )  # fmt: skip
