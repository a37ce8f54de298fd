"""What there is to make: experiments, their cells, and how they are grouped into work for one process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kcciol.errors import UserError
from kcciol.paper.plot import Plot
from kcciol.paper.studies import colour, gan, omniglot, sine
from kcciol.paper.study import Cell, Study, Workspace, is_trained

STUDIES: dict[str, Study] = {study.name: study for study in (omniglot.STUDY, colour.MINI_IMAGENET, colour.CIFAR100)}


@dataclass(frozen=True)
class Experiment:
    """An experiment that is no study of representations: it is made in one go."""

    parts: tuple[str, ...]
    make: Callable[[Workspace, Sequence[int]], None]
    cells: Callable[[Workspace, Sequence[int]], dict[Path, Callable[[], dict[str, Any]]]]
    """Its cells, each with what reads it, and refuses one that was made otherwise."""
    tables: Callable[[Workspace, Sequence[int]], dict[str, Any]] = lambda workspace, seeds: {}
    ready: Callable[[Workspace], object] = lambda workspace: None
    """Refuse at once what could not be made, such as for lack of data."""
    draw: Callable[[Workspace, Sequence[int]], list[Plot]] | None = None


EXPERIMENTS = {
    "sine": Experiment(("table4",), sine.make, sine.cells, sine.tables),
    "mnist": Experiment(("gan",), gan.make, gan.cells, ready=gan.data_of, draw=gan.draw),
}
INCOMPLETE = 3  # exit code: cells are not made yet
HELPERS = 4  # processes that make the cells of one column's larger tables together
PARTS = {name: tuple(study.parts) for name, study in STUDIES.items()} | {n: w.parts for n, w in EXPERIMENTS.items()}


@dataclass(frozen=True)
class RunPlan:
    """What is wanted of which studies."""

    workspace: Workspace
    parts: Mapping[str, tuple[str, ...]]  # study -> its parts
    seeds: tuple[int, ...] = (0, 1, 2)
    columns: tuple[str, ...] = ()  # only these; none means all
    jobs: int = 1
    until: float = field(default=float("inf"))  # by time.monotonic()
    ray: str = ""  # address of a Ray cluster
    gpus: float = 0.0  # of the cluster, for each group

    def columns_of(self, study: Study) -> list[str]:
        """The columns that are wanted of a study, in its order."""
        return [column for column in study.columns if not self.columns or column in self.columns]


@dataclass(frozen=True)
class Group:
    """What must be done in one process: a column and those that go on from its phases, or a whole experiment."""

    name: str
    seeds: tuple[int, ...]
    columns: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    helper: int = 0
    """Above 0: one of several processes that make a column's cells together, once it is trained."""

    def __str__(self) -> str:
        return f"{self.name}, {self.columns[0]}, seed {self.seeds[0]}" if self.columns else self.name

    def paths(self, plan: RunPlan) -> list[Path]:
        """The cells that it makes."""
        if self.name in EXPERIMENTS:
            return list(EXPERIMENTS[self.name].cells(plan.workspace, self.seeds))
        mine, study = self.plan(plan), STUDIES[self.name]
        return [path for c in self.columns for path, *_ in cells(mine, study, c, self.seeds[0])]

    def done(self, plan: RunPlan) -> bool:
        return all(path.exists() for path in self.paths(plan))

    def trained(self, plan: RunPlan) -> bool:
        """Whether there is nothing left to train for its first column."""
        return self._has(plan, self.columns[0])

    def trains(self, plan: RunPlan) -> bool:
        """Whether there is something left to train."""
        return not self.columns or not all(self._has(plan, column) for column in self.columns)

    def _has(self, plan: RunPlan, column: str) -> bool:
        return is_trained(STUDIES[self.name], column, self.seeds[0], plan.workspace)

    def trains_with(self, other: Group) -> bool:
        """Whether the two go on from the same training."""
        if self.name != other.name or self.seeds != other.seeds or not self.columns:
            return False
        root = STUDIES[self.name].root
        return root(self.columns[0]) == root(other.columns[0])

    def helps(self, other: Group) -> bool:
        """Whether it makes cells of a column that the other trains."""
        same = self.name == other.name and self.seeds == other.seeds
        return bool(self.helper) and same and set(self.columns) <= set(other.columns)

    def plan(self, plan: RunPlan) -> RunPlan:
        """The plan with its parts alone."""
        return replace(plan, parts={self.name: self.parts})


