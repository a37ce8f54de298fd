"""The short form of the results: a table in Markdown, and a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kcciol.cli import main
from kcciol.errors import UserError
from kcciol.paper.report.read import read
from kcciol.paper.report.summary import digest, markdown, picture, summed_up
from tests.paper.report.example import cell, printed, results_folder, table1


def folder(tmp_path: Path, **tables: dict[str, Any]) -> Path:
    tmp_path.mkdir(exist_ok=True)
    for name, table in tables.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(table))
    return tmp_path


def colour(**more: Any) -> dict[str, Any]:
    rows = {
        "6": {"kcciol": cell(60.0), "kcciol-phase1": cell(57.1, None), "paper: kcciol": printed(49.4)},
        "20": {"kcciol": cell(38.0), "control": cell(24.5), "paper: kcciol": printed(29.7)},
        "40": {"kcciol": cell(30.0)},
    }
    return {"title": "a | b <i>, novel", "axis": "classes", "metric": "accuracy %", "rows": rows, "seeds": [0], **more}


def test_the_first_and_the_last_row_that_both_have(tmp_path: Path) -> None:
    found = markdown(read(folder(tmp_path, table1=table1(), table2=colour(), table7=colour(title="the same again"))))
    assert found.splitlines() == [
        "|  |  | paper, printed | `kcciol` | `kcciol-phase1` | `control` |",
        "| --- | --- | --- | --- | --- | --- |",
        "| Omniglot, accuracy % on held-out images | classes: 10 | 95.4 | 96.5 ± 0.5 |  | 96.2 ± 0.5 |",
        "| a \\| b &lt;i>, accuracy % | classes: 6 | 49.4 | 60.0 ± 0.5 | 57.1 |  |",
        "|  | classes: 20 | 29.7 | 38.0 ± 0.5 |  | 24.5 ± 0.5 |",
        "",
        "(± is the 95 % interval over streams; trained representations of `kcciol`: Omniglot 2, a \\| b &lt;i> 1.)",
    ]


def test_rows_are_taken_in_order(tmp_path: Path) -> None:
    rows = {n: {"kcciol": cell(float(n)), "paper: kcciol": printed(1.0)} for n in ("2", "10", "1", "4", "3")}
    table = {"title": "Sine, ten", "axis": "tasks", "metric": "error", "lower_is_better": True, "rows": rows}
    lines = markdown(read(folder(tmp_path, table4=table))).splitlines()[2:5]
    assert [line.split("|")[2].strip() for line in lines] == ["tasks: 1", "tasks: 3", "tasks: 10"]
    assert lines[0].startswith("| Sine, error (lower is better) |")


def test_small_errors_keep_their_digits(tmp_path: Path) -> None:
    rows = {"1": {"kcciol": cell(0.0712, 0.01), "paper: kcciol": printed(0.08)}}
    table = {"title": "Sine", "axis": "tasks", "metric": "mean squared error", "rows": rows}
    assert "| Sine, mean squared error | tasks: 1 | 0.08 | 0.071 ± 0.010↕ |" in markdown(
        read(folder(tmp_path, table4=table))
    )


def test_numbers_are_marked_as_everywhere(tmp_path: Path) -> None:
    history = {"provenance": ["its cells are not kept"], "choice": [{"at_edge": True}]}
    rows = {"1": {"kcciol": cell(60.0) | history, "paper: kcciol": printed(50.0)}}
    found = markdown(read(folder(tmp_path, table1={"title": "Omniglot", "rows": rows})))
    assert "| 60.0 ± 0.5†‡ |" in found
    assert "† a setting was chosen at the end of its grid; ‡ its cells are not kept" in found


def test_runs_that_diverged_have_no_point(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lost = {"mean": None, "n": 50, "diverged": 50}
    rows = {n: {"kcciol": c, "paper: kcciol": printed(0.4)} for n, c in (("1", lost), ("2", cell(0.5, 0.1)))}
    results = read(folder(tmp_path, table4={"title": "Sine", "rows": rows}))
    assert markdown(results).splitlines()[2:4] == ["| Sine | 1 | 0.4 | ∞ |", "|  | 2 | 0.4 | 0.500 ± 0.100↕ |"]
    picture(results, tmp_path / "a.svg")
    assert "inf" not in (tmp_path / "a.svg").read_text()


def test_tables_of_other_kinds_are_left_out(tmp_path: Path) -> None:
    learners = {"rows": {"online": {"kcciol": cell(90.0), "paper: kcciol": printed(85.0)}}}
    none = folder(tmp_path / "none", table5=learners, table8={"rows": {"1": {"oml": cell(1.0)}}})
    assert summed_up(read(none)) == []
    for make in (lambda: markdown(read(none)), lambda: picture(read(none), tmp_path / "a.png")):
        with pytest.raises(UserError, match="no table of kcciol"):
            make()
    assert not (tmp_path / "a.png").exists()


def test_the_same_results_give_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = read(folder(tmp_path / "one", table1=table1(), table2=colour()))
    other = read(folder(tmp_path / "two", table1=table1(), table2=colour(metric="error %")))
    for end in (".png", ".svg"):
        first, again = tmp_path / f"a{end}", tmp_path / f"b{end}"
        picture(results, first)
        picture(results, again)
        assert first.read_bytes() == again.read_bytes()
    assert digest(results).encode() in (tmp_path / "a.png").read_bytes()
    assert digest(results) != digest(other)
    said = (tmp_path / "a.svg").read_text()
    assert "<!-- ours, without its two terms -->" in said  # in the legend, though one table lacks it
    assert "<!-- 10 -->" in said
    assert "<!-- 200 -->" in said


def test_without_matplotlib_nothing_is_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    results = folder(tmp_path / "results", table1=table1())
    words = ["report", str(results), "--out", str(tmp_path / "r.html"), "--markdown", str(tmp_path / "s.md")]
    assert main([*words, "--picture", str(tmp_path / "s.png")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert main(words) == 0


def test_the_command_writes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    results = results_folder(tmp_path / "results")
    page, short, drawn = (tmp_path / name for name in ("r.html", "s.md", "s.png"))
    words = ["report", str(results), "--out", str(page)]
    assert main([*words, "--markdown", str(short), "--picture", str(drawn)]) == 0
    assert capsys.readouterr().out.count("wrote ") == 3
    assert short.read_text() == markdown(read(results)) + "\n"
    assert drawn.read_bytes().startswith(b"\x89PNG")
    page.unlink()
    short.unlink()
    assert main([*words, "--markdown", str(short), "--picture", str(tmp_path / "s.gif")]) == 2
    assert not short.exists()  # nothing is half done
    for wrong in (["--markdown", str(tmp_path / "s.txt")], ["--picture", str(tmp_path / "s.gif")]):
        assert main([*words, *wrong]) == 2
        assert not page.exists()
