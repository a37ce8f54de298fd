"""Novel classes learned in sequence by the generator's and the critic's last layers, and what is generated then."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.data.classset import ClassSet
from kcciol.generation.network import Layer, Networks, hidden, linear
from kcciol.generation.step import normal
from kcciol.together.noise import keyed, uniform
from kcciol.together.step import adam_

_REAL, _LEARN, _SHOW, _BETWEEN = range(10, 14)


@dataclass(frozen=True)
class Generated:
    """Images (-1..1) made after each class: images[i][j] (n, pixels) of the j-th class after the i-th was learned."""

    images: list[list[Tensor]]
    labels: list[int]


def evaluate(
    nets: Networks,
    Theta: Tensor,
    novel: ClassSet,
    labels: list[int],
    seed: int,
    rate: float,
    batches: int = 25,
    batch: int = 64,
    shown: int = 100,
) -> Generated:
    """One member's Theta (length,). Each class brings `batches` batches of real images, seen once; each is one step of
    Adam on both last layers. theta stays as it is."""
    device, slope = Theta.device, nets.gan.slope
    vector = Theta[None]
    theta_G, theta_D = (nets.layers(vector, f"theta.{name}") for name in ("G", "D"))
    W = [t.clone() for name in ("G", "D") for t in nets.layers(vector, f"W.{name}")[0]]
    moments = [(torch.zeros_like(t), torch.zeros_like(t)) for t in W]
    steps, made = 0, []
    for position, label in enumerate(labels):
        order = uniform(keyed(torch.tensor(seed), _REAL, position), int(novel.counts[position])).argsort()
        pixels = novel.images[position, order[: batches * batch]].flatten(1).float() / 127.5 - 1
        for number, real in enumerate(torch.split(pixels.to(device), batch)):
            key = keyed(torch.tensor(seed, device=device), _LEARN, position, number)
            noise = normal(key, len(real) * nets.gan.noise).view(1, len(real), -1)
            share = uniform(keyed(key, _BETWEEN), len(real))[None, :, None]
            steps += 1
            gradients = _gradients(nets, theta_G, theta_D, W, real[None], noise, label, share, slope)
            for tensor, g, (m, v) in zip(W, gradients, moments, strict=True):
                adam_(tensor, g, m, v, rate, steps, (0.5, 0.9))
        key = keyed(torch.tensor(seed, device=device), _SHOW)
        noise = normal(key, shown * nets.gan.noise).view(1, shown, -1)
        made.append([_generate(nets, theta_G, (W[0], W[1]), noise, j, slope)[0] for j in labels[: position + 1]])
    return Generated(made, labels)


def _generate(nets: Networks, theta: list[Layer], W: Layer, noise: Tensor, label: int, slope: float) -> Tensor:
    labels = torch.full(noise.shape[:2], label, device=noise.device)
    return linear(W, hidden(theta, nets.with_label(noise, labels), slope)).tanh()


def _gradients(
    nets: Networks,
    theta_G: list[Layer],
    theta_D: list[Layer],
    W: list[Tensor],
    real: Tensor,
    noise: Tensor,
    label: int,
    share: Tensor,
    slope: float,
) -> list[Tensor]:
    """Of the generator's loss in its last layer and of the critic's, with the penalty, in its own."""
    labels = torch.full(real.shape[:2], label, device=real.device)
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in W]
        fake = _generate(nets, theta_G, (leaves[0], leaves[1]), noise, label, slope)

        def critic(images: Tensor, last: list[Tensor]) -> Tensor:
            return linear((last[0], last[1]), hidden(theta_D, nets.with_label(images, labels), slope))

        gap = (critic(fake.detach(), leaves[2:]) - critic(real, leaves[2:])).mean()
        middle = (share * real + (1 - share) * fake.detach()).requires_grad_()
        (slopes,) = torch.autograd.grad(critic(middle, leaves[2:]).sum(), middle, create_graph=True)
        penalty = ((slopes.square().sum(-1) + 1e-12).sqrt() - 1).square().mean()
        frozen = [t.detach() for t in leaves[2:]]
        loss = gap + nets.gan.penalty * penalty - critic(fake, frozen).mean()
        return list(torch.autograd.grad(loss, leaves, allow_unused=False))
