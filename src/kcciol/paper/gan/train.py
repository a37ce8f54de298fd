"""Generation as a kind of problem for members that train together: one meta-step of all of them, from drawing the
images to the meta-gradient, and the training that takes such steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kcciol.data.classset import ClassSet
from kcciol.engine.device import pick_device
from kcciol.errors import UserError
from kcciol.nets.pixels import to_signed
from kcciol.paper.ensemble.step import MemberStep
from kcciol.paper.ensemble.train import Kind, State, load_state, train_members
from kcciol.paper.gan.network import Networks
from kcciol.paper.gan.outer import DigitTrajectories, meta_gradient
from kcciol.paper.gan.settings import DigitTrajectoryConfig, GenerationConfig
from kcciol.random import keyed, keyed_normal, keyed_uniform

_CLASS, _OWN, _ANY, _NOISE, _BETWEEN = range(5)  # purposes of random numbers


@dataclass(frozen=True)
class DigitImages:
    """Real images on the device, and what they show: class c has the label labels[c]."""

    pixels: Tensor  # (C, S, pixels) uint8
    counts: Tensor  # (C,)
    labels: Tensor  # (C,)

    @classmethod
    def of(cls, data: ClassSet, labels: Sequence[int], device: torch.device | str) -> DigitImages:
        pixels = data.images.flatten(2).to(device)
        return cls(pixels, data.counts.to(device), torch.tensor(labels, device=device))

    def at(self, classes: Tensor, places: Tensor) -> Tensor:
        """Images (..., pixels), -1..1, of classes (...), by their places there."""
        return to_signed(self.pixels[classes, places])

    def distinct(self, classes: Tensor, u: Tensor, order: Tensor) -> Tensor:
        """Places (..., n) of different images of classes (..., 1): a class is cut into n parts of which each gives one,
        by numbers u (..., n) in [0, 1), and the parts come in the order of the numbers `order`."""
        n = u.shape[-1]
        part = order.argsort(-1)
        counts = self.counts[classes]
        low, high = part * counts // n, (part + 1) * counts // n
        return low + (u * (high - low)).long()


def draw(
    images: DigitImages, config: DigitTrajectoryConfig, noise: int, seeds: Tensor, time: Tensor
) -> DigitTrajectories:
    """`count` trajectories for each member. Members with the same seed see the same."""
    members, count, k = len(seeds), config.count, config.support
    number = torch.arange(count, device=seeds.device)
    keys = keyed(seeds[:, None], time.view(-1, 1), number)  # (M, R)
    size = len(images.pixels)
    chosen = (keyed_uniform(keyed(keys, _CLASS), 1) * size).long()  # (M, R, 1)
    n = k + config.query
    own = keyed_uniform(keyed(keys, _OWN), 2 * n)
    places = images.distinct(chosen, own[..., :n], own[..., n:])
    classes = chosen.expand(members, count, n)
    others = keyed_uniform(keyed(keys, _ANY), 2 * config.remember)
    any_class = (others[..., : config.remember] * size).long()
    x = images.at(classes, places)
    remembered = images.at(any_class, (others[..., config.remember :] * images.counts[any_class]).long())
    asked = torch.cat([classes[..., k:], any_class], -1)
    q = config.query + config.remember
    z = keyed_normal(keyed(keys, _NOISE), (k + q) * noise).view(members, count, k + q, noise)
    return DigitTrajectories(
        x[..., :k, :],
        images.labels[classes[..., :k]],
        z[..., :k, :],
        torch.cat([x[..., k:, :], remembered], -2),
        images.labels[asked],
        z[..., k:, :],
        keyed_uniform(keyed(keys, _BETWEEN), q),
    )


class DigitStep(MemberStep):
    """See `MemberStep`; the metrics are both losses and the constraint."""

    def __init__(
        self,
        images: DigitImages,
        nets: Networks,
        members: Sequence[GenerationConfig],
        number: int,
        Theta: Tensor,
        mask: Tensor | None = None,
    ) -> None:
        super().__init__(members, number, Theta, mask)
        self.images, self.nets, self.trajectory = images, nets, members[0].trajectory
        self.betas = members[0].beta1, members[0].beta2

    def gradient(self, time: Tensor, mask: Tensor | None, lam: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        batch = draw(self.images, self.trajectory, self.nets.gan.noise, self.seeds, time)
        found = meta_gradient(self.nets, self.Theta, batch, self.alpha, mask, lam)
        return found.gradient, [found.critic, found.generator, found.constraint]


def kind(base: ClassSet, labels: Sequence[int], device: str = "auto") -> Kind:
    """The problem on these base classes, whose images show these labels."""
    if len(labels) != len(base):
        raise UserError(f"There are {len(base)} base classes, but {len(labels)} labels for them.")
    images = DigitImages.of(base, labels, pick_device(device))
    pixels = math.prod(base.image_shape)
    return Kind(
        GenerationConfig,
        lambda config: Networks(config.gan, pixels),
        functools.partial(DigitStep, images),
        ("critic", "generator", "constraint"),
    )


def train_digits(
    members: Sequence[GenerationConfig],
    base: ClassSet,
    labels: Sequence[int],
    out: Path,
    resume: bool = False,
    quiet: bool = False,
) -> Tensor:
    """Meta-train the members and leave everything in the folder `out`; Theta (M, length) at the end."""
    device = members[0].engine.device if members else "cpu"
    few = int(base.counts.min())
    for one in members:
        if one.gan.labels <= max(labels):
            raise UserError(
                f"gan.labels is {one.gan.labels}, but there is a class {max(labels)}: it must be above that."
            )
        if one.trajectory.support + one.trajectory.query > few:
            raise UserError(
                f"A trajectory takes {one.trajectory.support} + {one.trajectory.query} images of a class "
                f"(trajectory.support and query), but one has only {few}."
            )
    return train_members(kind(base, labels, device), members, out, resume, quiet)


def load_digits(base: ClassSet, labels: Sequence[int], path: Path) -> tuple[list[GenerationConfig], State]:
    """A checkpoint, or the state at the end of a phase."""
    return load_state(kind(base, labels, "cpu"), path)
