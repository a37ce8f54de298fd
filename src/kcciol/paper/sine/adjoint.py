"""The inner loop with a derivative, which is taken by running it backwards; and which implementation of it runs where.

Under autograd `network.learn` keeps every W on the way. But a step of SGD can be undone: W before it is W after it plus
the rate times the gradient, which is made of what the step computed at its few examples. Only that is kept; on the way
back the adjoint of W goes along with W itself, and those of the features and of the start fall out of it. The numbers
are autograd's, but for rounding. Of a copy that does not stay finite, on the way there or back, the derivative is zero.
W is asked for at several moments, all in one go: so z is taken as a whole, and its adjoint is too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kcciol.kernels import have_triton
from kcciol.paper.ensemble import Affine
from kcciol.paper.sine import network
from kcciol.paper.sine.network import Learn, activations, gradients, stack

Through = Callable[[Sequence[Affine], Tensor, Tensor, Tensor, int, Tensor], list[Affine]]


@dataclass(frozen=True)
class Way:
    """There and back. W at several moments is (times, B, ...)."""

    there: Callable[[Sequence[Affine], Tensor, Tensor, Tensor, int], tuple[list[Affine], Any]]
    """From W, z, y, alpha and times to W at so many evenly spaced moments of learning, and what it takes to go back."""
    back: Callable[[Sequence[Affine], Sequence[Affine], Tensor, Tensor, Any], tuple[Tensor, list[Affine]]]
    """From W at those moments, its adjoints, z, alpha and what was kept to the adjoints of z and of the start."""


def learn(
    W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor, times: int, lost: Tensor, way: Way | None = None
) -> list[Affine]:
    """`network.learn` by the plain way or another: W at `times` moments, (times, B, ...), the last of them the end.

    Its derivative, in W and z, can be taken once. lost (B,), of bool: becomes true for copies that do not stay finite,
    on the way there or on the way back. Their derivative is left out, and what they return is the start."""
    assert z.shape[1] % times == 0
    return _pairs(_Learn.apply(way or PLAIN, times, lost, z, y, alpha, *_flat(W)))  # type: ignore[no-untyped-call]


class _Learn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, way: Way, times: int, lost: Tensor, z: Tensor, y: Tensor, alpha: Tensor, *W: Tensor
    ) -> tuple[Tensor, ...]:
        stages, ctx.kept = way.there(_pairs(W), z, y, alpha, times)
        finite = all_finite(stages)
        lost |= ~finite
        found = [_where(finite, t, w, 1) for t, w in zip(_flat(stages), W, strict=True)]
        ctx.way, ctx.lost = way, lost
        ctx.save_for_backward(z, alpha, finite, *found)
        return tuple(found)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, no-untyped-call, unused-ignore]
    def backward(ctx: Any, *adjoints: Tensor) -> tuple[Tensor | None, ...]:
        z, alpha, finite, *stages = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, None  # no longer needed
        to_z, start = ctx.way.back(_pairs(stages), _pairs(adjoints), z, alpha, kept)
        every = [to_z, *_flat(start)]
        finite = finite & _finite(every)
        ctx.lost |= ~finite
        found = [_where(finite, t, t.new_zeros(()), 0) for t in every]
        return None, None, None, found[0], None, None, *found[1:]


def all_finite(stages: Sequence[Affine]) -> Tensor:
    """Whether all numbers of a copy are, (B,), of W at several moments."""
    return _finite(_flat(stages), 1)


def _finite(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Of the copies, which lie along a dimension."""
    largest = [torch.linalg.vector_norm(t, torch.inf, [i for i in range(t.dim()) if i != dim]) for t in tensors]
    return torch.stack(largest).isfinite().all(0)


def _where(finite: Tensor, t: Tensor, other: Tensor, dim: int) -> Tensor:
    return torch.where(finite.view([-1 if i == dim else 1 for i in range(t.dim())]), t, other)


def _pairs(flat: Sequence[Tensor]) -> list[Affine]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _flat(W: Sequence[Affine]) -> list[Tensor]:
    return [t for layer in W for t in layer]


# --- the plain way ----------------------------------------------------------------------------------------------------

KeptStep = tuple[list[Tensor], list[Tensor]]  # inputs of the layers above the first, gradients at the outputs of all


