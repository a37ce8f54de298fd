"""Generation as a kind of problem for members that train together."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from kcciol.data.classset import ClassSet
from kcciol.engine.device import pick_device
from kcciol.errors import UserError
from kcciol.paper.ensemble.train import Kind, State, load_state, train_members
from kcciol.paper.gan.network import Networks
from kcciol.paper.gan.settings import GenerationConfig
from kcciol.paper.gan.step import DigitImages, DigitStep


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
