"""The contract of a learner: what happens when one labelled example arrives.

A learner is B copies of one method, each with its own stream and settings, that take one example each at a time. One
stream is B = 1. Labels are numbers, given out in any order, and may be new at any time; `OnlineLearner` in front of it
takes labels of any kind. All that a learner knows is in `state_dict`; all of it but the network's weights is memory.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.model import Model
from kcciol.values import from_dict

Labels = NDArray[np.int64]  # (B,), on the host


@dataclass(frozen=True)
class Card:
    """What `kcciol list learners` says of a method."""

    what: str
    paper: str  # where it comes from
    replay: bool = False  # keeps examples
    tasks: bool = False  # is told when a task ends
    order_free: bool = False  # the order of the examples changes nothing
    sequential: bool = False  # its copies run one after another
    solves: bool = False  # the first answer after an example costs the solution of a large system
    trains: tuple[str, ...] = ("head", "all")  # a head on a frozen network, the whole network


@dataclass(frozen=True)
class Settings:
    """Numbers may differ from copy to copy; everything else is the same for all."""


def check_settings(settings: Settings) -> None:
    """Refuse values of another type, words that are not a choice, and numbers that are not finite."""
    values = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{name} is {value}, but must be a finite number.")
        if isinstance(value, int) and abs(value) >= 2**31:
            raise UserError(f"{name} is {value}, but must be below 2^31.")
    from_dict(type(settings), values)


class Learner(ABC):
    """B copies of a method. A method keeps its tensors in `state` or, those with a row for each class, in `rows`."""

    card: ClassVar[Card]
    settings_type: ClassVar[type[Settings]]

    def __init__(
        self,
        model: Model,
        settings: Settings | Sequence[Settings],
        keys: Sequence[int] = (0,),
        device: torch.device | str = "cpu",
    ) -> None:
        """keys seed the copies' randomness, one each; settings are for all, or one each."""
        self.model, self.copies, self.device = model, len(keys), torch.device(device)
        self.settings = list(settings) if isinstance(settings, Sequence) else [settings] * self.copies
        self.keys, self.everyone = np.asarray(keys, dtype=np.int64), np.arange(self.copies)
        assert len(self.settings) == self.copies
        for one in set(self.settings):
            check_settings(one)
        for name in (f.name for f in dataclasses.fields(self.settings[0])):
            values = {getattr(s, name) for s in self.settings}
            assert len(values) == 1 or all(type(v) is float for v in values), f"{name} must be the same for all copies"
        self.seen: NDArray[np.bool_] = np.zeros((self.copies, 0), dtype=bool)
        self.steps = 0  # examples that each copy has learned
        self.state: dict[str, Tensor] = {}  # (B, ...)
        self.rows: dict[str, Tensor] = {}  # (B, first + capacity, ...)
        self.first: dict[str, int] = {}  # how many rows of it come before those of the classes
        self._forget_views()
        self._setup()

    # --- what users call --------------------------------------------------------------------------------------------

    def learn(self, x: Tensor, y: Labels) -> None:
        """One example for each copy: x (B, *input_shape), y (B,) the numbers of their classes."""
        self.check(x, 1)
        self._check_labels(y)
        self.observe(x, y)

    def learn_class(self, x: Tensor, y: Labels) -> None:
        """Several examples of one class for each copy, x (B, m, *input_shape): as one by one, but for rounding."""
        self.check(x, 2)
        self._check_labels(y)
        if not x.shape[1]:
            raise UserError("There is no example to learn.")
        self.observe_class(x, y)

    def scores(self, x: Tensor) -> Tensor:
        """(B, m, *input_shape) -> (B, m, classes). The highest is the answer; minus infinity for a class not seen."""
        self.check(x, 2)
        return self.predict(x)

    def observe(self, x: Tensor, y: Labels) -> None:
        """`learn` for inputs that are known to be good."""
        self._admit(y)
        self._learn(x.detach() if x.requires_grad else x, y)  # nothing else here asks for gradients
        self.steps += 1

    def observe_class(self, x: Tensor, y: Labels) -> None:
        """`learn_class` for inputs that are known to be good."""
        self._admit(y)
        steps = self.steps + x.shape[1]
        self._learn_class(x.detach() if x.requires_grad else x, y)
        self.steps = steps

    def predict(self, x: Tensor) -> Tensor:
        """`scores` for inputs that are known to be good."""
        if self.classes == 0:
            raise UserError("Nothing has been learned yet, so there is nothing to predict.")
        with torch.no_grad():
            scores = self._scores(x)[..., : self.classes]
        # what has diverged knows nothing
        return scores.masked_fill(~self._seen_mask()[:, None] | scores.isnan(), -torch.inf)

    def end_task(self) -> None:  # noqa: B027
        """The examples of a task have all come; most methods need not know."""

    def memory(self) -> dict[str, int]:
        """Bytes kept between two examples by kind, the network's own weights left out."""
        sizes: dict[str, int] = {}
        for name, tensor in self._known().items():
            kind = name.split(".")[0]
            if kind != "parameters":
                sizes[kind] = sizes.get(kind, 0) + tensor.nbytes // self.copies
        return sizes

    def state_dict(self) -> dict[str, Tensor]:
        """Everything the learner knows; tensors of their own, on their device."""
        book = {"bookkeeping.steps": torch.tensor(self.steps), "bookkeeping.seen": torch.from_numpy(self.seen.copy())}
        return {name: t.clone(memory_format=torch.contiguous_format) for name, t in self._known().items()} | book

    def _known(self) -> dict[str, Tensor]:
        """The same but for the bookkeeping, as views."""
        return {name: t[:, : self.first[name] + self.classes] for name, t in self.rows.items()} | self._used()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where another learner of the same kind and settings stood."""
        seen = state["bookkeeping.seen"].numpy()
        if seen.shape[0] != self.copies:
            raise UserError(f"The saved learner has {seen.shape[0]} copies, this one has {self.copies}.")
        wanted = {*self.rows, *self.state, "bookkeeping.steps", "bookkeeping.seen"}
        if wanted != set(state):
            other = ", ".join(sorted(wanted ^ set(state)))
            raise UserError(f"The saved learner is of another kind or has other settings: it differs in {other}.")
        for name, tensor in self.rows.items():
            saved, rows = state[name], self.first[name] + seen.shape[1]
            if saved.shape != (self.copies, rows, *tensor.shape[2:]):
                raise UserError(f"The saved {name} is {tuple(saved.shape)}, which does not fit {tuple(tensor.shape)}.")
        fresh = {name: self._unused(name, state[name].to(tensor)) for name, tensor in self.state.items()}
        self.seen = np.zeros((self.copies, 0), dtype=bool)  # from here on nothing is refused
        for name, tensor in self.rows.items():
            self.rows[name] = tensor[:, : self.first[name]].clone()
        self._grow(seen.shape[1])
        self.seen, self.steps = seen.copy(), int(state["bookkeeping.steps"])
        for name, tensor in self.rows.items():
            tensor[:, : state[name].shape[1]] = state[name].to(tensor)
        self.state |= fresh
        self._forget_views()
        self._restored()

    # --- what methods write -----------------------------------------------------------------------------------------

    def _setup(self) -> None:  # noqa: B027
        """Check the settings and make the tensors."""

    @abstractmethod
    def _learn(self, x: Tensor, y: Labels) -> None: ...

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        """The same for several examples of one class, x (B, m, ...), where that is quicker together."""
        for i in range(x.shape[1]):
            self._learn(x[:, i], y)
            self.steps += 1

    @abstractmethod
    def _scores(self, x: Tensor) -> Tensor:
        """(B, m, at least classes)."""

    def _used(self) -> dict[str, Tensor]:
        """The part of `state` that is in use."""
        return self.state

    def _unused(self, name: str, saved: Tensor) -> Tensor:
        """The inverse of `_used` for one tensor."""
        if saved.shape != self.state[name].shape:
            raise UserError(
                f"The saved {name} is {tuple(saved.shape)}, which does not fit {tuple(self.state[name].shape)}."
            )
        return torch.empty_like(self.state[name]).copy_(saved)

    def _restored(self) -> None:  # noqa: B027
        """After `load_state_dict`."""

    def _new_classes(self, copies: Tensor, labels: Tensor) -> None:  # noqa: B027
        """These copies are about to see these classes for the first time."""

    # --- classes ----------------------------------------------------------------------------------------------------

    @property
    def classes(self) -> int:
        """Classes that any copy has seen: the highest label and one."""
        return int(self.seen.shape[1])

    def add_rows(self, name: str, *shape: int, first: int = 0, dtype: torch.dtype = torch.float32) -> None:
        """A tensor of zeros with a row of this shape for each class."""
        self.first[name] = first
        self.rows[name] = torch.zeros(self.copies, first, *shape, dtype=dtype, device=self.device)

    def _admit(self, y: Labels) -> None:
        if self.copies == 1:  # the usual case of one stream, without numpy's overhead
            top = int(y[0])
            if top < self.classes and self.seen[0, top]:
                return
        else:
            top = int(y.max())
            if top < self.classes and self.seen[self.everyone, y].all():
                return
        if top >= self.classes:
            self._grow(top + 1)
        known = self.seen[self.everyone, y]
        self.seen[self.everyone, y] = True
        self._forget_views()
        copies = torch.from_numpy(self.everyone[~known]).to(self.device)
        self._new_classes(copies, torch.from_numpy(y[~known]).to(self.device))

    def _grow(self, classes: int) -> None:
        """Make room; capacity doubles, so that a class costs the same however many there are."""
        self.seen = np.hstack([self.seen, np.zeros((self.copies, classes - self.classes), dtype=bool)])
        for name, tensor in self.rows.items():
            capacity = tensor.shape[1] - self.first[name]
            if capacity < classes:
                room = max(classes, 2 * capacity, 8) - capacity
                blank = tensor.new_zeros(self.copies, room, *tensor.shape[2:])
                self.rows[name] = torch.cat([tensor, blank], 1)
        self._forget_views()

    def _forget_views(self) -> None:
        """What was derived from the classes seen so far is out of date."""
        self._mask = None

    _mask: Tensor | None = None

    def _seen_mask(self) -> Tensor:
        """(B, classes) on the device."""
        if self._mask is None:
            self._mask = torch.from_numpy(self.seen).to(self.device)
        return self._mask

    # --- settings and inputs ----------------------------------------------------------------------------------------

    def column(self, name: str) -> Tensor:
        """A setting of all copies, (B,)."""
        values = [float(getattr(s, name)) for s in self.settings]
        return torch.tensor(values, device=self.device, dtype=torch.float32)

    def check(self, x: Tensor, before: int) -> None:
        """Refuse what is not (B, *input_shape), or with another dimension before that."""
        found, shape, dtype = x.shape[before:], self.model.input_shape, self.model.input_dtype
        if found != shape or x.shape[0] != self.copies:
            wanted = (self.copies, "examples", *shape) if before == 2 else (self.copies, *shape)
            raise UserError(
                f"An example is {tuple(found)}, but this learner takes {shape}."
                if x.ndim == before + len(shape) and len(x) == self.copies
                else f"The examples are {tuple(x.shape)}, but must be ({', '.join(map(str, wanted))})."
            )
        if x.dtype != dtype:
            raise UserError(f"An example is of type {x.dtype}, but this learner takes {dtype}.")
        # a sum is quicker than a look at each value; one of finite values that overflows is looked at again
        if dtype.is_floating_point and not math.isfinite(x.sum()) and not bool(x.isfinite().all()):
            raise UserError("An example has a value that is not a finite number, so it is refused.")

    def _check_labels(self, y: Labels) -> None:
        if y.shape != (self.copies,) or (y[0] if self.copies == 1 else y.min()) < 0:
            raise UserError(f"Labels must be {self.copies} numbers of 0 or more, one for each copy.")

    def choice(self, name: str) -> Any:
        """A setting that is the same for all copies."""
        return getattr(self.settings[0], name)
