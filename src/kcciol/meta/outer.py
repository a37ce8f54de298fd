"""One pass of Algorithm 2's loop, lines 4 to 10: the gradient of l_meta + lambda l_constraint.

The encoder runs once over all images of the step; the inner loop works on its features. With g the gradient of l_meta
in Theta and v = mask * g, the gradient of l_constraint = |v|^2 is 2 H v, H the Hessian of l_meta. By the chain rule

    z' = J v_theta                                the features' tangent
    (gW', u') = D^2 m [v_W, z']                   the inner loop's part
    gtheta' = J^T u' + (dJ/dtheta [v_theta])^T u  the encoder's backward pass, moved

so no convolution is ever differentiated twice.

Where a step's trajectories are split over ranks, l_meta, g and H v are means over the ranks. Each rank needs the whole
g before it can take v; what it adds to H v is reduced afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kcciol.engine.ranks import ALONE, Mean
from kcciol.meta.inner import Inner, TrajectoryLabels
from kcciol.nets.classification import Classification


@dataclass(frozen=True)
class MetaGradient:
    """What one meta-step computes."""

    loss: Tensor  # l_meta
    gradient: Tensor  # of l_meta + lambda l_constraint, a vector like Theta
    constraint: Tensor | None  # l_constraint, in phase 3
    share: Tensor | None  # |lambda grad l_constraint| / |grad l_meta|, in phase 3


def meta_gradient(
    problem: Classification,
    Theta: Tensor,
    rows: Tensor,
    y: TrajectoryLabels,
    inner: Inner,
    mask: Tensor | None = None,
    lam: float = 0.0,
    precision: torch.dtype | None = None,
    mean: Mean = ALONE.mean,
    kept: Tensor | None = None,
) -> MetaGradient:
    """A pure function of Theta and the images `rows` (see ConvEncoder.rows), tau_tr's before tau_val's.

    precision: the encoder's arithmetic, that of Theta if not given. mean: over the ranks that share the step.
    kept: what the features (n, d) are multiplied by, where some are dropped.
    """
    precision = precision or Theta.dtype
    cut = problem.theta_length
    encoder: Any = problem.encoder  # of either kind; a tape goes back to the one it came from
    theta = problem.theta(Theta[:cut].to(precision))  # line 4
    z, tape = encoder.forward(theta, encoder.patches(rows, precision))
    loss, gW, u = inner.gradient(problem.W(Theta), times(z.to(Theta.dtype), kept), y)  # lines 5 to 9
    u = times(u, kept)
    first = y.train.numel() if inner.order == "first" else 0  # images before this one do not count: their u is zero
    tape = tape.tail(first)
    gtheta = encoder.backward(theta, tape, u[first:].to(precision))
    loss, g = mean(loss), mean(problem.pack(gtheta, gW, Theta))
    if not lam:
        return MetaGradient(loss, g, None, None)
    assert mask is not None
    v = mask * g  # line 10: l_constraint is its squared norm
    v_theta = problem.theta(v[:cut].to(precision))
    zdot = encoder.tangent(theta, tape, v_theta).to(Theta.dtype)
    if first:
        zdot = torch.cat([zdot.new_zeros(first, zdot.shape[1]), zdot])
    gWdot, udot = inner.hvp(problem.W(v), times(zdot, kept))
    udot = times(udot, kept)
    gthetadot = encoder.tangent_backward(theta, tape, v_theta, udot[first:].to(precision))
    pull = mean(problem.pack(gthetadot, gWdot, Theta)).mul_(2 * lam)
    return MetaGradient(loss, g + pull, v @ v, pull.norm() / g.norm())


def times(z: Tensor, kept: Tensor | None) -> Tensor:
    """Features without those that are dropped."""
    return z if kept is None else z * kept
