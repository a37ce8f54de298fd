"""Algorithm 2 for generation: the inner loop on W of both networks, the meta-gradient, the constraint.

Each network descends on a loss of its own: g, the meta-gradient, is the critic's loss differentiated in D's parameters
and the generator's in G's. The constraint is the squared length of mask * g all the same, and its gradient goes through
both, also from one network's part of g into the other's parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.paper.gan.network import LabelledHead, Networks


@dataclass(frozen=True)
class DigitTrajectories:
    """Trajectories (M, R): real images, their labels and noise, to learn (k) and to ask (q)."""

    x: Tensor  # (M, R, k, pixels), -1..1
    y: Tensor  # (M, R, k)
    noise: Tensor  # (M, R, k, noise)
    x_query: Tensor  # (M, R, q, pixels)
    y_query: Tensor
    noise_query: Tensor
    between: Tensor  # (M, R, q): where between a generated and a real image the penalty is taken, 0..1


@dataclass(frozen=True)
class DigitGradient:
    """Of each member."""

    critic: Tensor  # (M,) D(generated) - D(real) on tau_val
    generator: Tensor  # (M,) -D(generated)
    gradient: Tensor  # (M, length), with the constraint's
    constraint: Tensor  # (M,)


def meta_gradient(
    nets: Networks,
    Theta: Tensor,
    batch: DigitTrajectories,
    alpha: Tensor,
    mask: Tensor | None = None,
    lam: Tensor | None = None,
) -> DigitGradient:
    """The gradient in Theta (M, length) of both losses on tau_val, after W has learned tau_tr at rates alpha (M,); the
    inner loop's changes are taken as constants (first order)."""
    changes = learn(nets, Theta, batch, alpha)
    constrained = mask is not None and lam is not None
    with torch.enable_grad():
        G, D = (Theta.detach().requires_grad_() for _ in range(2))  # of each, the parameters of one network are used
        critic, penalty, generator = losses(nets, G, D, batch, changes, through=constrained)
        (in_D,) = torch.autograd.grad((critic + nets.gan.penalty * penalty).sum(), D, create_graph=constrained)
        (in_G,) = torch.autograd.grad(generator.sum(), G, create_graph=constrained)
        gradient, constraint = in_D + in_G, torch.zeros_like(critic)
        if mask is not None and lam is not None:
            constraint = (gradient * mask).square().sum(1)
            gradient = gradient + sum(torch.autograd.grad((lam * constraint).sum(), (G, D)))
    return DigitGradient(critic.detach(), generator.detach(), gradient.detach(), constraint.detach())


def losses(
    nets: Networks,
    G: Tensor,
    D: Tensor,
    batch: DigitTrajectories,
    changes: tuple[LabelledHead, LabelledHead],
    through: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """On tau_val, (M,) each: the critic's loss, its gradient penalty, the generator's loss; G's parameters are from one
    vector, D's from the other (M, length). through: let derivatives of each go into both vectors, which costs time;
    else the critic's two stay in D, and the generator's in G. changes are what the inner loop added."""
    members, count, _, _ = batch.x_query.shape
    labels, real = batch.y_query.flatten(0, 1), batch.x_query.flatten(0, 1)
    theta_G, head_G = nets.theta(G, "G"), moved(nets.head(G, "G"), changes[0], count)
    fake = nets.apply(theta_G, head_G, batch.noise_query.flatten(0, 1), labels).tanh()

    def critic(vector: Tensor, images: Tensor) -> Tensor:
        head = moved(nets.head(vector, "D"), changes[1], count)
        return nets.apply(nets.theta(vector, "D"), head, images, labels)[..., 0]

    shown, still = (fake, D) if through else (fake.detach(), D.detach())
    gap = critic(D, shown) - critic(D, real)
    share = batch.between.flatten(0, 1)[..., None]
    penalty = _penalty(lambda images: critic(D, images), share * real + (1 - share) * shown)
    generator = -critic(still, fake)
    return _mean(gap, members), _mean(penalty, members), _mean(generator, members)


def _penalty(critic: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """(B, n): the square of what the norm of the critic's gradient in each image is above one, or below it."""
    images = images if images.requires_grad else images.requires_grad_()
    (slopes,) = torch.autograd.grad(critic(images).sum(), images, create_graph=True)
    return ((slopes.square().sum(-1) + 1e-12).sqrt() - 1).square()


def _mean(values: Tensor, members: int) -> Tensor:
    return values.view(members, -1).mean(1)


def moved(head: LabelledHead, change: LabelledHead, count: int) -> LabelledHead:
    """A member's W (M, ...) for each of its trajectories (M R, ...), with what the inner loop changed."""
    return LabelledHead(*(a.repeat_interleave(count, 0) + b for a, b in zip(head.tensors, change.tensors, strict=True)))


@torch.no_grad()
def learn(nets: Networks, Theta: Tensor, batch: DigitTrajectories, alpha: Tensor) -> tuple[LabelledHead, LabelledHead]:
    """What SGD on tau_tr, an image a step, adds to W of G and of D, (M R, ...)."""
    _, count, steps, _ = batch.x.shape
    thetas = [nets.theta(Theta, name) for name in ("G", "D")]
    start = [t.repeat_interleave(count, 0) for name in ("G", "D") for t in nets.head(Theta, name).tensors]
    now = [t.clone() for t in start]
    rates = alpha.repeat_interleave(count)
    x, y, noise = (t.flatten(0, 1) for t in (batch.x, batch.y, batch.noise))
    for j in range(steps):
        here = slice(j, j + 1)
        gradients = step_gradients(nets, thetas, now, x[:, here], noise[:, here], y[:, here])
        for tensor, g in zip(now, gradients, strict=True):
            tensor -= rates.view(-1, *[1] * (tensor.dim() - 1)) * g
    found = [new - old for new, old in zip(now, start, strict=True)]
    return LabelledHead(*found[:3]), LabelledHead(*found[3:])


def step_gradients(
    nets: Networks,
    thetas: list[list[tuple[Tensor, Tensor]]],
    W: list[Tensor],
    real: Tensor,
    noise: Tensor,
    labels: Tensor,
    between: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Of each copy, the gradient of the generator's loss in W of G and of the critic's in W of D, for real images
    (B, n, pixels); W: the tensors of both heads. between (B, n, 1): with the gradient penalty, taken there."""
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in W]
        G, D, still = LabelledHead(*leaves[:3]), LabelledHead(*leaves[3:]), LabelledHead(*(t.detach() for t in W[3:]))
        n = real.shape[1]
        fake = nets.apply(thetas[0], G, noise, labels).tanh()
        gap = nets.apply(thetas[1], D, fake.detach(), labels) - nets.apply(thetas[1], D, real, labels)
        loss = (gap - nets.apply(thetas[1], still, fake, labels)).sum() / n
        if between is not None:
            middle = between * real + (1 - between) * fake.detach()
            penalty = _penalty(lambda images: nets.apply(thetas[1], D, images, labels), middle)
            loss = loss + nets.gan.penalty * penalty.sum() / n
        return torch.autograd.grad(loss, leaves)
