"""Tables are written over only by tables that have all that they had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kcciol import cli
from kcciol.files import write_json
from kcciol.paper.rehearsal import REHEARSAL
from kcciol.paper.studies import sine
from kcciol.paper.writing import lost

CELL = {"mean": 1.0, "seeds": [0, 1]}
TABLE = {"title": "Omniglot", "rows": {"10": {"oml": CELL, "kcciol": CELL, "paper: oml": {"mean": 2.0}}}}


def rows(**cells: Any) -> dict[str, Any]:
    return {"rows": {"10": cells}}


@pytest.mark.parametrize(
    ("new", "gone"),
    [
        (rows(oml=CELL, kcciol=CELL), []),
        (rows(oml={"mean": 3.0, "seeds": [2, 1, 0]}, kcciol=CELL, more=CELL), []),
        (rows(kcciol=CELL), ["10, oml"]),
        (rows(oml={"mean": 1.0, "seeds": [0]}, kcciol=CELL), ["10, oml"]),
        ({"rows": {}}, ["10, oml", "10, kcciol"]),
    ],
)
def test_what_would_be_lost(new: dict[str, Any], gone: list[str]) -> None:
    assert lost(TABLE, new) == gone


def test_a_rehearsal_may_be_lost() -> None:
    assert lost(TABLE | {"title": REHEARSAL + "Omniglot"}, {"rows": {}}) == []


def test_a_table_of_sine_functions_says_its_seeds(tmp_path: Path) -> None:
    results = [{"functions": {"1": {"by_run": [1.0], "diverged": 0}}, "rate": {"chosen": 1}, "config": {"seed": 2}}]
    assert sine.pooled(results, "1")["seeds"] == [2]


def test_deeper_rows_are_cells_too() -> None:
    old = {"rows": {"200": {"oml": {"ncm": CELL, "slda": CELL}}}}
    assert lost(old, {"rows": {"200": {"oml": {"ncm": CELL}}}}) == ["200, oml, slda"]


@pytest.mark.parametrize("old", [{}, {"rows": 3}])
def test_nothing_is_lost_of_what_is_no_table(old: dict[str, Any]) -> None:
    assert lost(old, rows(oml=CELL)) == []


def test_a_figure_of_more_seeds_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcciol.paper.writing.refuse_rehearsal", lambda out: None)  # as if it were none
    words = ["reproduce", "gan", "--preset", "tiny", "--seeds", "0"]
    words += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert cli.main(words) == 0
    path = tmp_path / "out" / "figures" / "gan.json"
    figure = json.loads(path.read_text())
    write_json(path, figure | {"title": "Digits", "seeds": {column: [0, 1] for column in figure["seeds"]}})
    before = path.read_text()
    assert cli.main(words) == 2
    assert path.read_text() == before


def test_nothing_is_said_of_fuller_tables_that_nobody_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where some of Table 1's cells are kept, Table 5 can be made alone."""
    monkeypatch.setattr("kcciol.paper.writing.refuse_rehearsal", lambda out: None)
    words = ["--preset", "tiny", "--seeds", "0", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    assert cli.main(["reproduce", "table1", "--columns", "oml", *words]) == 0
    write_json(tmp_path / "table1.json", TABLE)
    capsys.readouterr()
    assert cli.main(["reproduce", "table5", "--columns", "oml", *words]) == 0
    assert "table1" not in capsys.readouterr().out
    assert json.loads((tmp_path / "table1.json").read_text()) == TABLE
    assert cli.main(["reproduce", "table1", "--columns", "oml", *words]) == 2


@pytest.mark.parametrize("text", ['{"rows": {"3": {"oml": {"mean": 1', "[]", "abc", ""])
@pytest.mark.parametrize("name", ["table1", "figures/prune"])
def test_what_is_damaged_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    part, column = ("figures", "kcciol") if "figures" in name else ("table1", "oml")
    words = ["reproduce", part, "--preset", "tiny", "--runs", str(tmp_path / "runs"), "--seeds", "0"]
    words += ["--columns", column, "--out", str(tmp_path / "out")]
    path = tmp_path / "out" / f"{name}.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert cli.main(words) == 2
    assert f"{path.name} is left as it is, but cannot be read: move it" in " ".join(capsys.readouterr().out.split())
    assert path.read_text() == text
    path.unlink()
    assert cli.main(words) == 0


def test_a_fuller_table_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcciol.paper.writing.refuse_rehearsal", lambda out: None)  # as if it were none
    words = ["reproduce", "heads", "--preset", "tiny", "--runs", str(tmp_path / "runs"), "--seeds", "0"]
    out = tmp_path / "out"
    assert cli.main([*words, "--out", str(out), "--columns", "oml"]) == 0
    full = json.loads((out / "heads.json").read_text())
    full["rows"]["3"]["kcciol"], full["title"] = full["rows"]["3"]["oml"], "Heads"
    write_json(out / "heads.json", full)
    capsys.readouterr()
    assert cli.main([*words, "--out", str(out), "--columns", "oml"]) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "left as it is" in said
    assert "kcciol" in said
    assert json.loads((out / "heads.json").read_text()) == full
    assert cli.main([*words, "--out", str(tmp_path / "other"), "--columns", "oml"]) == 0


@pytest.mark.parametrize("name", ["table1.json", "figures/gan.json"])
def test_a_rehearsal_does_not_go_over_real_results(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "figures").mkdir()
    write_json(tmp_path / name, TABLE)
    words = ["reproduce", "heads", "--preset", "tiny", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    assert cli.main(words) == 2
    assert "is no rehearsal" in " ".join(capsys.readouterr().err.split())
    assert json.loads((tmp_path / name).read_text()) == TABLE
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_written_to_is_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path / "out")
    words = ["reproduce", "heads", "--preset", "tiny", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    assert "choose another --out" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
