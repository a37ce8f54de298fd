"""Class means, and the scatter around them: what the closed-form learners keep. No rate, no order, no replay."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Labels, Learner
from kcciol.learners.blocks import ClassSnapshot, Form, Known, Numbers, Rows
from kcciol.learners.model import Head
from kcciol.learners.snapshot import Snapshot

MEAN, COUNT = "mean.sum", "mean.count"
SUM, WAITING = "scatter.sum", "scatter.waiting"
WAIT = 64  # vectors of a scatter that go into its sum together


class ClassMeans(Learner):
    """Counts and means of B copies, in float64 so that the order of examples does not show."""

    counts_examples: ClassVar[bool] = True
    """The counts are whole numbers of examples; not so in a method that weighs them."""

    def _setup(self) -> None:
        super()._setup()
        if not isinstance(self.model, Head):
            raise UserError("A closed-form learner works on a frozen network: it has nothing to train below its head.")
        self.add_rows(MEAN, self.width, dtype=torch.float64)
        self.add_rows(COUNT, dtype=torch.float64)

    @property
    def width(self) -> int:
        return self.model.width

    def add_class(self, z: Tensor, label: Tensor) -> Tensor:
        """Take z (B, m, width), all of one class, into its sum; how many there were before, (B,)."""
        self._solved = None
        before = self.rows[COUNT][self.each, label]
        self.add_to(MEAN, z.double(), label)
        self.rows[COUNT][self.each, label] = before + z.shape[1]
        return before

    def add_to(self, name: str, values: Tensor, label: Tensor) -> None:
        """Add values (B, m, width) to the row of a class."""
        total = values[:, 0] if values.shape[1] == 1 else values.sum(1)
        self.rows[name].index_put_((self.each, label), total, accumulate=True)

    def _learn(self, x: Tensor, y: Labels) -> None:
        self._learn_class(x[:, None], y)

    @abstractmethod
    def _learn_class(self, x: Tensor, y: Labels) -> None: ...

    def _before(self, y: Labels) -> tuple[Rows, dict[str, Tensor]]:
        """The rows of the classes, and which tensors there are."""
        if self.copies == 1:
            label = int(y[0])
            return {name: t[0, label].clone() for name, t in self.rows.items()}, dict(self.state)
        labels = self.labels(y)
        return {name: t[self.each, labels] for name, t in self.rows.items()}, dict(self.state)

    def _undo(self, y: Labels, old: tuple[Rows, dict[str, Tensor]]) -> None:
        rows, state = old
        for name, values in rows.items():
            self.rows[name][self.each, self.labels(y)] = values
        self.state.update(state)
        if WAITING in self.state:  # the tensors before may have been written into
            self.state[WAITING][:, self.steps % WAIT :] = 0

    def require_sound(self) -> None:
        super().require_sound()
        count, total = (self.class_rows()[name] for name in (COUNT, MEAN))
        good = torch.where(self._seen_mask(), count > 0, count == 0)
        if self.counts_examples:
            good &= (count == count.round()) & (count <= self.steps)
        if not bool(good.all()):
            raise UserError(f"{COUNT} holds what is no number of examples.")
        if not bool(total.square().sum(-1).isfinite().all()):
            raise UserError(f"{MEAN} holds numbers that no examples add up to.")

    def class_rows(self) -> Rows:
        """What is known of each class, as views."""
        return {name: t[:, : self.classes] for name, t in self.rows.items()}

    @abstractmethod
    def form(self) -> Form:
        """How scores follow from the classes' rows now, of all copies."""

    def _scores(self, x: Tensor) -> Tensor:
        if self._solved is None:
            form = self.form()
            self._solved = form, form.solved(self.class_rows())
        form, rows = self._solved
        return form.plain(form.prepare(x), rows)

    _solved: tuple[Form, Rows] | None = None  # until something is learned

    def _restored(self) -> None:
        self._solved = None

    # --- snapshots --------------------------------------------------------------------------------------------------

    snapshot_type: ClassVar[type[ClassSnapshot]] = ClassSnapshot
    _of_snapshots = Learner._of_snapshots | {"_last", "_changed", "_solved"}
    _last: ClassSnapshot
    _changed: set[int]  # classes, since the last snapshot

    def lasting_form(self) -> Form:
        """The form of a single stream, which no later example changes."""
        return self.form()

    def _before_change(self, y: Labels) -> None:
        self._changed.add(int(y[0]))

    def _known_of(self, labels: Iterable[int]) -> dict[int, Known]:
        arrays = {name: tensor.numpy()[0] for name, tensor in self.rows.items()}
        return {label: {name: array[label].copy() for name, array in arrays.items()} for label in labels}

    def snapshot(self) -> Snapshot:
        plain = type(self)._scores is ClassMeans._scores  # else the form is not what answers
        if not plain or self.copies > 1 or self.device.type != "cpu" or not self.seen.all():
            return super().snapshot()
        if self._watched and not self._changed:
            return self._last
        form = self.lasting_form()
        if self._watched:
            self._last = self._last.after(form, self.classes, self._known_of(self._changed))
        else:
            self._last = self.snapshot_type.first(form, self.classes, self._known_of(range(self.classes)))
        self._watched, self._changed = True, set()
        return self._last


