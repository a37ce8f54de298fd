"""The contract of a learner: what happens when one labelled example arrives.

A learner is B copies of one method, each with its own stream and settings, that take one example each at a time. One
stream is B = 1. Labels are numbers, given out in any order, and may be new at any time; `OnlineLearner` in front of it
takes labels of any kind. What a learner knows is in `knowledge`; here is what it does.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.errors import UserError, quoted
from kcciol.learners.bounds import require_within
from kcciol.learners.card import Card
from kcciol.learners.grid import Grid, middle
from kcciol.learners.knowledge import Knowledge
from kcciol.learners.model import Model
from kcciol.learners.snapshot import Snapshot, require_classes
from kcciol.serialization import from_dict

Labels = NDArray[np.int64]  # (B,), on the host


@dataclass(frozen=True)
class Settings:
    """Numbers may differ from copy to copy; everything else is the same for all."""

    @property
    def inputs(self) -> int:
        """How many inputs one step works on, at most."""
        return 1

    @property
    def waiting(self) -> int:
        """How many examples wait beside those that `Card.capacity` counts, at most."""
        return 0


def check_settings(settings: Settings) -> None:
    """Refuse values of another type, words that are not a choice, and numbers that are not finite or beyond their
    bounds: before anything is made of them."""
    values = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{name} is {value}, but must be a finite number.")
        if isinstance(value, int) and abs(value) >= 2**31:
            raise UserError(f"{name} is {quoted(value, 40)}, but must be below 2^31.")
    from_dict(type(settings), values)
    require_within(settings)


class Learner(Knowledge, ABC):
    """B copies of a method.

    All that a method needs to be listed, chosen for and compared stands in its class: the card, the settings, what is
    tried of them, and what is computed from base classes beforehand.
    """

    card: ClassVar[Card]
    settings_type: ClassVar[type[Settings]] = Settings
    grid: ClassVar[Grid] = {}  # what is tried; settings that are not in it keep their defaults
    whole_grid: ClassVar[Grid] = {}  # and instead of its middle, where the whole network is trained
    idle: ClassVar[Mapping[str, Any]] = {}  # settings that spare work and change nothing of what is kept
    workspace: ClassVar[int] = 4  # what a copy takes while it learns, in multiples of its own tensors

    @classmethod
    def grid_for(cls, trains: str) -> Grid:
        """What is tried for a head ("head") or for the whole network ("all"), which costs a thousand times as much, so
        that fewer combinations are tried there."""
        if trains == "head":
            return cls.grid
        return {name: cls.whole_grid.get(name, middle(values)) for name, values in cls.grid.items()}

    @classmethod
    def fit_settings(cls, base: Tensor) -> dict[str, Any]:
        """Settings that follow from features of base classes (C, S, d) and are not chosen; most methods have none."""
        return {}

    @classmethod
    def in_step(cls, model: Model, settings: Settings, classes: int) -> type[Learner]:
        """What makes copies for streams of so many classes in which all meet the same label at the same time: a method
        may have a quicker form for that."""
        return cls

    @classmethod
    def does_the_same_as(cls, parent: type[Learner]) -> bool:
        """Whether this class, derived from another or that one itself, changes nothing of what it does, but for its
        card, grid and the like."""
        added = [value for one in cls.__mro__[: cls.__mro__.index(parent)] for value in vars(one).values()]
        return not any(callable(value) or hasattr(value, "__get__") for value in added)

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        """About how many bytes a copy that has seen so many classes may take beyond what is in its file: what follows
        from the settings, which are within their bounds, and room for what is to come; `bytes_to_come` counts the rows
        of classes. A small file must not ask for a large machine."""
        return 8 * 8 * math.prod(model.input_shape)  # a few vectors

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "scores" in vars(cls):  # a snapshot would answer otherwise
            raise TypeError(f"{cls.__name__}.scores: a learner answers by its own _scores, not by another scores.")

    def __init__(
        self,
        model: Model,
        settings: Settings | Sequence[Settings],
        keys: Sequence[int] = (0,),
        device: torch.device | str = "cpu",
    ) -> None:
        """keys seed the copies' randomness, one each; settings are for all, or one each."""
        super().__init__(len(keys), torch.device(device))
        self.model, self.keys = model, np.asarray(keys, dtype=np.int64)
        self.dtype = model.input_dtype if model.input_dtype.is_floating_point else torch.float32  # it computes in this
        self.settings = list(settings) if isinstance(settings, Sequence) else [settings] * self.copies
        assert len(self.settings) == self.copies
        for one in {id(settings): settings for settings in self.settings}.values():  # most are one and the same
            check_settings(one)
        for name in (f.name for f in dataclasses.fields(self.settings[0])):
            values = {getattr(s, name) for s in self.settings}
            assert len(values) == 1 or all(type(v) is float for v in values), f"{name} must be the same for all copies"
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

    @final
    def scores(self, x: Tensor) -> Tensor:
        """(B, m, *input_shape) -> (B, m, classes). The highest is the answer; minus infinity for a class not seen."""
        self.check(x, 2)
        return self.unchecked_scores(x)

    def observe(self, x: Tensor, y: Labels) -> None:
        """`learn` for inputs that are known to be good."""
        self._learn_or_undo(self._learn, x, y, 1)

    def observe_class(self, x: Tensor, y: Labels) -> None:
        """`learn_class` for inputs that are known to be good."""
        self._learn_or_undo(self._learn_class, x, y, x.shape[1])

    def _learn_or_undo(self, learn: Callable[[Tensor, Labels], None], x: Tensor, y: Labels, count: int) -> None:
        if self._watched:
            self._before_change(y)
        before, old = (self.seen, self.rows, self.steps), None
        try:
            self._admit(y)
            old = self._before(y)
            learn(x.detach() if x.requires_grad else x, y)  # nothing else here asks for gradients
        except BaseException:
            if old is not None:
                self._undo(y, old)
            self._take_back(*before)
            raise
        self.steps = before[2] + count

    def unchecked_scores(self, x: Tensor) -> Tensor:
        """`scores` for inputs that are known to be good."""
        require_classes(self.classes)
        with torch.no_grad():
            scores = self._scores(x)[..., : self.classes]
        # what has diverged knows nothing
        return scores.masked_fill(~self._seen_mask()[:, None] | scores.isnan(), -torch.inf)

    def snapshot(self) -> Snapshot:
        """What is known now of a single stream, for others to read. A method that can let them read while it learns
        on gives a lasting one; this one may be read only while nobody learns."""
        return LiveSnapshot(self)

    _of_snapshots: ClassVar[frozenset[str]] = frozenset({"_watched"})  # attributes that a copy does not take over

    def __getstate__(self) -> dict[str, Any]:
        """For a copy, whose snapshots begin anew."""
        return {name: value for name, value in vars(self).items() if name not in self._of_snapshots}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What was derived of the tensors is derived anew: a copy of a view is a view of nothing."""
        vars(self).update(state)
        self._renew()

    def end_task(self) -> None:
        """The examples of a task have all come; most methods need not know."""

    # --- what methods write -----------------------------------------------------------------------------------------

    def _setup(self) -> None:
        """Check the settings and make the tensors."""

    def _before_change(self, y: Labels) -> None:
        """What a lasting snapshot refers to must not change now, and whatever belongs to the classes y will."""

    def _before(self, y: Labels) -> Any:
        """What `_undo` needs to take back examples of the classes y that were learned in part, if it can."""
        return None

    def _undo(self, y: Labels, old: Any) -> None: ...

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

    # --- settings and inputs ----------------------------------------------------------------------------------------

    def column(self, name: str) -> Tensor:
        """A setting of all copies, (B,), of the type that the learner computes in; it has float32's digits."""
        values = [float(getattr(s, name)) for s in self.settings]
        return torch.tensor(values, device=self.device, dtype=torch.float32).to(self.dtype)

    def choice(self, name: str) -> Any:
        """A setting that is the same for all copies."""
        return getattr(self.settings[0], name)

    def labels(self, y: Labels) -> Tensor:
        """(B,) on the host -> (B,) on the device."""
        return torch.from_numpy(y).to(self.device)

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
        if dtype.is_floating_point and not math.isfinite(x.detach().sum()) and not bool(x.isfinite().all()):
            raise UserError("An example has a value that is not a finite number, so it is refused.")

    def _check_labels(self, y: Labels) -> None:
        if y.shape != (self.copies,) or (y[0] if self.copies == 1 else y.min()) < 0:
            raise UserError(f"Labels must be {self.copies} numbers of 0 or more, one for each copy.")


class LiveSnapshot(Snapshot):
    """The learner itself, whose tensors change in place."""

    lasting = False

    def __init__(self, learner: Learner) -> None:
        self.learner, self.classes = learner, learner.classes

    def scores(self, x: Tensor) -> Tensor:
        return self.learner.unchecked_scores(x[None])[0]