def _there(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor, times: int) -> tuple[list[Affine], list[KeptStep]]:
    learned, kept, stages = _copy(W), [], []
    for t in range(z.shape[1]):
        a = activations(learned, z[:, t])
        g = gradients(learned, a, y[:, t])
        _move(learned, a, g, -alpha)
        kept.append((a[1:-1], g))
        if (t + 1) % (z.shape[1] // times) == 0:
            stages.append(_copy(learned))
    return stack(stages), kept


def _back(
    stages: Sequence[Affine], adjoints: Sequence[Affine], z: Tensor, alpha: Tensor, kept: Sequence[KeptStep]
) -> tuple[Tensor, list[Affine]]:
    times, L = len(stages[0][0]), [(torch.zeros_like(w[0]), torch.zeros_like(b[0])) for w, b in stages]
    each, to_z = z.shape[1] // times, torch.empty_like(z)
    for i in range(times - 1, -1, -1):
        W = _copy([(w[i], b[i]) for w, b in stages])
        for own, more in zip(_flat(L), _flat(adjoints), strict=True):
            own += more[i]
        for t in range((i + 1) * each - 1, i * each - 1, -1):
            a, g = [z[:, t], *kept[t][0]], kept[t][1]
            _move(W, a, g, alpha)  # undone
            to_z[:, t] = step_back(W, L, a, g, alpha)
    return to_z, L


def _copy(W: Sequence[Affine]) -> list[Affine]:
    return [(weight.clone(), bias.clone()) for weight, bias in W]


def _move(W: Sequence[Affine], a: Sequence[Tensor], g: Sequence[Tensor], rate: Tensor) -> None:
    """W += rate * gradient in place, of layers with inputs a and gradients g at their outputs."""
    for i, (weight, bias) in enumerate(W):
        moved = g[i] * rate
        weight.baddbmm_(moved.mT, a[i])
        bias += moved.sum(1)


def step_back(
    W: Sequence[Affine], L: Sequence[Affine], a: Sequence[Tensor], g: Sequence[Tensor], alpha: Tensor
) -> Tensor:
    """Back through one step from W: L, the adjoint of W after it, becomes that of W, in place; returns that of the
    features a[0]. a are the inputs of the layers, g the gradients at their outputs."""
    active = [below > 0 for below in a]
    q: list[Tensor] = []  # up: adjoints of g, the first of which is computed last, and of the products it is made of
    for i, (weight, bias) in enumerate(L):
        r = torch.baddbmm(bias[:, None], a[i], weight.mT) * -alpha
        r = torch.baddbmm(r, q[-1], W[i][0].mT) if i else r
        q.append(r * active[i + 1] if i + 1 < len(a) else r)
    p = q[-1] * (2 / a[0].shape[1])  # down: of the outputs
    for i in range(len(W) - 1, 0, -1):
        below = torch.baddbmm((g[i] * -alpha) @ L[i][0], p, W[i][0])
        L[i][0].baddbmm_(p.mT, a[i]).baddbmm_(g[i].mT, q[i - 1])
        L[i][1].add_(p.sum(1))
        p = below * active[i]
    to_z = torch.baddbmm((g[0] * -alpha) @ L[0][0], p, W[0][0])
    L[0][0].baddbmm_(p.mT, a[0])
    L[0][1].add_(p.sum(1))
    return to_z


PLAIN = Way(_there, _back)


# --- which of them runs where -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loops:
    """The inner loop: from W, z, y and alpha to what is learned."""

    learn: Learn
    """Without derivatives."""
    through: Through
    """With a derivative, at several moments."""


PLAIN_LOOPS = Loops(network.learn, learn)


def inner_loops(device: torch.device, exact: bool) -> Loops:
    """The kernels where they can run, else the plain loops. exact: products in float32 on a GPU, else their operands
    are rounded to TF32."""
    if device.type != "cuda" or not have_triton():
        return PLAIN_LOOPS
    from kcciol.paper.sine import regression_back_triton, regression_triton

    way = Way(
        lambda W, z, y, alpha, times: regression_triton.learn_and_keep(W, z, y, alpha, times, exact),
        lambda stages, adjoints, z, alpha, kept: regression_back_triton.back(adjoints, z, alpha, kept, exact),
    )

    def by_kernel(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor) -> list[Affine]:
        if not regression_triton.fits(W, y):
            return network.learn(W, z, y, alpha)
        return regression_triton.learn(W, z, y, alpha, exact)

    def through(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor, times: int, lost: Tensor) -> list[Affine]:
        return learn(W, z, y, alpha, times, lost, way if regression_triton.fits(W, y) else None)

    return Loops(by_kernel, through)
