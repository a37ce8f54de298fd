"""The tables in results/ say what the cells say that are kept beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kcciol.reproduce.runner import PARTS, STUDIES, WHOLES, Plan, cells_of, seeds_there
from kcciol.reproduce.study import Where
from kcciol.reproduce.tables import gather

RESULTS = Path(__file__).parents[2] / "results"
KEPT = Plan(Where(runs=RESULTS), {name: PARTS[name] for name in PARTS}, seeds=(0,))
SAME = ("mean", "ci95", "by_seed", "by_trajectory", "by_run", "seeds", "choice")


def tables_of(name: str) -> dict[str, Any]:
    if name in WHOLES:
        return WHOLES[name].tables(KEPT.where, seeds_there(KEPT, name))
    return STUDIES[name].frames(gather(KEPT, STUDIES[name]))


@pytest.mark.parametrize("name", [name for name in PARTS if cells_of(KEPT, name).is_dir() and name != "mnist"])
def test_tables_are_those_of_their_cells(name: str) -> None:
    """A table may have columns whose cells were not kept, but none that they contradict."""
    made = json.loads(json.dumps(tables_of(name)))
    assert made
    for table, value in made.items():
        there = json.loads((RESULTS / f"{table}.json").read_text())["rows"]
        for row, cells in value["rows"].items():
            for column, cell in cells.items():
                for key in SAME:
                    if key in cell:
                        close(cell[key], there[row][column][key], f"{table}, {row}, {column}, {key}")


def close(new: Any, old: Any, where: str) -> None:
    """Equal, but for the last digits, in which machines differ."""
    if isinstance(new, dict):
        assert new.keys() == old.keys(), where
        for key in new:
            close(new[key], old[key], where)
    elif isinstance(new, list):
        assert len(new) == len(old), where
        for a, b in zip(new, old, strict=True):
            close(a, b, where)
    else:
        assert new == (pytest.approx(old, rel=1e-6, abs=1e-9) if isinstance(new, float) else old), where
