"""Every experiment, figure and the page, rehearsed by the commands that make the real ones, so that nothing rots."""

from __future__ import annotations

import json
from pathlib import Path

from kcciol import cli


def test_everything_is_rehearsed(tmp_path: Path) -> None:
    out = tmp_path / "results"
    words = ["reproduce", "all", "--preset", "tiny", "--seeds", "0", "--jobs", "2"]
    assert cli.main([*words, "--runs", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert json.loads((out / "heads.json").read_text())["rows"]
    tables = {path.stem for path in out.glob("*.json")}
    assert tables == {*(f"table{i}" for i in range(1, 8)), "heads"}
    figures = {path.stem for path in (out / "figures").glob("*.json")}
    assert figures >= {"gan", "weights", "prune", "masking", "held-cifar100", "held-mini-imagenet"}
    for path in out.rglob("*.json"):
        json.loads(path.read_text())
    assert cli.main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert all(f"table{i}" in page for i in range(1, 8))
    assert len(page) < 5 * 2**20
