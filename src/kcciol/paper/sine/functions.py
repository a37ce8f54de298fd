"""Sine functions, and the trajectories drawn from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.paper.sine.settings import SineConfig
from kcciol.random import keyed, keyed_uniform

_TRAIN, _NOVEL, _CHOICE, _PLACES = range(4)  # purposes of random numbers
REACH = 5.0  # z is within plus or minus this


@dataclass(frozen=True)
class SineTrajectories:
    """Trajectories (M, R): what is learned, (..., T, n) with T = slots * batches, and what is asked, (..., q)."""

    x: Tensor  # (M, R, T, n, slots + 1)
    y: Tensor  # (M, R, T, n)
    x_query: Tensor  # (M, R, q, slots + 1)
    y_query: Tensor  # (M, R, q)
    chosen: Tensor  # (M, R, slots), which functions


@dataclass(frozen=True)
class Functions:
    """A set of functions for each member."""

    amplitude: Tensor  # (M, F)
    phase: Tensor  # (M, F)

    @classmethod
    def drawn(cls, seeds: Tensor, count: int, novel: bool = False) -> Functions:
        """The functions of members with these seeds (M,); those to train on and the novel ones differ."""
        u = keyed_uniform(keyed(seeds, _NOVEL if novel else _TRAIN), 2 * count)
        return cls(5 * (u[:, :count] + 0.02), math.pi * u[:, count:])

    def at(self, chosen: Tensor, z: Tensor) -> Tensor:
        """The values of functions chosen (M, ...) at places z (M, ..., n)."""
        flat = chosen.flatten(1)
        amplitude, phase = (t.gather(1, flat).view(*chosen.shape, 1) for t in (self.amplitude, self.phase))
        return amplitude * torch.sin(z + phase)


def inputs(slots: int, z: Tensor, slot: Tensor) -> Tensor:
    """(..., slots + 1) of places z (...) in slots (...): one-hot, then z."""
    hot = slot[..., None] == torch.arange(slots, device=z.device)
    return torch.cat([hot.to(z.dtype).expand(*z.shape, slots), z[..., None]], -1)


def draw(
    functions: Functions, config: SineConfig, seeds: Tensor, time: Tensor, count: int, first: int = 0
) -> SineTrajectories:
    """`count` trajectories for each member at a time (a whole number on the device, or one for each member), from
    number `first` on.

    Each takes different functions in random order; the place of a function in that order is its slot. Members with the
    same seed see the same trajectories, and a trajectory is what it is whichever are drawn with it.
    """
    members, slots, asked = len(seeds), config.slots, config.query
    number = torch.arange(first, first + count, device=seeds.device)
    keys = keyed(seeds[:, None], time.view(-1, 1), number)  # (M, R)
    order = keyed_uniform(keyed(keys, _CHOICE), functions.amplitude.shape[1])
    chosen = order.topk(slots).indices  # (M, R, slots)
    each = config.batches * config.batch
    places = (2 * keyed_uniform(keyed(keys, _PLACES), slots * (each + asked)) - 1) * REACH
    z = places.view(members, count, slots, each + asked)
    y = functions.at(chosen, z)
    slot = torch.arange(slots, device=seeds.device)[:, None].expand(slots, each + asked)
    x = inputs(slots, z, slot)
    learned = slots * config.batches, config.batch
    return SineTrajectories(
        x[..., :each, :].reshape(members, count, *learned, slots + 1),
        y[..., :each].reshape(members, count, *learned),
        x[..., each:, :].reshape(members, count, slots * asked, slots + 1),
        y[..., each:].reshape(members, count, slots * asked),
        chosen,
    )