def studies_of(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The parts of each study that these names (tables, studies, or "all") stand for."""
    known = {part: experiment for experiment, parts in PARTS.items() for part in parts}
    found: dict[str, list[str]] = {}
    for name in names:
        if name == "all" or name in PARTS:
            for experiment, parts in PARTS.items():
                if name in ("all", experiment):
                    found.setdefault(experiment, []).extend(parts)
        elif name in known:
            found.setdefault(known[name], []).append(name)
        else:
            raise UserError(f"There is no experiment {name!r}; there are: all, {', '.join([*PARTS, *known])}.")
    return {name: tuple(dict.fromkeys(parts)) for name, parts in found.items()}


def cells(plan: RunPlan, study: Study, column: str, seed: int) -> Iterator[tuple[Path, str, str, Cell]]:
    """The cells of a column: file, part, name, how it is measured."""
    for part in plan.parts[study.name]:
        if study.has(part, column, seed):
            for name, cell in study.parts[part](column).items():
                yield path_of(plan.workspace, study, part, column, seed, name), part, name, cell


def path_of(workspace: Workspace, study: Study, part: str, column: str, seed: int, name: str) -> Path:
    """The file of a cell. Its name is for people: which cell it is stands in it."""
    return folder_of_cells(workspace, study, column, seed) / f"{plain(part)}-{plain(name)}.json"


def folder_of_cells(workspace: Workspace, study: Study, column: str, seed: int) -> Path:
    return workspace.runs / "cells" / study.name / f"{column}-seed{seed}"


def plain(name: str) -> str:
    """A name in letters, digits, dots, underscores and hyphens.

    >>> plain("er (200 examples), head, sgd"), plain("der++, head, adam")
    ('er-200-examples-head-sgd', 'derpp-head-adam')
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", name.replace("+", "p")).strip("-")


def groups(plan: RunPlan, apart: bool = False) -> list[Group]:
    """Everything that is wanted and not all there, the longest first. Columns that go on from the same training are in
    one group.

    apart: parts that only some columns have are groups of their own, several for each, which begin as soon as their
    column is trained.
    """
    wholes = [name for name in plan.parts if name in EXPERIMENTS and not plan.columns]
    found = [Group(name, tuple(s for s in plan.seeds if not Group(name, (s,)).done(plan))) for name in wholes]
    for seed in plan.seeds:
        for name in (name for name in plan.parts if name in STUDIES):
            study, parts = STUDIES[name], plan.parts[name]
            columns = plan.columns_of(study)
            order = sorted(columns, key=lambda c: study.longest.index(c) if c in study.longest else len(study.longest))
            limited = tuple(part for part in parts if apart and part in study.only)
            for number in range(1, HELPERS + 1) if limited else ():
                found += [Group(name, (seed,), (column,), limited, number) for column in order]
            rest = tuple(part for part in parts if part not in limited)
            mine = replace(plan, parts={name: rest})
            families: dict[str, list[str]] = {}
            for column in order:
                if all(path.exists() for path, *_ in cells(mine, study, column, seed)):
                    continue  # and whoever goes on from it trains as much of it as need be
                families.setdefault(study.root(column), []).append(column)
            for family in families.values():  # first the column that the others go on from
                family.sort(key=lambda c: (study.columns[c].after is not None, columns.index(c)))
                found.append(Group(name, (seed,), tuple(family), rest))
    return [group for group in found if not group.done(plan)]


def every_path(plan: RunPlan) -> Iterator[Path]:
    """The cells of all that is wanted."""
    for name in plan.parts:
        if name in EXPERIMENTS:
            yield from (() if plan.columns else EXPERIMENTS[name].cells(plan.workspace, plan.seeds))
        else:
            for column in plan.columns_of(STUDIES[name]):
                for seed in plan.seeds:
                    yield from (path for path, *_ in cells(plan, STUDIES[name], column, seed))


def cells_of(plan: RunPlan, name: str) -> Path:
    """The folder with an experiment's cells."""
    return (
        next(iter(EXPERIMENTS[name].cells(plan.workspace, [0]))).parent
        if name in EXPERIMENTS
        else plan.workspace.runs / "cells" / name
    )
