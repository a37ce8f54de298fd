"""The cells that are there: found, and held against what is wanted of them."""

from __future__ import annotations

from collections.abc import Iterator

from kcciol.paper.experiment import CellFile, Scope
from kcciol.paper.plan import EXPERIMENTS, RunPlan


def check(plan: RunPlan) -> None:
    """Refuse cells of other settings: they must not stand in for those wanted."""
    for name in plan.parts:
        for made in stored_cells(plan, name):
            made.read()


def stored_cells(plan: RunPlan, name: str) -> Iterator[CellFile]:
    """All cells of an experiment that are there, of whichever part and seed: its tables are made of them."""
    experiment = EXPERIMENTS[name]
    every = Scope(plan.workspace, tuple(experiment.parts), stored_seeds(plan, name))
    return (cell for cell in experiment.cells(every) if cell.path.exists())


def stored_seeds(plan: RunPlan, name: str) -> tuple[int, ...]:
    """The seeds that are wanted, and those that there are cells of: a table is made of all that is there."""
    there = EXPERIMENTS[name].folder(plan.workspace).glob("*-seed*")
    ends = (path.name.removesuffix(".json").rpartition("-seed")[2] for path in there)
    return tuple(sorted({*plan.seeds, *(int(end) for end in ends if end.isdecimal())}))
