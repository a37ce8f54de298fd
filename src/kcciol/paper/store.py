"""The cells that are there: found, read, and held against what is wanted of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kcciol.errors import UserError
from kcciol.paper.cellfile import read_cell, require_key
from kcciol.paper.plan import EXPERIMENTS, STUDIES, RunPlan, cells, cells_of
from kcciol.paper.study import Cell, Subject, what_matters
from kcciol.serialization import to_dict


def check(plan: RunPlan) -> None:
    """Refuse cells of other settings: they must not stand in for those wanted."""
    for name in plan.parts:
        for made in stored_cells(plan, name):
            made.read()


@dataclass(frozen=True)
class StoredCell:
    """A cell that is there."""

    path: Path
    read: Callable[[], dict[str, Any]]
    """Its content; refuses one of other settings."""
    column: str = ""
    part: str = ""
    name: str = ""


def stored_cells(plan: RunPlan, experiment: str) -> Iterator[StoredCell]:
    """All cells of an experiment that are there, of whichever part and seed: its tables are made of them."""
    seeds = stored_seeds(plan, experiment)
    if experiment in EXPERIMENTS:
        pairs = EXPERIMENTS[experiment].cells(plan.workspace, seeds).items()
        yield from (StoredCell(path, read) for path, read in pairs if path.exists())
        return
    study = STUDIES[experiment]
    every = replace(plan, parts={study.name: tuple(study.parts)})
    for column in study.columns:
        for seed in seeds:
            subject = Subject(study, column, seed, plan.workspace)
            for path, part, name, cell in cells(every, study, column, seed):
                if path.exists():
                    yield StoredCell(
                        path,
                        partial(read, path, subject, cell, study.key(part, column, name, cell)),
                        column,
                        part,
                        name,
                    )


def read(path: Path, subject: Subject, cell: Cell, key: dict[str, str]) -> dict[str, Any]:
    """A cell, without the folders of the machine that made it. One that was measured otherwise, or on a representation
    trained otherwise, is refused."""
    wanted = json.loads(json.dumps(cell.spec(subject)))
    result = read_cell(path, "cell_seconds", "trained_seconds", rows=rows_of(wanted))
    try:
        same = result["spec"] == wanted and what_matters(result["config"]) == what_matters(to_dict(subject.config))
    except (KeyError, AttributeError):  # no config of a representation
        same = False
    require_key(path, result, key)
    if not same:
        raise UserError(f"{path} was made with other settings: move it away, or choose other folders.")
    result["config"]["data"]["root"] = Path(str(result["config"]["data"].get("root", ""))).name
    return result


def rows_of(spec: dict[str, Any]) -> list[str]:
    """The numbers of classes that a cell of this spec was measured at, if it is one of streams for a table."""
    if "figure" in spec:  # which has a form of its own
        return []
    streams = spec.get("algorithm 4") or ([spec["stream"]] if "stream" in spec else [])
    return [str(n) for stream in streams for n in stream["classes"]]


def stored_seeds(plan: RunPlan, name: str) -> tuple[int, ...]:
    """The seeds that are wanted, and those that there are cells of: a table is made of all that is there."""
    ends = (path.name.removesuffix(".json").rpartition("-seed")[2] for path in cells_of(plan, name).glob("*-seed*"))
    return tuple(sorted({*plan.seeds, *(int(end) for end in ends if end.isdecimal())}))
