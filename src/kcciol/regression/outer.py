"""Algorithm 2 for regression: the meta-gradient and the constraint, for all members at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kcciol.regression import network
from kcciol.regression.functions import Batch
from kcciol.regression.learning import Learn
from kcciol.regression.network import Network
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
) -> MetaGradient:
    """The gradient in Theta (M, length) of the error on tau_val after W has learned tau_tr at rates alpha (M,).

    With a mask (M, length) and lam (M,), also that of lam |mask * gradient|^2. first: the updates of W are constants.
    Inner loops that end in numbers that are not finite are left out: at the printed rate some do.
    """
    with torch.enable_grad():
        leaf = Theta.detach().requires_grad_()
        losses, finite = _losses(net, leaf, batch, alpha, order, learn)
        weights = finite / finite.sum(1, keepdim=True).clamp_min(1)  # (M, R)
        loss = (losses * weights).sum(1)
        total, constraint = with_constraint(loss, leaf, mask, lam)
    gradient = torch.where(total.isfinite().all(1, keepdim=True), total, 0.0)
    return MetaGradient(loss.detach(), gradient, constraint, (finite == 0).sum(1))


def _losses(
    net: Network, Theta: Tensor, batch: Batch, alpha: Tensor, order: str, learn: Learn
) -> tuple[Tensor, Tensor]:
    """The error of each trajectory (M, R), zero where it is not finite, and 1 where it is."""
    members, count, steps, n = batch.y.shape
    theta, start = net.layers(Theta, "theta"), net.layers(Theta, "W")
    W = [(w.repeat_interleave(count, 0), b.repeat_interleave(count, 0)) for w, b in start]  # (M R, ...)
    rates = alpha.repeat_interleave(count)[:, None, None]
    y = batch.y.flatten(0, 1)

    def features(x: Tensor, *shape: int) -> Tensor:
        return network.represent(theta, x.reshape(members, -1, net.inputs)).view(members * count, *shape, net.features)

    if order == "exact":
        learned = learn(W, features(batch.x, steps, n), y, rates)
    else:
        with torch.no_grad():
            moved = learn(W, features(batch.x, steps, n), y, rates)
            changes = [(m[0] - w[0], m[1] - w[1]) for m, w in zip(moved, W, strict=True)]
        learned = [(w[0] + c[0], w[1] + c[1]) for w, c in zip(W, changes, strict=True)]
    finite = torch.stack([t.detach().flatten(1).isfinite().all(1) for layer in learned for t in layer]).all(0)
    safe = [(torch.where(finite[:, None, None], w, 0.0), torch.where(finite[:, None], b, 0.0)) for w, b in learned]
    error = network.predict(safe, features(batch.x_query, batch.y_query.shape[2])) - batch.y_query.flatten(0, 1)
    losses = error.square().mean(1)
    finite = finite & losses.detach().isfinite()
    losses = torch.where(finite, losses, 0.0)
    return losses.view(members, count), finite.view(members, count).to(losses.dtype)
