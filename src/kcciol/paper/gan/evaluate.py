"""Novel classes learned in sequence by W of the generator and of the critic, and what is generated then."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.data.classset import ClassSet
from kcciol.kernels import Affine
from kcciol.nets.pixels import to_signed
from kcciol.optim import adam_, corrections
from kcciol.paper.gan.network import LabelledHead, Networks
from kcciol.paper.gan.outer import step_gradients
from kcciol.random import keyed, keyed_normal, keyed_uniform

BETAS = 0.5, 0.9  # of Adam, as in training
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
    Adam on W of both networks. theta stays as it is."""
    device, vector = Theta.device, Theta[None]
    thetas = [nets.theta(vector, name) for name in ("G", "D")]
    W = [t.clone() for name in ("G", "D") for t in nets.head(vector, name).tensors]
    moments = [(torch.zeros_like(t), torch.zeros_like(t)) for t in W]
    steps, made = 0, []
    for position, label in enumerate(labels):
        order = keyed_uniform(keyed(torch.tensor(seed), _REAL, position), int(novel.counts[position])).argsort()
        pixels = to_signed(novel.images[position, order[: batches * batch]].flatten(1))
        for number, real in enumerate(torch.split(pixels.to(device), batch)):
            key = keyed(torch.tensor(seed, device=device), _LEARN, position, number)
            noise = keyed_normal(key, len(real) * nets.gan.noise).view(1, len(real), -1)
            share = keyed_uniform(keyed(key, _BETWEEN), len(real))[None, :, None]
            steps += 1
            label_of = torch.full((1, len(real)), label, device=device)
            gradients = step_gradients(nets, thetas, W, real[None], noise, label_of, share)
            for tensor, g, (m, v) in zip(W, gradients, moments, strict=True):
                adam_(tensor, g, m, v, *corrections(rate, steps, BETAS), BETAS)
        key = keyed(torch.tensor(seed, device=device), _SHOW)
        noise = keyed_normal(key, shown * nets.gan.noise).view(1, shown, -1)
        made.append([_generate(nets, thetas[0], LabelledHead(*W[:3]), noise, j)[0] for j in labels[: position + 1]])
    return Generated(made, labels)


def _generate(nets: Networks, theta: list[Affine], head: LabelledHead, noise: Tensor, label: int) -> Tensor:
    labels = torch.full(noise.shape[:2], label, device=noise.device)
    return nets.apply(theta, head, noise, labels).tanh()
