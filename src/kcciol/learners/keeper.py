"""Learners that keep some examples, in a reservoir."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.learner import Learner, Settings
from kcciol.learners.memory import PREFIX, Memory


@dataclass(frozen=True)
class KeeperSettings(Settings):
    slots: int = 200
    """Examples in the memory."""


class Keeper(Learner):
    """A learner with examples and what belongs to them in `kept`; all of `state` that is named memory.* is as full."""

    settings_type: ClassVar[type[Settings]] = KeeperSettings
    fields: tuple[str, ...] = ("x", "y")

    def _setup(self) -> None:
        super()._setup()
        slots = self.choice("slots")
        if slots < 1:
            raise UserError(f"slots is {slots}, but a memory needs at least 1: use `online` to keep nothing.")
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
        if saved.shape[2:] != whole.shape[2:] or saved.shape[1] > whole.shape[1]:
            raise UserError(f"The saved {name} is {tuple(saved.shape)}, which does not fit {tuple(whole.shape)}.")
        whole[:, : saved.shape[1]] = saved
        return whole
