"""What copies of a learner know: tensors that grow with the classes, are saved, and are gone on from.

All of it is in `state_dict`; all of it but the network's weights is memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.errors import UserError

FEWEST = 8  # rows that are made for classes at once
STEPS, SEEN, KIND = "bookkeeping.steps", "bookkeeping.seen", "bookkeeping.kind"


class Knowledge:
    """The tensors of B copies, in `state` or, those with a row for each class, in `rows`."""

    unknown: ClassVar[frozenset[str]] = frozenset()  # tensors in which NaN stands for what is not known
    class_numbers: ClassVar[Mapping[str, int]] = {}  # tensors of numbers of classes, and what the lowest one is
    growing: ClassVar[frozenset[str]] = frozenset()  # tensors of `state` (B, n, ...) whose n grows, as with tasks

    def __init__(self, copies: int, device: torch.device) -> None:
        self.copies, self.device = copies, device
        self.everyone = np.arange(copies)
        self.each = torch.arange(copies, device=device)  # the same, where the tensors are
        self.seen: NDArray[np.bool_] = np.zeros((copies, 0), dtype=bool)
        self.steps = 0  # examples that each copy has learned
        self.state: dict[str, Tensor] = {}  # (B, ...)
        self.rows: dict[str, Tensor] = {}  # (B, first + capacity, ...)
        self.first: dict[str, int] = {}  # how many rows of it come before those of the classes
        self._forget_views()

    # --- classes ----------------------------------------------------------------------------------------------------

    @property
    def classes(self) -> int:
        """Classes that any copy has seen: the highest label and one."""
        return int(self.seen.shape[1])

    def add_rows(self, name: str, *shape: int, first: int = 0, dtype: torch.dtype = torch.float32) -> None:
        """A tensor of zeros with a row of this shape for each class."""
        self.first[name] = first
        self.rows[name] = torch.zeros(self.copies, first, *shape, dtype=dtype, device=self.device)

    def _admit(self, y: NDArray[np.int64]) -> None:
        """Each copy is about to learn an example of one class, y (B,)."""
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
        else:
            self.seen = self.seen.copy()  # as it was before, it may be needed again
        known = self.seen[self.everyone, y]
        self.seen[self.everyone, y] = True
        self._forget_views()
        copies = torch.from_numpy(self.everyone[~known]).to(self.device)
        self._new_classes(copies, torch.from_numpy(y[~known]).to(self.device))

    def _grow(self, classes: int) -> None:
        """Make room; capacity doubles, so that a class costs the same however many there are. All of it or nothing."""
        grown = {}
        for name, tensor in self.rows.items():
            used, first = tensor.shape[1], self.first[name]
            if used < first + classes:
                room = max(classes, 2 * (used - first), FEWEST)
                wide = tensor.new_empty(self.copies, first + room, *tensor.shape[2:])
                wide[:, :used] = tensor
                wide[:, used:] = self._blank(name)
                grown[name] = wide
        if grown:
            self.rows = self.rows | grown
        self.seen = np.hstack([self.seen, np.zeros((self.copies, classes - self.classes), dtype=bool)])
        self._forget_views()

    def _blank(self, name: str) -> float:
        """What stands in the rows of classes that have not come."""
        return math.nan if name in self.unknown else 0

    def _take_back(self, seen: NDArray[np.bool_], rows: dict[str, Tensor], steps: int) -> None:
        """What could not be learned has brought no class, unless examples before it were learned."""
        if self.seen is not seen and self.steps == steps:
            new = self.seen.copy()
            new[:, : seen.shape[1]] &= ~seen
            if self.rows is rows:
                copies, labels = (torch.from_numpy(i).to(self.device) for i in new.nonzero())
                for name, tensor in rows.items():
                    tensor[copies, self.first[name] + labels] = self._blank(name)
            self.seen, self.rows = seen, rows
        self._renew()

    # --- what is derived of it --------------------------------------------------------------------------------------

    def _forget_views(self) -> None:
        """What was derived from the classes seen so far is out of date."""
        self._mask = None

    _mask: Tensor | None = None

    def _seen_mask(self) -> Tensor:
        """(B, classes) on the device."""
        if self._mask is None:
            self._mask = torch.from_numpy(self.seen).to(self.device)
        return self._mask

    def _renew(self) -> None:
        """Tensors have been put in the place of others, so that what was derived of them is out of date."""
        self._watched = False  # snapshots begin anew
        self._forget_views()
        self._restored()

    _watched = False  # a lasting snapshot has been given away

    # --- a state that is kept ---------------------------------------------------------------------------------------

    def memory(self) -> dict[str, int]:
        """Bytes kept between two examples by kind, the network's own weights left out."""
        sizes: dict[str, int] = {}
        for name, tensor in self._known().items():
            kind = name.split(".")[0]
            if kind != "parameters":
                sizes[kind] = sizes.get(kind, 0) + tensor.nbytes // self.copies
        return sizes

    def bytes_to_come(self, classes: int) -> int:
        """What the rows of classes to come take at the next of them, in a learner that has been loaded with so many."""
        count = max(FEWEST - classes, 1)
        return sum(self.copies * count * math.prod(t.shape[2:]) * t.element_size() for t in self.rows.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Everything the learner knows; tensors of their own, on their device."""
        book = {STEPS: torch.tensor(self.steps), SEEN: torch.from_numpy(self.seen.copy()), KIND: self.kind()}
        return {name: t.clone(memory_format=torch.contiguous_format) for name, t in self._known().items()} | book

    def _known(self) -> dict[str, Tensor]:
        """The same but for the bookkeeping, as views."""
        return {name: t[:, : self.first[name] + self.classes] for name, t in self.rows.items()} | self._used()

    @classmethod
    def kind(cls) -> Tensor:
        """The name of the class, as bytes."""
        return torch.frombuffer(bytearray(cls.__name__, "utf-8"), dtype=torch.uint8)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where another learner of the same kind and settings stood; what does not fit changes nothing."""
        kind = state.get(KIND)
        if kind is None or kind.dtype != torch.uint8 or not torch.equal(kind, self.kind()):
            raise UserError(f"The saved learner is of another kind than {type(self).__name__}.")
        wanted = {*self.rows, *self.state, STEPS, SEEN, KIND}
        if wanted != state.keys():
            other = ", ".join(sorted(wanted ^ state.keys()))
            raise UserError(f"The saved learner is of another kind or has other settings: it differs in {other}.")
        if state[SEEN].dtype != torch.bool or state[SEEN].ndim != 2 or state[SEEN].shape[0] != self.copies:
            raise UserError(f"The saved learner has {tuple(state[SEEN].shape)[:1]} copies, this one has {self.copies}.")
        if state[STEPS].dtype != torch.int64 or state[STEPS].ndim or not 0 <= int(state[STEPS]) < 2**53:
            raise UserError("The saved learner does not say how many examples it has learned.")
        own = self.rows | self.state
        state = {name: tensor.to(own[name].device) if name in own else tensor for name, tensor in state.items()}
        seen = state[SEEN].numpy().copy()
        rows = {name: self._unused_rows(name, state[name]) for name in self.rows}
        for name, saved in rows.items():
            shape = (self.copies, self.first[name] + seen.shape[1], *self.rows[name].shape[2:])
            self._require_alike(name, saved, shape)
        before = self.seen, self.steps, dict(self.rows), dict(self.state)
        try:
            self.state |= {name: self._unused(name, state[name]) for name in self.state}
            self.rows = {name: rows[name].clone(memory_format=torch.contiguous_format) for name in self.rows}
            self.seen, self.steps = seen, int(state[STEPS])
            self._forget_views()
            for name, tensor in self._known().items():
                self._require_alike(name, state[name], tuple(tensor.shape))
            self.require_sound()
        except BaseException:
            self.seen, self.steps, self.rows, state_before = before
            self.state |= state_before
            self._forget_views()
            raise
        self._renew()

    def _require_alike(self, name: str, saved: Tensor, shape: tuple[int, ...]) -> None:
        own = self.rows[name] if name in self.rows else self.state[name]
        if tuple(saved.shape) != shape or saved.dtype != own.dtype:
            found = f"{tuple(saved.shape)} of {saved.dtype}"
            raise UserError(f"The saved {name} is {found}, which does not fit {shape} of {own.dtype}.")

    def require_sound(self) -> None:
        """Refuse numbers that no learner can go on from: those of one that has diverged, or that were made up."""
        for name, tensor in self._known().items():
            if tensor.is_floating_point():
                if name not in self.unknown and not bool(tensor.isfinite().all()):
                    raise UserError(f"it has diverged: {name} holds a number that is not finite.")
            elif tensor.dtype == torch.int64 and tensor.numel():
                low = self.class_numbers.get(name, 0)
                if int(tensor.min()) < low or (name in self.class_numbers and int(tensor.max()) >= self.classes):
                    raise UserError(f"{name} holds numbers that stand for nothing.")

    # --- what methods write -----------------------------------------------------------------------------------------

    def _used(self) -> dict[str, Tensor]:
        """The part of `state` that is in use."""
        return self.state

    def _unused(self, name: str, saved: Tensor) -> Tensor:
        """The inverse of `_used` for one tensor: with room for what is to come."""
        if name in self.growing:  # how many there are is the saved learner's affair
            count = saved.shape[1] if saved.ndim > 1 else 0
            self._require_alike(name, saved, (self.copies, count, *self.state[name].shape[2:]))
            return saved.clone()
        whole = torch.zeros_like(self.state[name])
        part = whole[:, : saved.shape[1]] if saved.ndim > 1 and whole.ndim > 1 else whole
        self._require_alike(name, saved, tuple(part.shape))
        part.copy_(saved)
        return whole

    def _unused_rows(self, name: str, saved: Tensor) -> Tensor:
        """The same for one with a row for each class."""
        return saved

    def _restored(self) -> None:
        """Other tensors are in `state` and `rows` now."""

    def _new_classes(self, copies: Tensor, labels: Tensor) -> None:
        """These copies are about to see these classes for the first time."""