Values = TypeVar("Values", Tensor, Numbers)


def means_of(rows: dict[str, Values]) -> Values:
    """(..., classes, width); zero where nothing has come."""
    means: Values = rows[MEAN] / rows[COUNT][..., None].clip(1)
    return means


class Scatter:
    """The sum of v v^T over examples, of B copies, in tensors of the learner's state.

    Vectors wait until there are enough of them for one matrix product, which is many times faster than a product of
    rank one for each; `total` counts those that wait.
    """

    def __init__(self, state: dict[str, Tensor], copies: int, width: int, device: torch.device) -> None:
        self.state = state
        state[SUM] = torch.zeros(copies, width, width, dtype=torch.float32, device=device)
        state[WAITING] = torch.zeros(copies, WAIT, width, dtype=torch.float32, device=device)

    def add(self, time: int, v: Tensor) -> None:
        """Take in the vectors (B, m, width) of the examples from number `time` on, from 0. A sum never changes: there
        is another one instead, since snapshots may have it."""
        total, waiting, first = self.state[SUM], self.state[WAITING], 0
        while first < v.shape[1]:
            place = (time + first) % WAIT
            some = v[:, first : first + WAIT - place]
            waiting[:, place : place + some.shape[1]] = some
            first += some.shape[1]
            if place + some.shape[1] == WAIT:
                total, waiting = total.baddbmm(waiting.mT, waiting), torch.zeros_like(waiting)
        self.state.update({SUM: total, WAITING: waiting})

    def total(self) -> Tensor:
        """(B, width, width), float64."""
        return total_of(self.state[SUM], self.state[WAITING])

    def snapshot(self, time: int) -> ScatterSnapshot:
        """Of one copy, after so many examples. What waits is never written again."""
        return ScatterSnapshot(self.state[SUM][0], self.state[WAITING][0, : time % WAIT])


@dataclass(frozen=True)
class ScatterSnapshot:
    """A sum that does not change, and the vectors that are not in it yet."""

    sum: Tensor  # (width, width)
    waiting: Tensor  # (vectors, width)

    def total(self) -> Tensor:
        """(1, width, width), float64."""
        return total_of(self.sum[None], self.waiting[None])

    def since(self, earlier: ScatterSnapshot) -> Tensor | None:
        """The vectors that have come since, (vectors, width) float64; none if they are in the sum by now."""
        if self.sum.data_ptr() != earlier.sum.data_ptr():
            return None
        return self.waiting[len(earlier.waiting) :].double()


def total_of(sum_: Tensor, waiting: Tensor) -> Tensor:
    """(B, width, width), float64."""
    vectors = waiting.double()
    return sum_.to(torch.float64, copy=True).baddbmm_(vectors.mT, vectors)


def factor_of(matrix: Tensor) -> Tensor:
    """L with L L^T = matrix, for symmetric positive definite matrices (B, d, d) in float64."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if bool(info.any()):
        raise UserError("The covariance is singular: give a larger shrinkage or penalty.")
    return factor


def solve(factor: Tensor, rows: Tensor) -> Tensor:
    """v (L L^T)^-1 for each v of rows (B, m, d), by the factor L (B, d, d). For a single v that is ten times quicker
    than `torch.cholesky_solve`, which copies the factor first."""
    half = torch.linalg.solve_triangular(factor, rows.mT, upper=False)
    found: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True).mT
    return found
