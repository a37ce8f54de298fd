"""Snapshots of learners that keep something of each class apart from the others.

Which class has the highest score is found in float32 up to a bound of the error; where that leaves several classes,
the plain form in float64 decides between them. So the answer is that of the plain form.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.learners.snapshot import Classes, Snapshot, highest, require_classes

BLOCK = 512  # classes in one tensor: the first question after one has changed copies so many rows

Rows = dict[str, Tensor]  # what is known of the classes of copies, (B, classes, ...) float64
Numbers = NDArray[np.float64]
Known = dict[str, Numbers]  # what is known of one class, or of several, (classes, ...)
Derived = tuple[NDArray[np.float32], ...]  # (classes, ...) each


class Bound(NamedTuple):
    """A quick score is off by at most `fixed`, which allows for what underflows, and `slope` times the norm of what was
    prepared."""

    fixed: float
    slope: float

    def widened(self, other: Bound) -> Bound:
        return Bound(max(self.fixed, other.fixed), max(self.slope, other.slope))

    def errors(self, query: Tensor) -> list[float]:
        """For each of what was prepared (m, size)."""
        return [self.fixed + self.slope * size for size in torch.linalg.vector_norm(query, dim=1).tolist()]


class Form(ABC):
    """How scores follow from what is known of each class, plainly and quickly."""

    @abstractmethod
    def prepare(self, x: Tensor) -> Tensor:
        """What both forms need of examples (..., m, width): (..., m, size), float64."""

    def solved(self, rows: Rows) -> Rows:
        """What `plain` needs of classes, where that is more than their rows: worth keeping between two questions."""
        return rows

    @abstractmethod
    def plain(self, query: Tensor, rows: Rows) -> Tensor:
        """Scores (B, m, classes), float64, of what was prepared (B, m, size) and solved."""

    @abstractmethod
    def derive(self, known: Known) -> tuple[Derived, Bound]:
        """What the quick form needs of each of several classes, and how far off it may be for any of them. In numpy,
        which takes a single class far more quickly."""

    def quick(self, query: Tensor, *derived: Tensor) -> Tensor:
        """Scores (m, classes), float32. This is a linear form; others derive something else."""
        weight, bias = derived
        if len(query) == 1:
            return torch.addmv(bias, weight, query[0])[None]
        return torch.addmm(bias, query, weight.mT)


def rounding(terms: int) -> float:
    """More than the relative error of a sum of so many products of rounded numbers in float32, in any order."""
    return (terms + 8) * 2.0**-23


def linear(weight: Numbers, bias: Numbers) -> tuple[Derived, Bound]:
    """The quick form query @ weight^T + bias of weight (classes, size) and bias (classes,)."""
    eps, small = rounding(weight.shape[1]), (weight.astype(np.float32), bias.astype(np.float32))
    return small, Bound(1e-30 + eps * float(abs(bias).max()), eps * longest(weight))


def longest(rows: Numbers) -> float:
    """The norm of the longest of rows (classes, size)."""
    return math.sqrt(np.einsum("ij,ij->i", rows, rows).max())


class ChangedClass(NamedTuple):
    """A class that has changed."""

    known: Known
    derived: Derived  # (...,) each
    bound: Bound


@dataclass(frozen=True)
class Block:
    """Up to `BLOCK` classes."""

    known: list[Known]
    derived: tuple[Tensor, ...]
    bound: Bound  # for all classes that it ever had

    def changed(self, places: list[int], fresh: Sequence[ChangedClass]) -> Block:
        """A block with these classes in their places, which may come after its last."""
        everything = [*self.known, *[{}] * (places[-1] + 1 - len(self.known))]
        for place, one in zip(places, fresh, strict=True):
            everything[place] = one.known
        tensors = []
        for number, first in enumerate(fresh[0].derived):
            whole = np.empty((len(everything), *first.shape), np.float32)
            if self.derived:
                whole[: len(self.known)] = self.derived[number].numpy()
            for place, one in zip(places, fresh, strict=True):
                whole[place] = one.derived[number]
            tensors.append(torch.from_numpy(whole))
        return Block(everything, tuple(tensors), reduce(Bound.widened, (one.bound for one in fresh), self.bound))


class ClassSnapshot(Snapshot):
    """What is known class by class, in blocks that snapshots share.

    What scores need of a class that has changed is derived at once. It waits until somebody asks: then its block is
    copied, with the new rows in it.
    """

    def __init__(
        self, form: Form, classes: int, blocks: tuple[Block, ...], waiting: Mapping[int, ChangedClass]
    ) -> None:
        self.form, self.classes = form, classes
        self._parts = blocks, waiting

    @classmethod
    def first(cls, form: Form, classes: int, known: Mapping[int, Known]) -> Self:
        return cls(form, classes, (), derived(form, known))

    def after(self, form: Form, classes: int, changed: Mapping[int, Known]) -> Self:
        """The next snapshot, in which the classes that are new or have changed are these."""
        blocks, waiting = self._parts
        following = type(self)(form, classes, blocks, {**waiting, **derived(form, changed)})
        if len(waiting) + len(changed) > BLOCK:  # nobody asks: let them not pile up
            following.blocks()
        return following

    def blocks(self) -> tuple[Block, ...]:
        """All classes. Two threads that ask at once both do the work, and either's is as good."""
        blocks, waiting = self._parts
        if not waiting:
            return blocks
        labels, whole = sorted(waiting), list(blocks)
        for number, group in groupby(labels, lambda label: label // BLOCK):
            some = list(group)
            old = whole[number] if number < len(whole) else Block([], (), Bound(0, 0))
            places, fresh = [label % BLOCK for label in some], [waiting[label] for label in some]
            whole[number : number + 1] = [old.changed(places, fresh)]
        self._parts = tuple(whole), {}
        return tuple(whole)

    def rows(self, labels: Classes | range) -> Rows:
        """What is known of these classes, of one copy."""
        blocks = self.blocks()
        known = stacked([blocks[label // BLOCK].known[label % BLOCK] for label in labels])
        return {name: torch.from_numpy(array)[None] for name, array in known.items()}

    def plain(self, query: Tensor, labels: Classes | range) -> Tensor:
        """Scores (m, labels)."""
        return self.form.plain(query[None], self.form.solved(self.rows(labels)))[0]

    def quick(self, query: Tensor) -> tuple[Tensor, list[float]]:
        """Scores (m, classes) in float32, and how far from the plain ones those of each example may lie."""
        blocks, small = self.blocks(), query.float()
        parts = [self.form.quick(small, *block.derived) for block in blocks]
        bound = reduce(Bound.widened, (block.bound for block in blocks))
        return torch.cat(parts, 1), bound.errors(query)

    def scores(self, x: Tensor) -> Tensor:
        require_classes(self.classes)
        return self.plain(self.form.prepare(x), range(self.classes))

    def answers(self, x: Tensor) -> list[int]:
        require_classes(self.classes)
        found = []
        for part in self.parts(x):
            query = self.form.prepare(part)
            scores, errors = self.quick(query)
            for row, error, one in zip(scores.numpy(), errors, query, strict=True):
                found.append(highest(row, error, partial(self.plain, one[None])))
        return found


def derived(form: Form, known: Mapping[int, Known]) -> dict[int, ChangedClass]:
    """What the quick form needs of these classes."""
    if not known:
        return {}
    arrays, bound = form.derive(stacked(list(known.values())))
    return {
        label: ChangedClass(one, tuple(array[i] for array in arrays), bound)
        for i, (label, one) in enumerate(known.items())
    }


def stacked(known: Sequence[Known]) -> Known:
    """Of classes one after another."""
    if len(known) == 1:  # the same, quicker
        return {name: array[None] for name, array in known[0].items()}
    return {name: np.stack([one[name] for one in known]) for name in known[0]}
