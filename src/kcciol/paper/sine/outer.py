"""Algorithm 2 for regression: the meta-gradient and the constraint, for all members at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.config import GradientOrder
from kcciol.paper.ensemble import Affine
from kcciol.paper.ensemble.step import with_constraint
from kcciol.paper.sine import network
from kcciol.paper.sine.adjoint import PLAIN_LOOPS, Loops, all_finite
from kcciol.paper.sine.functions import SineTrajectories
from kcciol.paper.sine.network import RegressionNetwork


@dataclass
class SineGradient:
    """Of each member."""

    loss: Tensor  # (M,), the mean over the trajectories that stayed finite; NaN where none did
    gradient: Tensor  # (M, length), with the constraint's; zero where that is not finite
    constraint: Tensor  # (M,)
    diverged: Tensor  # (M,), how many trajectories were left out


def meta_gradient(
    net: RegressionNetwork,
    Theta: Tensor,
    batch: SineTrajectories,
    alpha: Tensor,
    order: GradientOrder,
    mask: Tensor | None = None,
    lam: Tensor | None = None,
    constraint: GradientOrder = "first",
    loops: Loops = PLAIN_LOOPS,
    shares: Tensor | None = None,
) -> SineGradient:
    """The gradient in Theta (M, length) of the error on tau_val after W has learned tau_tr at rates alpha (M,).

    shares (M, slots): how much the error on the functions seen so far counts after each of them; None: that after the
    last one alone. With a mask (M, length) and lam (M,), also that of lam |mask * gradient|^2, the gradient there being
    of order `constraint`, exact only where `order` is. first: the updates of W are constants. Inner loops that end in
    numbers that are not finite, or whose derivatives do, are left out: at the printed rate some do.
    """
    members, count, steps, n = batch.y.shape
    times = 1 if shares is None else batch.chosen.shape[2]  # how often it is asked
    y, rates = batch.y.flatten(0, 1), alpha.repeat_interleave(count)[:, None, None]
    lost = torch.zeros(members * count, dtype=torch.bool, device=Theta.device)
    twice = order == "exact" and mask is not None and constraint == "exact"
    with torch.enable_grad():
        leaf = Theta.detach().requires_grad_()
        start = [(w.repeat_interleave(count, 0), b.repeat_interleave(count, 0)) for w, b in net.layers(leaf, "W")]

        def features() -> Tensor:
            x = batch.x.reshape(members, -1, net.inputs)
            z = network.represent(net.layers(leaf, "theta"), x)
            return z.view(members * count, steps, n, net.features)

        if order == "exact" and not twice:
            learned = found = loops.through(start, features(), y, rates, times, lost)
            finite = ~lost
        else:
            with torch.no_grad():
                found = network.stages(loops.learn, start, features(), y, rates, times)
                finite = all_finite(found)
            if twice:  # autograd goes through it, and through that; a copy that does not stay finite learns nothing
                learned = network.stages(network.learn, start, features(), y, rates * finite[:, None, None], times)
            else:
                learned = _shifted(start, found, finite)
        loss, alive = _loss(net, leaf, batch, learned, finite, shares)
        held = None
        if mask is not None and constraint != order:
            held, _ = _loss(net, leaf, batch, _shifted(start, found, finite), finite, shares)
        total, penalty = with_constraint(loss, leaf, mask, lam, held)
    gradient = torch.where(total.isfinite().all(1, keepdim=True), total, 0.0)
    known = torch.where(alive.any(1), loss.detach(), torch.nan)
    return SineGradient(known, gradient, penalty, ((alive == 0) | lost.view(members, count)).sum(1))


def _loss(
    net: RegressionNetwork,
    Theta: Tensor,
    batch: SineTrajectories,
    learned: Sequence[Affine],
    finite: Tensor,
    shares: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The mean error (M,) of the trajectories that stay finite, and which do, (M, R), as numbers. learned: W after each
    function that is asked, (times, M * R, ...)."""
    members, count, asked = batch.y_query.shape
    times = len(learned[0][0])
    x, truth = batch.x_query.reshape(members, -1, net.inputs), batch.y_query.flatten(0, 1)
    z = network.represent(net.layers(Theta, "theta"), x).view(1, members * count, asked, net.features)
    answers = network.predict(
        [(w.flatten(0, 1), b.flatten(0, 1)) for w, b in learned], z.expand(times, -1, -1, -1).flatten(0, 1)
    ).view(times, members * count, asked)
    weights = _weights(times, asked, truth)[:, None]  # what an answer counts
    if shares is not None:
        weights = weights * shares.repeat_interleave(count, 0).T[:, :, None]
    gaps = torch.where(weights > 0, answers - truth, 0.0)  # what comes later may overflow
    losses = (gaps.square() * weights).sum((0, 2))
    finite = finite & losses.detach().isfinite()
    alive = finite.view(members, count).to(losses.dtype)
    losses = torch.where(finite, losses, 0.0).view(members, count)
    return (losses * alive / alive.sum(1, keepdim=True).clamp_min(1)).sum(1), alive


def _weights(times: int, asked: int, like: Tensor) -> Tensor:
    """(times, asked): of the mean over what was seen, each time as much more; later is zero."""
    seen = asked // times * torch.arange(1, times + 1, device=like.device)[:, None]
    return (torch.arange(asked, device=like.device) < seen).to(like.dtype) / seen


def _shifted(start: Sequence[Affine], to: Sequence[Affine], finite: Tensor) -> list[Affine]:
    """The start and the constant that the inner loop has added to it; nothing to copies that are not finite."""
    with torch.no_grad():
        moves = [
            (torch.where(finite[:, None, None], w - w0, 0.0), torch.where(finite[:, None], b - b0, 0.0))
            for (w, b), (w0, b0) in zip(to, start, strict=True)
        ]
    return [(w + dw, b + db) for (w, b), (dw, db) in zip(start, moves, strict=True)]
