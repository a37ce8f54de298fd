"""What is kept beside the tables lets another machine go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kcciol import cli
from kcciol.atomic import write_json

CELL = "cells/omniglot/oml-seed0/heads, ncm.json"


def reproduce(folder: Path, machine: str, *more: str, what: str = "heads", seed: int = 0) -> int:
    words = ["reproduce", what, "--preset", "tiny", "--seeds", str(seed), "--out", str(folder / "out")]
    columns = ["--columns", "oml"] if what == "heads" else []
    return cli.main([*words, *columns, "--runs", str(folder / machine), *more])


def seeds(folder: Path) -> Any:
    return json.loads((folder / "out/heads.json").read_text())["seeds"]["oml"]


def test_nothing_is_made_twice_and_a_seed_is_added(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "a", "--cells") == 0
    first = (tmp_path / "a" / CELL).read_text()
    assert reproduce(tmp_path, "b", "--cells", seed=1) == 0
    assert seeds(tmp_path) == [0, 1]
    assert (tmp_path / "b" / CELL).read_text() == first
    assert not (tmp_path / "b/omniglot/kcciol-seed0").exists()
    assert reproduce(tmp_path, "c") == 0
    assert seeds(tmp_path) == [0, 1]  # both were taken from there
    assert not (tmp_path / "c/omniglot").exists()


def test_cells_are_kept_only_when_asked_for(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "a") == 0
    assert not (tmp_path / "out/cells").exists()


def test_what_lies_here_is_not_replaced(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "a", "--cells") == 0
    path = tmp_path / "a" / CELL
    write_json(path, json.loads(path.read_text()) | {"cell_seconds": 77.0})
    assert reproduce(tmp_path, "a") == 0
    assert json.loads(path.read_text())["cell_seconds"] == 77.0


@pytest.mark.parametrize("text", ['{"spec": ', "other"])
def test_a_cell_of_other_settings_is_left_and_made_anew(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, "a", "--cells") == 0
    path = tmp_path / "out" / CELL
    whole = json.loads(path.read_text())
    path.write_text(text if text != "other" else json.dumps(whole | {"spec": {"learner": "slda"}}))
    capsys.readouterr()
    assert reproduce(tmp_path, "b") == 0
    assert "1 cells are not used" in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "b" / CELL).read_text())["spec"] == whole["spec"]


def test_no_folder_of_a_machine_is_kept(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "a") == 0
    path = tmp_path / "a" / CELL
    cell = json.loads(path.read_text())
    cell["config"]["data"]["root"] = "/home/me/data"
    write_json(path, cell)
    assert reproduce(tmp_path, "a", "--cells") == 0
    assert json.loads((tmp_path / "out" / CELL).read_text())["config"]["data"]["root"] == "data"


def test_so_it_is_with_what_is_made_in_one_go(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "a", "--cells", what="table4") == 0
    assert reproduce(tmp_path, "b", what="table4") == 0
    cells = sorted(path.name for path in (tmp_path / "b/cells/sine").iterdir())
    assert cells == sorted(path.name for path in (tmp_path / "a/cells/sine").iterdir())
    assert not (tmp_path / "b/sine").exists()
