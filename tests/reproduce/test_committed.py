"""Every cell that is kept in results/ can be used, and the tables there say what these cells say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kcciol.reproduce import kept
from kcciol.reproduce.runner import PARTS, Plan, cells_of, seeds_there, there
from kcciol.reproduce.study import Where
from kcciol.reproduce.tables import made_of

RESULTS = Path(__file__).parents[2] / "results"
PLAN = Plan(Where(runs=RESULTS), PARTS, seeds=(0,))
KEPT = [name for name in PARTS if cells_of(PLAN, name).is_dir()]
BY_COLUMN = ("seeds", "settings", "record", "training_seconds", "seconds")


def test_whose_cells_are_kept() -> None:
    assert {"omniglot", "mini-imagenet", "sine", "mnist"} <= set(KEPT)
    folders = {cells_of(PLAN, name).name for name in KEPT}
    assert folders == {path.name for path in (RESULTS / "cells").iterdir()}


@pytest.mark.parametrize("name", KEPT)
def test_cells_that_are_kept_can_be_used(tmp_path: Path, name: str) -> None:
    plan = Plan(Where(runs=tmp_path), {name: PARTS[name]}, seeds=seeds_there(PLAN, name))
    assert kept.adopt(plan, RESULTS) == []
    used = {made.path.relative_to(tmp_path) for made in there(plan, name)}
    assert used == {path.relative_to(RESULTS) for path in cells_of(PLAN, name).rglob("*.json")}


@pytest.mark.parametrize("name", [name for name in KEPT if name != "mnist"])  # of which there is no table
def test_tables_say_what_their_cells_say(name: str) -> None:
    """A table may have columns whose cells were not kept, but no number that those which were contradict."""
    made, _ = made_of(PLAN, name)
    assert made
    for table, value in json.loads(json.dumps(made)).items():
        old = json.loads((RESULTS / f"{table}.json").read_text())
        for row, cells in value["rows"].items():
            for column, cell in cells.items():
                close(cell, old["rows"][row][column], f"{table}, {row}, {column}")
        for key in BY_COLUMN:
            for column, about in value.get(key, {}).items():
                close(about, old[key][column], f"{table}, {key}, {column}")


def test_figures_say_what_their_cells_say() -> None:
    """Those of Omniglot's and CIFAR-100's cells, which were not kept, are not among them."""
    drawn = [figure for name in KEPT for figure in made_of(PLAN, name)[1]]
    assert {figure.name for figure in drawn} == {"held-mini-imagenet", "weights", "gan"}
    for figure in drawn:
        old = json.loads((RESULTS / "figures" / f"{figure.name}.json").read_text())
        assert (old["title"], old["caption"], old["seeds"]) == (figure.title, figure.caption, figure.seeds)
        for key, value in (("numbers", dict(figure.numbers)), ("data", figure.data)):
            close(json.loads(json.dumps(value)), old[key], f"{figure.name}, {key}")


def close(new: Any, old: Any, where: str) -> None:
    """Equal, but for the last digits, in which machines differ."""
    if isinstance(new, dict):
        assert isinstance(old, dict), where
        assert new.keys() == old.keys(), where
        for key in new:
            close(new[key], old[key], f"{where}, {key}")
    elif isinstance(new, list):
        assert isinstance(old, list), where
        assert len(new) == len(old), where
        for a, b in zip(new, old, strict=True):
            close(a, b, where)
    elif isinstance(new, float):
        assert new == pytest.approx(old, rel=1e-6, abs=1e-9), where
    else:
        assert new == old, where
