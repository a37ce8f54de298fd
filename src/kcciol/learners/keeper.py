"""A reservoir for learners that keep examples but do not train a plain linear head."""

from __future__ import annotations

from dataclasses import dataclass

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
    """A learner with examples and their labels in `kept`."""

    settings_type = KeeperSettings

    def _setup(self) -> None:
        super()._setup()
        slots = self.choice("slots")
        if slots < 1:
            raise UserError(f"slots is {slots}, but this method cannot do without a memory: give it at least 1.")
        shape, dtype = self.model.input_shape, self.model.input_dtype
        x = torch.empty(self.copies, *shape, dtype=dtype, device=self.device)
        y = torch.empty(self.copies, dtype=torch.int64, device=self.device)
        self.kept = Memory(self.state, {"x": x, "y": y}, slots, self.keys)

    def _used(self) -> dict[str, Tensor]:
        n = self.kept.filled(self.steps)
        return super()._used() | {PREFIX + name: self.kept[name][:, :n] for name in self.kept.names}

    def _unused(self, name: str, saved: Tensor) -> Tensor:
        if not name.startswith(PREFIX):
            return super()._unused(name, saved)
        whole = torch.zeros_like(self.state[name])
        if saved.shape[2:] != whole.shape[2:] or saved.shape[1] > whole.shape[1]:
            raise UserError(f"The saved {name} holds {tuple(saved.shape)}, but there is room for {tuple(whole.shape)}.")
        whole[:, : saved.shape[1]] = saved
        return whole
