"""Every experiment, figure and the page, rehearsed by the commands that make the real ones, so that nothing rots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kcciol import cli
from kcciol.paper.studies import colour

RESULTS = Path(__file__).parents[2] / "results"


def columns(table: dict[str, Any]) -> set[str]:
    """Those of ours."""
    return {column for row in table["rows"].values() for column in row if not column.startswith("paper: ")}


@pytest.mark.slow
def test_everything_is_rehearsed(tmp_path: Path) -> None:
    out = tmp_path / "results"
    words = ["reproduce", "all", "--preset", "tiny", "--seeds", "0", "--jobs", "2"]
    assert cli.main([*words, "--runs", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert json.loads((out / "heads.json").read_text())["rows"]
    tables = {path.stem for path in out.glob("*.json")}
    assert tables == {*(f"table{i}" for i in range(1, 8)), "heads"}
    seven = json.loads((out / "table7.json").read_text())["rows"]["6"]
    learners = {
        f"{name}{start}" for name in ("online", "er", "der", "der++", "hal", "gss") for start in colour.NAMES.values()
    }
    learners |= {f"podnet{colour.NAMES['scratch', 'all']}", f"podnet{colour.NAMES['pretrained', 'all']}"}
    learners |= {f"merlin{colour.NAMES[c, 'head']}" for c in ("scratch", "pretrained", "kcciol")}
    assert set(seven) == {*learners, "kcciol", "kcciol + ncm", "pixels + ncm", "untrained + ncm"}
    assert all(sum(seven[name]["bytes"].values()) > 0 for name in learners if not name.startswith("online"))
    assert set(json.loads((out / "table7.json").read_text())["record"]) == set(seven)  # each with where it was measured
    for name in ("table2", "table3", "table7"):  # ours with the accuracy on images learned from beside, at every length
        rows = json.loads((out / f"{name}.json").read_text())["rows"]
        assert all("training_images" in cell for row in rows.values() for cell in row.values())
    for name in tables:  # what is in results/ can be made again: else no new table would ever take its place
        old, new = (columns(json.loads((folder / f"{name}.json").read_text())) for folder in (RESULTS, out))
        assert old == new, name
    figures = {path.stem for path in (out / "figures").glob("*.json")}
    assert figures == {path.stem for path in (RESULTS / "figures").glob("*.json")}
    for path in out.rglob("*.json"):
        json.loads(path.read_text())
    assert cli.main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert all(f"table{i}" in page for i in range(1, 8))
    assert len(page) < 5 * 2**20
