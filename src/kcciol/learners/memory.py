"""Examples kept for replay: which enter, which leave, and what all learners share that keep some. All copies hold
equally many; each copy draws its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Learner, Settings
from kcciol.learners.bounds import bounded
from kcciol.learners.model import Model
from kcciol.random import integers, sample

_INSERT, _DRAW = 0, 1  # purposes of random numbers
PREFIX = "memory."


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

    def __init__(self, state: dict[str, Tensor], fields: Mapping[str, Tensor], capacity: int, keys: NDArray[np.int64]):
        """fields are examples (B, ...) of what is kept, by name; only their shape and type matter."""
        self.state, self.capacity, self.keys, self.names = state, capacity, keys, list(fields)
        for name, like in fields.items():
            state[PREFIX + name] = like.new_zeros(len(like), capacity, *like.shape[1:])

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
        device = self.state[PREFIX + self.names[0]].device
        copies, where = torch.from_numpy(kept).to(device), torch.from_numpy(slots[kept]).to(device)
        for name, value in values.items():
            self.state[PREFIX + name][copies, where] = value[copies]

    def draw(self, time: int, count: int, purpose: int = 0) -> Tensor | None:
        """Slots (B, k) of k = min(count, filled) different examples for each copy; none when there are none."""
        k = min(count, self.filled(time))
        if k == 0:
            return None
        slots = sample(self.keys, time, _DRAW + purpose, k, self.filled(time))
        return torch.from_numpy(slots).to(self.state[PREFIX + self.names[0]].device)

    def read(self, name: str, slots: Tensor) -> Tensor:
        """(B, k) -> (B, k, ...)."""
        whole = self.state[PREFIX + name]
        if len(slots) == 1:  # quicker than by two indices
            return whole[0].index_select(0, slots[0])[None]
        everyone = torch.arange(len(slots), device=slots.device)[:, None]
        return whole[everyone, slots]


def bytes_of(model: Model) -> int:
    """What an example and its label take."""
    return 8 + math.prod(model.input_shape) * model.input_dtype.itemsize


@dataclass(frozen=True)
class SlotSettings(Settings):
    slots: int = bounded(200, low=1, remedy="use `online` to keep nothing")
    """Examples in the memory."""


class MemoryLearner(Learner):
    """A learner with examples and what belongs to them in `kept`; all of `state` that is named memory.* is as full."""

    settings_type: ClassVar[type[Settings]] = SlotSettings
    fields: tuple[str, ...] = ("x", "y")
    class_numbers: ClassVar[Mapping[str, int]] = {PREFIX + "y": 0}

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        return super().extra_bytes(model, settings, classes) + int(settings.slots * bytes_of(model))

    def _setup(self) -> None:
        super()._setup()
        slots = self.choice("slots")
        shape, dtype = self.model.input_shape, self.model.input_dtype
        like = {
            "x": torch.empty(self.copies, *shape, dtype=dtype, device=self.device),
            "y": torch.empty(self.copies, dtype=torch.int64, device=self.device),
        }
        self.kept = Memory(self.state, {name: like[name] for name in self.fields}, slots, self.keys)

    def _used(self) -> dict[str, Tensor]:
        filled = self.kept.filled(self.steps)
        return {n: t[:, :filled] if n.startswith(PREFIX) else t for n, t in super()._used().items()}

    def _unused(self, name: str, saved: Tensor) -> Tensor:
        if not name.startswith(PREFIX):
            return super()._unused(name, saved)
        whole = torch.zeros_like(self.state[name])
        if saved.ndim < 2 or saved.shape[1] > whole.shape[1]:
            raise UserError(f"The saved {name} is {tuple(saved.shape)}, which does not fit {tuple(whole.shape)}.")
        self._require_alike(name, saved, (self.copies, saved.shape[1], *whole.shape[2:]))
        whole[:, : saved.shape[1]] = saved
        return whole
