"""Examples kept for replay: which enter, which leave, and what they weigh beside the new one. All copies hold equally
many; each copy draws its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.learners.base import Learner, Settings
from kcciol.learners.bounds import bounded
from kcciol.learners.model import Model
from kcciol.random import integers, sample

_INSERT, _DRAW = 0, 1  # purposes of random numbers
PREFIX = "memory."

Weighting = Literal["joint", "additive"]


def reservoir_slots(keys: NDArray[np.int64], time: int, capacity: int) -> NDArray[np.int64]:
    """Where the example number `time` (from 0) goes in each copy, -1 being nowhere: each of the examples so far is kept
    with the same probability."""
    if time < capacity:
        return np.full(len(keys), time, dtype=np.int64)
    slots = integers(keys, time, _INSERT, 1, time + 1)[:, 0]
    slots[slots >= capacity] = -1
    return slots


class Memory:
    """A reservoir of `capacity` examples in tensors of the learner's state."""

    def __init__(self, state: dict[str, Tensor], capacity: int, keys: NDArray[np.int64], device: torch.device) -> None:
        """state has a tensor (B, capacity, ...) of whatever is kept."""
        self.state, self.capacity, self.keys, self.device = state, capacity, keys, device
        self.everyone = torch.arange(len(keys), device=device)[:, None]

    def __getitem__(self, name: str) -> Tensor:
        return self.state[PREFIX + name]

    def filled(self, time: int) -> int:
        return min(time, self.capacity)

    def add(self, time: int, values: Mapping[str, Tensor]) -> None:
        """Offer the example number `time`."""
        self.put(reservoir_slots(self.keys, time, self.capacity), values)

    def put(self, slots: NDArray[np.int64], values: Mapping[str, Tensor]) -> None:
        """Write values (B, ...) to a slot of each copy; -1 writes nothing."""
        kept = np.flatnonzero(slots >= 0)
        if len(kept) == 0:
            return
        copies, where = (torch.from_numpy(v).to(self.device) for v in (kept, slots[kept]))
        for name, value in values.items():
            self[name][copies, where] = value[copies]

    def draw(self, time: int, count: int, purpose: int = 0) -> Tensor | None:
        """Slots (B, k) of k = min(count, filled) different examples for each copy; none when there are none."""
        k = min(count, self.filled(time))
        if k == 0:
            return None
        slots = sample(self.keys, time, _DRAW + purpose, k, self.filled(time))
        return torch.from_numpy(slots).to(self.device)

    def read(self, name: str, slots: Tensor) -> Tensor:
        """(B, k) -> (B, k, ...)."""
        whole = self[name]
        if len(slots) == 1:  # quicker than by two indices
            return whole[0].index_select(0, slots[0])[None]
        return whole[self.everyone, slots]


def bytes_of(model: Model) -> int:
    """What an example and its label take."""
    return 8 + math.prod(model.input_shape) * model.input_dtype.itemsize


@dataclass(frozen=True)
class SlotSettings(Settings):
    slots: int = bounded(200, low=1, remedy="use `online` to keep nothing")
    """Examples in the memory."""


@dataclass(frozen=True)
class DrawSettings(Settings):
    """Every method that replays examples has these."""

    replay: int = bounded(10, low=0)
    """Examples replayed at each step."""

    @property
    def inputs(self) -> int:
        return 1 + 2 * self.replay  # DER++ takes two draws


@dataclass(frozen=True)
class WeightingSettings(DrawSettings):
    """And those with one loss over new and replayed examples these."""

    weighting: Weighting = "joint"
    """joint: one mean over the new and the replayed examples; additive: the new one, plus `replay_weight` times the
    mean of the others (which gives a single new example the weight of all the others together)."""
    replay_weight: float = bounded(1.0, low=0)
    """additive: weight of the replayed examples."""


def shares(weighting: Weighting, count: float | Tensor, weight: float | Tensor) -> tuple[Any, Any]:
    """Weights of the loss of the new example and of each of `count` replayed ones."""
    if weighting == "joint":
        return 1 / (1 + count), 1 / (1 + count)
    return 1.0, weight / (count.clamp_min(1) if isinstance(count, Tensor) else max(count, 1))


class MemoryLearner(Learner):
    """A learner with examples and what belongs to them in `kept`; all of `state` that is named memory.* is as full."""

    fields: tuple[str, ...] = ("x", "y")
    class_numbers: ClassVar[Mapping[str, int]] = {PREFIX + "y": 0}

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        return super().extra_bytes(model, settings, classes) + int(settings.slots * bytes_of(model))

    def _setup(self) -> None:
        super()._setup()
        self.kept = Memory(self.state, self.choice("slots"), self.keys, self.device)
        kinds = {"x": (self.model.input_shape, self.model.input_dtype), "y": ((), torch.int64)}
        for name in self.fields:
            shape, dtype = kinds[name]
            whole = torch.zeros(self.copies, self.kept.capacity, *shape, dtype=dtype, device=self.device)
            self.state[PREFIX + name] = whole

    def _used(self) -> dict[str, Tensor]:
        filled = self.kept.filled(self.steps)
        return {n: t[:, :filled] if n.startswith(PREFIX) else t for n, t in super()._used().items()}

    def weights(self, count: int) -> tuple[Any, Any]:
        """Those of the new example and of each of `count` replayed ones; what differs from copy to copy is (B, 1)."""
        how = self.choice("weighting")
        return shares(how, count, 1.0 if how == "joint" else self.column("replay_weight")[:, None])

    def with_replay(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
        """The new examples (B, 1, ...), (B, 1) and the replayed ones after them, and the weights of their losses."""
        slots = self.kept.draw(self.steps, self.choice("replay"))
        if slots is None:
            return x, y, 1.0
        x, y = torch.cat([x, self.kept.read("x", slots)], 1), torch.cat([y, self.kept.read("y", slots)], 1)
        _, old = self.weights(slots.shape[1])
        if not isinstance(old, Tensor):
            return x, y, old
        return x, y, torch.cat([torch.ones_like(old), old.expand(slots.shape)], 1)
