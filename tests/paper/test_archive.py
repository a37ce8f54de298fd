"""What is kept beside the tables lets another machine go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kcciol import cli
from kcciol.files import write_json
from kcciol.paper.plan import RunPlan
from kcciol.paper.rehearsal import REHEARSAL
from kcciol.paper.study import Workspace
from kcciol.paper.writing import _spent

CELL = "cells/omniglot/oml-seed0/heads-ncm.json"
KEPT = f"out/rehearsal/{CELL}"


def reproduce(folder: Path, machine: str, *more: str, what: str = "heads", seed: int = 0) -> int:
    words = ["reproduce", what, "--preset", "tiny", "--seeds", str(seed), "--out", str(folder / "out")]
    columns = ["--columns", "oml"] if what == "heads" else []
    return cli.main([*words, *columns, "--runs", str(folder / machine), *more])


def seeds(folder: Path) -> Any:
    return json.loads((folder / "out/heads.json").read_text())["seeds"]["oml"]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_nothing_is_made_twice_and_a_seed_is_added(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "a", "--cells") == 0
    first = (tmp_path / "a" / CELL).read_text()
    assert (tmp_path / KEPT).read_text() == first
    assert reproduce(tmp_path, "b", seed=1) == 0  # what is kept there keeps on
    assert seeds(tmp_path) == [0, 1]
    assert (tmp_path / "b" / CELL).read_text() == first
    assert [path.name for path in (tmp_path / "b/omniglot").iterdir()] == ["oml-seed1"]
    assert reproduce(tmp_path, "c") == 0
    assert seeds(tmp_path) == [0, 1]  # both were taken from there
    assert not (tmp_path / "c/omniglot").exists()


def test_cells_are_kept_only_when_asked_for(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "a") == 0
    assert not (tmp_path / "out/rehearsal").exists()
    assert reproduce(tmp_path, "a", "--cells") == 0
    assert (tmp_path / KEPT).exists()
    assert not (tmp_path / "out/cells").exists()  # where those of no rehearsal are


def test_neither_side_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, "a", "--cells") == 0
    here, beside = tmp_path / "a" / CELL, tmp_path / KEPT
    write_json(here, json.loads(here.read_text()) | {"cell_seconds": 77.0})
    old = beside.read_text()
    capsys.readouterr()
    assert reproduce(tmp_path, "a", "--cells") == 2
    assert "1 kept cells are others than the tables'" in said(capsys)
    assert json.loads(here.read_text())["cell_seconds"] == 77.0
    assert beside.read_text() == old


def damaged(how: str, whole: dict[str, Any]) -> str:
    changed = {
        "other": whole | {"spec": {"learner": "slda"}},
        "no config": whole | {"config": {}},
        "a list": whole | {"config": [1]},
        "no data": whole | {"config": whole["config"] | {"data": {}}},
        "no number": whole | {"cell_seconds": float("nan")},
        "lacking": {k: v for k, v in whole.items() if k != "record"},
    }
    texts = {"cut": '{"spec": ', "deep": "[" * 100_000}
    return texts[how] if how in texts else json.dumps(changed[how])


@pytest.mark.parametrize("how", ["other", "no config", "a list", "no data", "no number", "lacking", "cut", "deep"])
def test_a_cell_that_is_not_of_this_is_left_and_made_anew(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, "a", "--cells") == 0
    path = tmp_path / KEPT
    whole = json.loads(path.read_text())
    bad = damaged(how, whole)
    path.write_text(bad)
    capsys.readouterr()
    assert reproduce(tmp_path, "b") == 2  # it would not be found among the kept ones
    text = said(capsys)
    assert "1 of the cells that are kept cannot be used" in text
    assert "Traceback" not in text
    assert path.read_text() == bad
    assert json.loads((tmp_path / "b" / CELL).read_text())["spec"] == whole["spec"]
    (tmp_path / "b" / CELL).write_text(bad)  # nor is it taken for a result where results are made
    assert reproduce(tmp_path, "b") == 2
    assert "move it away" in said(capsys)


def test_no_folder_of_a_machine_is_kept(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "a") == 0
    path = tmp_path / "a" / CELL
    cell = json.loads(path.read_text())
    cell["config"]["data"]["root"] = "/home/me/data"
    write_json(path, cell)
    assert reproduce(tmp_path, "a", "--cells") == 0
    assert json.loads((tmp_path / KEPT).read_text())["config"]["data"]["root"] == "data"


def test_so_it_is_with_what_is_made_in_one_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, "a", "--cells", what="table4") == 0
    (tmp_path / "out/rehearsal/cells/sine/srnn-seed0.json").write_text("{")
    capsys.readouterr()
    assert reproduce(tmp_path, "b", what="table4") == 2
    assert "1 of the cells that are kept cannot be used" in said(capsys)
    cells = sorted(path.name for path in (tmp_path / "b/cells/sine").iterdir())
    assert cells == sorted(path.name for path in (tmp_path / "a/cells/sine").iterdir())
    assert not (tmp_path / "b/sine").exists()  # the one that was damaged needs no members


def test_cells_without_tables_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, "a", "--cells", "--no-tables") == 2
    assert "leave --no-tables out" in said(capsys)


def test_a_place_that_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out/rehearsal").mkdir(parents=True)
    (tmp_path / "out/rehearsal/cells").write_text("a file")
    assert reproduce(tmp_path, "a", "--cells") == 2
    assert "cannot be made" in said(capsys)
    assert not (tmp_path / "a").exists()


def test_time_spent_elsewhere_is_not_forgotten(tmp_path: Path) -> None:
    plan = RunPlan(Workspace(runs=tmp_path / "runs"), {"omniglot": ("table1",)})
    old = [{"seconds": 5.0, "jobs": 1}, {"seconds": 6.0, "jobs": 1}]
    table = tmp_path / "table1.json"
    write_json(table, {"device_seconds": old})
    assert _spent(plan, "omniglot", 0.0, [table]) == old
    assert _spent(plan, "omniglot", 7.0, [table]) == [*old, {"seconds": 7.0, "jobs": 1}]
    assert _spent(plan, "omniglot", 0.0, []) == [*old, {"seconds": 7.0, "jobs": 1}]  # by now it is known here
    write_json(table, {"title": REHEARSAL, "device_seconds": [{}] * 9})
    assert len(_spent(plan, "omniglot", 0.0, [table])) == 3
