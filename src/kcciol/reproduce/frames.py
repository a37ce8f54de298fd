"""From cells to tables in the shape of the paper's, with its numbers beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import torch

from kcciol.evaluation.metrics import summarize
from kcciol.reproduce.study import CHOSEN_ON

Result = dict[str, Any]
Found = Mapping[str, Mapping[str, list[Result]]]  # column -> cell -> a result of each seed
Rows = dict[str, dict[str, Any]]


def paper() -> dict[str, Any]:
    """The paper's tables."""
    text = (resources.files("kcciol") / "reproduce" / "paper.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def frame(name: str, rows: Rows, found: Found) -> dict[str, Any]:
    """A table, whose columns `paper: ...` hold the paper's numbers."""
    printed = paper()[name]
    for row, cells in printed["rows"].items():
        rows.setdefault(row, {}).update({f"paper: {c}": cell for c, cell in cells.items()})
    columns = list(dict.fromkeys(c for cells in rows.values() for c in cells))
    about = {k: printed[k] for k in ("title", "axis")}
    return {**about, "metric": "accuracy % on held-out images", "columns": columns, "rows": rows, **believe(found)}


def believe(found: Found) -> dict[str, Any]:
    """Settings, record and time of each column."""
    first = {column: next(iter(cells.values())) for column, cells in found.items()}
    return {
        "seeds": {column: [r["config"]["seed"] for r in results] for column, results in first.items()},
        "settings": {column: results[0]["config"] for column, results in first.items()},
        "record": {column: results[0]["record"] for column, results in first.items()},
        "training_seconds": {column: [r["trained_seconds"] for r in results] for column, results in first.items()},
        "seconds": {
            column: {name: [r["cell_seconds"] for r in results] for name, results in cells.items()}
            for column, cells in found.items()
        },
    }


def pooled(results: list[Result], n: str) -> Result:
    """All trajectories of all seeds, the seeds' means, and the rate that each seed chose.

    The interval is over trajectories, given these seeds.
    """
    values = [result["classes"][n]["by_trajectory"] for result in results]
    flat = torch.tensor([v for part in values for v in part])
    means = [sum(part) / len(part) for part in values]
    return {
        **summarize(flat).to_dict(),
        "by_seed": means,
        "by_trajectory": flat.tolist(),
        "choice": [
            r["classes"][n]["rate"]["chosen"] if "rate" in r["classes"][n] else r["choice"]["settings"] for r in results
        ],
        "chosen_on": CHOSEN_ON,
    }


def by_classes(columns: Mapping[str, list[Result]]) -> Rows:
    """Rows by the number of classes."""
    rows: Rows = {}
    for column, results in columns.items():
        for n in results[0]["classes"]:
            rows.setdefault(n, {})[column] = pooled(results, n)
    return rows


def representations(found: Found, heads: Found) -> Rows:
    """Representations with the gradient head, and the two floors."""
    columns = {column: cells["adam"] for column, cells in found.items() if "adam" in cells}
    for name, cell in (("pixels + ncm", "pixels"), ("untrained + ncm", "ncm")):
        if cell in heads.get("scratch", {}):
            columns[name] = heads["scratch"][cell]
    return by_classes(columns)


def matrix(found: Found, gradient: Found, lengths: tuple[str, ...]) -> dict[str, Rows]:
    """Heads by representation, for each length; the online Adam head is in the table of representations."""
    rows: dict[str, Rows] = {}
    for column, cells in found.items():
        every = dict(cells)
        if column != "scratch" and "adam" in gradient.get(column, {}):
            every["online-adam"] = gradient[column]["adam"]
        for head, results in every.items():
            for n in lengths:
                if n in results[0]["classes"]:
                    rows.setdefault(n, {}).setdefault(column, {})[head] = pooled(results, n)
    return rows


SHOWN = {("pretrained", "all"): "standard", ("pretrained", "head"): "pretraining"}
SHOWN |= {("scratch", "head"): "untrained", ("scratch", "pixels"): "pixels"}


def learners(found: Found) -> Rows:
    """Learners by start. Where both optimisers were tried, the one that did better on base classes."""
    rows: Rows = {}
    best: dict[tuple[str, str], float] = {}
    for column, cells in found.items():
        for key, results in cells.items():
            row, trains, *_ = key.split(", ")
            score = max((s["score"] for s in results[0]["choice"]["scores"]), default=0.0)
            shown = SHOWN.get((column, trains), column)
            if score >= best.get((row, shown), 0.0):
                best[row, shown] = score
                rows.setdefault(row, {})[shown] = _learner(results[0], score)
    return rows


def _learner(result: Result, score: float) -> Result:
    last = list(result["classes"].values())[-1]
    kept = ("bytes", "replay", "within_budget", "seconds", "chosen_on", "summary")
    return {
        **{k: last[k] for k in ("mean", "std", "n", "ci95", "by_trajectory")},
        "settings": result["choice"]["settings"],
        "score_on_base_classes": score,
        **{k: result.get(k) for k in kept},
    }
