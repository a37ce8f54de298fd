"""One meta-step of all members, from drawing the images to the updated Theta, on tensors that stay in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.data.classset import ClassSet
from kcciol.generation.network import Networks
from kcciol.generation.outer import Batch, meta_gradient
from kcciol.generation.settings import GenerationConfig, TrajectoryConfig
from kcciol.kernels import EPS
from kcciol.together.noise import keyed, uniform
from kcciol.together.train import BLOCK

_CLASS, _OWN, _ANY, _NOISE, _BETWEEN = range(5)  # purposes of random numbers


@dataclass(frozen=True)
class Images:
    """Real images on the device, and what they show: class c has the label labels[c]."""

    pixels: Tensor  # (C, S, pixels) uint8
    counts: Tensor  # (C,)
    labels: Tensor  # (C,)

    @classmethod
    def of(cls, data: ClassSet, labels: Sequence[int], device: torch.device | str) -> Images:
        pixels = data.images.flatten(2).to(device)
        return cls(pixels, data.counts.to(device), torch.tensor(labels, device=device))

    def at(self, classes: Tensor, u: Tensor) -> Tensor:
        """Images (..., pixels), -1..1, of classes (...), which of them by numbers u in [0, 1)."""
        places = (u * self.counts[classes]).long()
        return self.pixels[classes, places].float() / 127.5 - 1


def draw(images: Images, config: TrajectoryConfig, noise: int, seeds: Tensor, time: Tensor) -> Batch:
    """`count` trajectories for each member. Members with the same seed see the same."""
    members, count, k = len(seeds), config.count, config.support
    number = torch.arange(count, device=seeds.device)
    keys = keyed(seeds[:, None], time.view(-1, 1), number)  # (M, R)
    size = len(images.pixels)
    chosen = (uniform(keyed(keys, _CLASS), 1) * size).long()  # (M, R, 1)
    own = uniform(keyed(keys, _OWN), k + config.query)
    classes = chosen.expand(members, count, k + config.query)
    others = uniform(keyed(keys, _ANY), 2 * config.remember)
    any_class = (others[..., : config.remember] * size).long()
    x = images.at(classes, own)
    remembered = images.at(any_class, others[..., config.remember :])
    asked = torch.cat([classes[..., k:], any_class], -1)
    q = config.query + config.remember
    z = normal(keyed(keys, _NOISE), (k + q) * noise).view(members, count, k + q, noise)
    return Batch(
        x[..., :k, :],
        images.labels[classes[..., :k]],
        z[..., :k, :],
        torch.cat([x[..., k:, :], remembered], -2),
        images.labels[asked],
        z[..., k:, :],
        uniform(keyed(keys, _BETWEEN), q),
    )


def normal(keys: Tensor, count: int) -> Tensor:
    """(..., count) normal numbers."""
    found: Tensor = torch.special.ndtri(uniform(keys, count).clamp(1e-7, 1 - 1e-7))
    return found


class MetaStep:
    """The state of one phase of members that differ in seed, rates, gamma and lambda; calling it does the next step."""

    def __init__(
        self,
        images: Images,
        nets: Networks,
        members: Sequence[GenerationConfig],
        number: int,
        Theta: Tensor,
        mask: Tensor | None = None,
    ) -> None:
        device, config = Theta.device, members[0]
        phases = [m.phases[number - 1] for m in members]
        self.images, self.nets, self.config, self.number = images, nets, config, number
        self.Theta, self.mask = Theta, mask
        self.m, self.v = torch.zeros_like(Theta), torch.zeros_like(Theta)
        self.alpha, self.beta, self.gamma, self.lam = (
            torch.tensor([getattr(p, name) for p in phases], device=device)
            for name in ("alpha", "beta", "gamma", "lam")
        )
        self.constrained = mask is not None and any(p.lam for p in phases)
        self.seeds = torch.tensor([m.seed for m in members], device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.metrics = torch.zeros(BLOCK, 3, len(members), device=device)

    @property
    def state(self) -> list[Tensor]:
        return [self.Theta, self.m, self.v, self.metrics]

    @property
    def counters(self) -> list[Tensor]:
        return [self.step]

    def __call__(self) -> None:
        time = self.step + (self.number << 40)  # the phases draw different trajectories
        batch = draw(self.images, self.config.trajectory, self.config.gan.noise, self.seeds, time)
        mask, lam = (self.mask, self.lam) if self.constrained else (None, None)
        found = meta_gradient(self.nets, self.Theta, batch, self.alpha, mask, lam)
        self._update(found.gradient)
        values = torch.stack([found.critic, found.generator, found.constraint])
        self.metrics.index_copy_(0, self.step % BLOCK, values[None])
        self.step += 1

    def _update(self, gradient: Tensor) -> None:
        """The l1 term, the clamp, Adam."""
        g = gradient + self.gamma[:, None] * self.Theta.sign()
        if self.config.clamp:
            g = g.clamp(-self.config.clamp, self.config.clamp)
        beta1, beta2, t = self.config.beta1, self.config.beta2, (self.step + 1).to(g.dtype)
        self.m.lerp_(g, 1 - beta1)
        self.v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        rate = (self.beta / (1 - beta1**t))[:, None]
        self.Theta.sub_(rate * self.m / ((self.v / (1 - beta2**t)).sqrt_().add_(EPS)))
