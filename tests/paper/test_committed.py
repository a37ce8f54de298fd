"""Every cell that is kept in results/ can be used, and the tables there say what these cells say."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from kcciol.paper import archive
from kcciol.paper.plan import EXPERIMENTS, PARTS, RunPlan
from kcciol.paper.store import stored_cells, stored_seeds
from kcciol.paper.study import Workspace
from kcciol.paper.writing import cells_in, made_of

RESULTS = Path(__file__).parents[2] / "results"
PLAN = RunPlan(Workspace(runs=RESULTS), PARTS, seeds=(0,))
KEPT = [name for name in PARTS if EXPERIMENTS[name].folder(PLAN.workspace).is_dir()]
NOT_KEPT = "its cell files are not kept"
BY_COLUMN = ("seeds", "settings", "record", "training_seconds", "seconds")


def test_whose_cells_are_kept() -> None:
    assert {"omniglot", "mini-imagenet", "sine", "mnist"} <= set(KEPT)
    folders = {EXPERIMENTS[name].folder(PLAN.workspace).name for name in KEPT}
    assert folders == {path.name for path in (RESULTS / "cells").iterdir()}


@pytest.mark.parametrize("name", KEPT)
def test_cells_that_are_kept_can_be_used(tmp_path: Path, name: str) -> None:
    plan = RunPlan(Workspace(runs=tmp_path), {name: PARTS[name]}, seeds=stored_seeds(PLAN, name))
    assert archive.restore(plan, RESULTS) == []
    used = {made.path.relative_to(tmp_path) for made in stored_cells(plan, name)}
    assert used == {path.relative_to(RESULTS) for path in EXPERIMENTS[name].folder(PLAN.workspace).rglob("*.json")}


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


@pytest.mark.parametrize("path", sorted([*RESULTS.glob("table*.json"), RESULTS / "heads.json"]), ids=lambda p: p.stem)
def test_numbers_whose_cells_are_not_kept_say_so(path: Path) -> None:
    kept = {name for names in made_cells().values() for name in names if name[0] == path.stem}
    cells = dict(cells_in(json.loads(path.read_text())["rows"]))
    assert cells
    for name, cell in cells.items():
        assert (NOT_KEPT in cell.get("provenance", [])) == ((path.stem, *name) not in kept), name


@functools.cache
def made_cells() -> dict[str, set[tuple[str, ...]]]:
    """The places in tables of all that is made of cells which are kept."""
    made = {table: value for name in KEPT for table, value in made_of(PLAN, name)[0].items()}
    return {table: {(table, *name) for name, _ in cells_in(value["rows"])} for table, value in made.items()}


def test_figures_whose_cells_are_not_kept_say_so() -> None:
    for path in (RESULTS / "figures").glob("*.json"):
        said = json.loads(path.read_text()).get("provenance", [])
        assert (NOT_KEPT in said) == (path.stem not in {"held-mini-imagenet", "weights", "gan"}), path.stem


def test_figures_say_what_their_cells_say() -> None:
    """Those of Omniglot's and CIFAR-100's cells, which were not kept, are not among them."""
    drawn = [figure for name in KEPT for figure in made_of(PLAN, name)[1]]
    assert {figure.name for figure in drawn} == {"held-mini-imagenet", "weights", "gan"}
    for figure in drawn:
        old = json.loads((RESULTS / "figures" / f"{figure.name}.json").read_text())
        assert (old["title"], old["caption"], old["seeds"]) == (figure.title, figure.caption, figure.seeds)
        for key, value in (("numbers", dict(figure.numbers)), ("data", figure.data)):
            close(json.loads(json.dumps(value)), old[key], f"{figure.name}, {key}")


def close(new: Any, old: Any, name: str) -> None:
    """Equal, but for the last digits, in which machines differ; and for intervals of 0, which say nothing: they were
    written where all values are equal, and the page leaves them out."""
    if new is None and name.rpartition(", ")[2].startswith("ci95"):
        assert not old, name
    elif isinstance(new, dict):
        assert isinstance(old, dict), name
        assert new.keys() == old.keys(), name
        for key in new:
            close(new[key], old[key], f"{name}, {key}")
    elif isinstance(new, list):
        assert isinstance(old, list), name
        assert len(new) == len(old), name
        for a, b in zip(new, old, strict=True):
            close(a, b, name)
    elif isinstance(new, float):
        assert new == pytest.approx(old, rel=1e-6, abs=1e-9), name
    else:
        assert new == old, name
