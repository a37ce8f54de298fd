"""A results folder with some of everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

NASTY = """<script>alert("x")</script>&'"""
RECORD = {
    "command": "tables.py --root data",
    "time": "2026-01-02T03:04:05+00:00",
    "commit": "abc1234",
    "versions": {"kcciol": "0.1.0", "torch": "2.9.0", "cuda": None},
    "hardware": {"system": "Linux x86_64", "cpu_threads": 16, "gpu": "A GPU"},
}


def cell(mean: float, ci95: float | None = 0.5, **more: Any) -> dict[str, Any]:
    return {"mean": mean, "std": 2.0, "n": 50, "ci95": ci95, "by_seed": [mean - 0.4, mean + 0.4], **more}


def printed(mean: float, std: float | None = None) -> dict[str, Any]:
    return {"mean": mean, "std": std}


def table1() -> dict[str, Any]:
    """Reached once, within once, missed once, not measured once; a column of our own; a row of our own."""
    return {
        "title": "Omniglot, online, novel classes",
        "axis": "classes",
        "metric": "accuracy % on held-out images",
        "columns": ["oml", "kcciol", "control", "paper: scratch", "paper: oml", "paper: kcciol"],
        "rows": {
            "10": {
                "oml": cell(92.2, choice=[0.00032, 0.00032], by_trajectory=[92.0] * 50),
                "kcciol": cell(96.52, seconds=12.5, bytes={"adam": 940440}),
                "control": cell(96.24),
                "paper: scratch": printed(15.9, 3.5),
                "paper: oml": printed(92.6, 3.5),
                "paper: kcciol": printed(95.4, 3.4),
            },
            "200": {"oml": cell(50.0, None), "kcciol": None, "paper: oml": printed(59.3)},
            "600": {"oml": cell(40.0), "control": cell(70.0)},
        },
        "seeds": {"oml": [0, 1], "kcciol": [0, 1]},
        "settings": {"oml": {"net": {"channels": 8}, "seed": 0}, "kcciol": {"net": {"channels": 9}, "seed": 0}},
        "record": {"oml": RECORD, "kcciol": RECORD},
        "training_seconds": {"oml": [100.0, 110.0]},
        "seconds": {"oml": {"adam": [1.0, 2.0]}},
        "device_seconds": [{"seconds": 600.0, "jobs": 2}],
        "notes": {"oml": "Two readings of the reset were tried, `draw` and `zero`."},
    }


def table4() -> dict[str, Any]:
    """Lower is better."""
    return {
        "title": "Sine regression",
        "axis": "tasks",
        "metric": "squared error",
        "lower_is_better": True,
        "rows": {
            "1": {"kcciol": cell(0.05, 0.01), "paper: kcciol": printed(0.08)},
            "2": {"kcciol": cell(0.125, 0.01), "paper: kcciol": printed(0.12)},
            "3": {"kcciol": cell(0.5, 0.01), "paper: kcciol": printed(0.09)},
        },
        "device_seconds": [{"seconds": 600.0, "jobs": 2}, {"seconds": 60.0, "jobs": 1}],
    }


def heads() -> dict[str, Any]:
    """One level deeper."""
    names = [f"representation {i}" for i in range(12)]
    rows = {n: {name: {"ncm": cell(50.0 + i), "ridge": cell(60.0 - i)} for i, name in enumerate(names)} for n in "26"}
    return {"title": "Representations x heads", "axis": "classes, then representation", "rows": rows}


def wide() -> dict[str, Any]:
    """More columns than fit anywhere, and names that are not kind."""
    columns = [NASTY, *(f"a-rather-long-name-{i}" for i in range(14))]
    rows = {str(n): {c: cell(n / 2) | {"choice": NASTY} for c in columns} for n in (10, 20)}
    for cells in rows.values():
        cells |= {f"paper: {c}": printed(7.5) for c in columns[:9]}
    return {"title": NASTY, "axis": NASTY, "metric": NASTY, "rows": rows, "notes": {NASTY: NASTY}}


def results_folder(folder: Path) -> Path:
    """Tables, figures, another file, and one that is broken."""
    (folder / "figures").mkdir(parents=True)
    files = {"table1": table1(), "table4": table4(), "table10": wide(), "heads": heads()}
    files["bench-step"] = {"phase1_ms": 0.8, "config": {"net": {"channels": 8}}, "record": RECORD}
    files["figures/one"] = {"title": "A figure", "caption": NASTY, "numbers": {"x": 1.5}, "image": "one.png"}
    files["figures/two"] = {"title": NASTY, "caption": "", "numbers": {}, "image": "two.svg"}
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    Image.new("RGB", (1200, 40), "navy").save(folder / "figures" / "one.png")
    (folder / "figures" / "two.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    (folder / "table9.json").write_text('{"title": "half wri')
    return folder
