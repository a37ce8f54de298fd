"""Algorithm 2 for generation: the inner loop on both last layers, the meta-gradient, the constraint."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.generation.network import Layer, Networks, hidden, linear
from kcciol.together.step import with_constraint


@dataclass(frozen=True)
class Batch:
    """Trajectories (M, R): real images, their labels and noise, to learn (k) and to ask (q)."""

    x: Tensor  # (M, R, k, pixels), -1..1
    y: Tensor  # (M, R, k)
    noise: Tensor  # (M, R, k, noise)
    x_query: Tensor  # (M, R, q, pixels)
    y_query: Tensor
    noise_query: Tensor
    between: Tensor  # (M, R, q): where between a generated and a real image the penalty is taken, 0..1


@dataclass(frozen=True)
class MetaGradient:
    """Of each member."""

    critic: Tensor  # (M,) D(generated) - D(real) on tau_val
    generator: Tensor  # (M,) -D(generated)
    gradient: Tensor  # (M, length), with the constraint's
    constraint: Tensor  # (M,)


def meta_gradient(
    nets: Networks,
    Theta: Tensor,
    batch: Batch,
    alpha: Tensor,
    mask: Tensor | None = None,
    lam: Tensor | None = None,
) -> MetaGradient:
    """The gradient in Theta (M, length) of both losses on tau_val, after W has learned tau_tr at rates alpha (M,)."""
    changes = learn(nets, Theta, batch, alpha)
    with torch.enable_grad():
        leaf = Theta.detach().requires_grad_()
        critic, penalty, generator = losses(nets, leaf, batch, changes)
        loss = critic + nets.gan.penalty * penalty + generator
        gradient, constraint = with_constraint(loss, leaf, mask, lam)
    return MetaGradient(critic.detach(), generator.detach(), gradient, constraint)


def losses(nets: Networks, Theta: Tensor, batch: Batch, changes: tuple[Layer, Layer]) -> tuple[Tensor, Tensor, Tensor]:
    """On tau_val, (M,) each: the critic's, which moves D alone; its gradient penalty; the generator's, which moves G
    alone. changes are what the inner loop added to the last layers, (M R, ...)."""
    members, count, asked, _ = batch.x_query.shape
    slope = nets.gan.slope
    labels = batch.y_query.flatten(0, 1)

    def critic(vector: Tensor, images: Tensor) -> Tensor:
        """D of images (M R, q, pixels)."""
        x = nets.with_label(images, labels).view(members, count * asked, -1)
        z = hidden(nets.layers(vector, "theta.D"), x, slope).view(members * count, asked, -1)
        return linear(moved(nets.layers(vector, "W.D")[0], changes[1], count), z)[..., 0]

    noise = nets.with_label(batch.noise_query.flatten(0, 1), labels).view(members, count * asked, -1)
    z = hidden(nets.layers(Theta, "theta.G"), noise, slope).view(members * count, asked, -1)
    fake = linear(moved(nets.layers(Theta, "W.G")[0], changes[0], count), z).tanh()
    real = batch.x_query.flatten(0, 1)
    gap = critic(Theta, fake.detach()) - critic(Theta, real)
    share = batch.between.flatten(0, 1)[..., None]
    middle = (share * real + (1 - share) * fake.detach()).requires_grad_()
    (slopes,) = torch.autograd.grad(critic(Theta, middle).sum(), middle, create_graph=True)
    excess = (slopes.square().sum(-1) + 1e-12).sqrt() - 1
    generator = -critic(Theta.detach(), fake)
    return _mean(gap, members), _mean(excess.square(), members), _mean(generator, members)


def _mean(values: Tensor, members: int) -> Tensor:
    return values.view(members, -1).mean(1)


def moved(layer: Layer, change: Layer, count: int) -> Layer:
    """A member's last layer (M, ...) for each of its trajectories (M R, ...), with what the inner loop changed."""
    return layer[0].repeat_interleave(count, 0) + change[0], layer[1].repeat_interleave(count, 0) + change[1]


@torch.no_grad()
def learn(nets: Networks, Theta: Tensor, batch: Batch, alpha: Tensor) -> tuple[Layer, Layer]:
    """What SGD on tau_tr, an image a step, adds to the last layers of G and of D, (M R, ...)."""
    members, count, steps, _ = batch.x.shape
    labels, slope = batch.y.flatten(0, 1), nets.gan.slope
    theta_D = nets.layers(Theta, "theta.D")
    start = [nets.layers(Theta, f"W.{name}")[0] for name in ("G", "D")]
    G, D = ([t.repeat_interleave(count, 0) for t in layer] for layer in start)
    before = [[t.clone() for t in layer] for layer in (G, D)]
    rate = alpha.repeat_interleave(count)[:, None, None]

    def by_member(x: Tensor, name: str) -> Tensor:
        """theta of each member on its copies' inputs (M R, n, d)."""
        n = x.shape[1]
        return hidden(nets.layers(Theta, name), x.view(members, count * n, -1), slope).view(members * count, n, -1)

    noise = by_member(nets.with_label(batch.noise.flatten(0, 1), labels), "theta.G")
    real = by_member(nets.with_label(batch.x.flatten(0, 1), labels), "theta.D")
    for j in range(steps):
        z, label = noise[:, j : j + 1], labels[:, j : j + 1]
        fake = linear((G[0], G[1]), z).tanh()
        with torch.enable_grad():
            image = fake.detach().requires_grad_()
            x = nets.with_label(image, label).view(members, count, -1)
            seen = hidden(theta_D, x, slope).view(members * count, 1, -1)
            answer = linear((D[0], D[1]), seen)
            (pull,) = torch.autograd.grad(-answer.sum(), image)  # of the generator's loss at its image
        step = seen.detach() - real[:, j : j + 1]  # the gradient of D(generated) - D(real) in D's last layer
        back = pull * (1 - fake.square())
        D[0] -= rate * step
        G[0] -= rate * (back.mT @ z)
        G[1] -= rate[..., 0] * back[:, 0]
    found = [(now[0] - old[0], now[1] - old[1]) for now, old in zip((G, D), before, strict=True)]
    return found[0], found[1]
