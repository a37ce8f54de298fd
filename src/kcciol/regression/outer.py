"""Algorithm 2 for regression: the meta-gradient and the constraint, for all members at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kcciol.regression import network
from kcciol.regression.functions import Batch
from kcciol.regression.learning import Learn
from kcciol.regression.network import Layer, Network
from kcciol.together.step import with_constraint


@dataclass
class MetaGradient:
    """Of each member."""

    loss: Tensor  # (M,), the mean over the trajectories that stayed finite
    gradient: Tensor  # (M, length), with the constraint's; zero where nothing finite was left
    constraint: Tensor  # (M,)
    diverged: Tensor  # (M,), how many trajectories did not stay finite


def meta_gradient(
    net: Network,
    Theta: Tensor,
    batch: Batch,
    alpha: Tensor,
    order: Literal["first", "exact"],
    mask: Tensor | None = None,
    lam: Tensor | None = None,
    learn: Learn = network.learn,
    shares: Tensor | None = None,
) -> MetaGradient:
    """The gradient in Theta (M, length) of the error on tau_val after W has learned tau_tr at rates alpha (M,).

    shares (M, slots): how much the error on the functions seen so far counts after each of them; None: that after the
    last one alone. With a mask (M, length) and lam (M,), also that of lam |mask * gradient|^2. first: the updates of W
    are constants. Inner loops that end in numbers that are not finite are left out: at the printed rate some do.
    """
    with torch.enable_grad():
        leaf = Theta.detach().requires_grad_()
        losses, finite = _losses(net, leaf, batch, alpha, order, learn, shares)
        weights = finite / finite.sum(1, keepdim=True).clamp_min(1)  # (M, R)
        loss = (losses * weights).sum(1)
        total, constraint = with_constraint(loss, leaf, mask, lam)
    gradient = torch.where(total.isfinite().all(1, keepdim=True), total, 0.0)
    return MetaGradient(loss.detach(), gradient, constraint, (finite == 0).sum(1))


def _losses(
    net: Network, Theta: Tensor, batch: Batch, alpha: Tensor, order: str, learn: Learn, shares: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The error of each trajectory (M, R), zero where it is not finite, and 1 where it is."""
    members, count, steps, n = batch.y.shape
    theta, start = net.layers(Theta, "theta"), net.layers(Theta, "W")
    W = [(w.repeat_interleave(count, 0), b.repeat_interleave(count, 0)) for w, b in start]  # (M R, ...)
    rates = alpha.repeat_interleave(count)[:, None, None]
    y = batch.y.flatten(0, 1)

    def features(x: Tensor, *shape: int) -> Tensor:
        return network.represent(theta, x.reshape(members, -1, net.inputs)).view(members * count, *shape, net.features)

    slots, asked = batch.chosen.shape[2], batch.y_query.shape[2]
    times = 1 if shares is None else slots  # how often it is asked
    with torch.no_grad():
        stages = _stages(W, features(batch.x, steps, n), y, rates, learn, times)
        finite = torch.stack([t.flatten(1).isfinite().all(1) for layer in stages[-1] for t in layer]).all(0)
    if order == "exact":  # once more, to differentiate; a copy that does not stay finite learns nothing instead
        learned = _stages(W, features(batch.x, steps, n), y, rates * finite[:, None, None], learn, times)
    else:
        learned = [[_moved(layer, to, finite) for layer, to in zip(W, stage, strict=True)] for stage in stages]
    z, truth = features(batch.x_query, asked), batch.y_query.flatten(0, 1)
    losses = torch.zeros_like(truth[:, 0])
    for i, now in enumerate(learned, 1):
        seen = asked * i // times
        error = (network.predict(now, z[:, :seen]) - truth[:, :seen]).square().mean(1)
        losses = losses + (error if shares is None else error * shares[:, i - 1].repeat_interleave(count))
    finite = finite & losses.detach().isfinite()
    losses = torch.where(finite, losses, 0.0)
    return losses.view(members, count), finite.view(members, count).to(losses.dtype)


def _stages(W: list[Layer], z: Tensor, y: Tensor, rates: Tensor, learn: Learn, times: int) -> list[list[Layer]]:
    """W at `times` evenly spaced moments of the inner loop, the last of them its end."""
    found, learned, each = [], W, y.shape[1] // times
    for i in range(times):
        some = slice(i * each, (i + 1) * each)
        learned = learn(learned, z[:, some], y[:, some], rates)
        found.append(learned)
    return found


def _moved(layer: Layer, to: Layer, finite: Tensor) -> Layer:
    """A layer and the constant that the inner loop has added to it; nothing to copies that are not finite."""
    with torch.no_grad():
        weight = torch.where(finite[:, None, None], to[0] - layer[0], 0.0)
        bias = torch.where(finite[:, None], to[1] - layer[1], 0.0)
    return layer[0] + weight, layer[1] + bias
