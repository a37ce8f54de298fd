"""From cells to tables in the shape of the paper's, with its numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

import torch

from kcciol.evaluation.metrics import ImagesAsked, summarize
from kcciol.files import parse_json
from kcciol.paper.cellfile import provenance_of, trained_with
from kcciol.paper.formats import PAPER
from kcciol.paper.study import CHOSEN_ON, Column

Result = dict[str, Any]
Found = Mapping[str, Mapping[str, list[Result]]]  # column -> cell -> a result of each seed
TableRows = dict[str, dict[str, Any]]


def paper() -> dict[str, Any]:
    """The paper's tables."""
    text = (resources.files("kcciol") / "paper" / "printed.json").read_text(encoding="utf-8")
    found: dict[str, Any] = parse_json(text)
    return found


def frame(
    name: str,
    rows: TableRows,
    found: Found,
    notes: Mapping[str, str] | None = None,
    n: Mapping[str, int | None] | None = None,
    metric: str = "accuracy % on held-out images",
) -> dict[str, Any]:
    """A table, whose columns `paper: ...` hold the paper's numbers. n: over how many runs a printed column is, where
    that is not what its caption says."""
    printed = paper()[name]
    add_printed(rows, printed, n)
    columns = list(dict.fromkeys(c for cells in rows.values() for c in cells))
    about = {k: printed[k] for k in ("title", "axis")}
    about |= {"metric": metric, "columns": columns}
    about |= {"notes": dict(notes)} if notes else {}
    return {**about, **targets(columns), "rows": rows, **column_records(found)}


def add_printed(rows: TableRows, printed: Mapping[str, Any], n: Mapping[str, int | None] | None = None) -> None:
    """Put the paper's numbers beside ours."""
    for row, cells in printed["rows"].items():
        every = {c: {**cell, "n": (n or {}).get(c, printed["runs"])} for c, cell in cells.items()}
        rows.setdefault(row, {}).update({PAPER + c: cell for c, cell in every.items()})


OURS = {"kcciol": "kcciol", "kcciol-paper": "kcciol"}  # columns that are the paper's method, and its printed one


def targets(columns: list[str]) -> dict[str, Any]:
    """Which columns are the paper's method, whose printed numbers are to be reached; those of its rivals are not a
    target. `compared`: a column of ours that has no printed one of its name, and the printed one it is held against."""
    ours = {column: OURS[column] for column in columns if column in OURS}
    compared = {column: name for column, name in ours.items() if column != name and PAPER + name in columns}
    return {"ours": list(ours), "compared": compared}


def column_records(found: Found) -> dict[str, Any]:
    """Settings, record (of the first seed) and time of each column."""
    first = {column: next(iter(cells.values())) for column, cells in found.items()}
    return {
        "seeds": {column: [r["config"]["seed"] for r in results] for column, results in first.items()},
        "settings": {column: trained_with(results[0]["config"]) for column, results in first.items()},
        "record": {column: results[0]["record"] for column, results in first.items()},
        "training_seconds": {
            column: [result["trained_seconds"] or None for result in results]
            for column, results in first.items()
            if all("trained_seconds" in result for result in results)  # of members that train together nobody knows
        },
        "seconds": {column: _seconds(cells) for column, cells in found.items()},
    }


def _seconds(cells: Mapping[str, list[Result]]) -> Any:
    """What the cells of a column took, by their names; of one that has none, for itself."""
    every = {name: [result["cell_seconds"] for result in results] for name, results in cells.items()}
    return every.get("", every)


def ci95_of(means: list[float]) -> float | None:
    """Of the seeds' means, as few as they are; None where they are equal or one, so that it cannot be measured."""
    return summarize(torch.tensor(means)).ci95


def pooled(results: list[Result], n: str) -> Result:
    """All trajectories of all seeds, the seeds' means, and what each seed chose.

    ci95 is over trajectories, given these seeds; ci95_seeds is over the seeds' means, few as they are.
    """
    values = [result["classes"][n]["by_trajectory"] for result in results]
    found = of_seeds(results, values, digits=4)
    return {
        **summarize(torch.tensor([v for part in values for v in part]), asked_of(results, n)).to_dict(),
        **found,
        "ci95_seeds": ci95_of(found["by_seed"]),
        **other_measures(results, n),
        **next(({"bytes": r["bytes"]} for r in results if r.get("bytes")), {}),
        "choice": [choice(r, n) for r in results],
    }


def of_seeds(results: list[Result], values: list[list[float]], digits: int) -> Result:
    """What is told of the single values of each seed, in whatever unit: the means of those that have some, and all."""
    return {
        "by_seed": [sum(part) / len(part) if part else None for part in values],
        "by_trajectory": [round(value, digits) for value in torch.tensor([v for p in values for v in p]).tolist()],
        "seeds": [result["config"]["seed"] for result in results],
        **provenance_of(results),
    }


def asked_of(results: list[Result], n: str) -> ImagesAsked | None:
    """How few images the interval of a seed is of, where it is of images and not of trajectories. Another seed may have
    been asked others: then there are more of them, and the interval is rather too long."""
    images = [result["classes"][n].get("ci95_of_images") for result in results]
    few = max((count for count in images if count is not None), default=None)
    return None if few is None else ImagesAsked(few, few)


OTHER_MEASURES = {"train": "training_images", "forgetting": "forgetting", "learned": "when_learned"}


def other_measures(results: list[Result], n: str) -> Result:
    """What else was measured after so many classes, as the mean of the seeds: accuracy on the images learned from, what
    was forgotten, accuracy on each class when it was new. Of a learner that is asked at prefixes, at the end only."""
    last = n == list(results[0]["classes"])[-1]
    cells = [r["classes"][n] | (r.get("summary", {}) if last else {}) for r in results]
    return {
        name: sum(float(cell[key]["mean"]) for cell in cells) / len(cells)
        for key, name in OTHER_MEASURES.items()
        if all(isinstance(cell.get(key), dict) and cell[key].get("mean") is not None for cell in cells)
    }


def choice(result: Result, n: str) -> Result:
    """What was chosen for so many classes, and how."""
    if "choice" not in result:  # Algorithm 4: nothing but its rate was to be chosen, for each length
        found = result["classes"][n]["choice"]
        scores = sorted((one["settings"]["rate"], one["score"]) for one in found["scores"])
        few = int(n) > result["config"]["data"]["validation_classes"]
        return {
            "rule": found["rule"],
            "chosen": found["settings"]["rate"],
            "scores": {f"{rate:g}": round(score, 2) for rate, score in scores},
            "trajectories": found["trajectories"],
            "at_edge": bool(found["at_edge"]),
            "classes": found["classes"],
            "chosen_on": CHOSEN_ON + (", streams filled up with classes trained on" if few else ""),
        }
    kept = ("rule", "settings", "at_edge", "classes", "trajectories")
    return {k: result["choice"][k] for k in kept} | {"chosen_on": result["chosen_on"]}


def by_classes(columns: Mapping[str, list[Result]]) -> TableRows:
    """Rows by the number of classes."""
    rows: TableRows = {}
    for column, results in columns.items():
        for n in results[0]["classes"]:
            rows.setdefault(n, {})[column] = pooled(results, n)
    return rows


FLOORS = {"pixels + ncm": "pixels", "untrained + ncm": "ncm"}  # cells of the untrained network


def representations(found: Found, columns: Mapping[str, Column]) -> TableRows:
    """Representations with the gradient head; then the two floors, and class means where they were measured."""
    every = {column: cells["adam"] for column, cells in found.items() if "adam" in cells}
    for column in (column for column in found if columns[column].untrained):
        every |= {name: found[column][cell] for name, cell in FLOORS.items() if cell in found[column]}
    for column in (column for column in found if not columns[column].untrained):
        every |= {f"{column} + {head}": found[column][head] for head in ("ncm", "gaussian") if head in found[column]}
    return by_classes(every)


def matrix(found: Found, gradient: Found, columns: Mapping[str, Column], lengths_of: str) -> dict[str, TableRows]:
    """Heads by representation, for each length that the head `lengths_of` was measured at; the online Adam head is in
    the table of representations, where its network was trained."""
    rows: dict[str, TableRows] = {}
    measured = [result for cells in found.values() for result in cells.get(lengths_of, [])]
    lengths = list(dict.fromkeys(n for result in measured for n in result["classes"]))
    for column, cells in found.items():
        every = dict(cells)
        if not columns[column].untrained and "adam" in gradient.get(column, {}):
            every["online-adam"] = gradient[column]["adam"]
        for head, results in every.items():
            for n in lengths:
                if n in results[0]["classes"]:
                    rows.setdefault(n, {}).setdefault(column, {})[head] = pooled(results, n)
    return rows


START_NAMES = {("pretrained", "all"): "standard", ("pretrained", "head"): "pretraining"}
START_NAMES |= {("scratch", "head"): "untrained", ("scratch", "pixels"): "pixels"}


def learners(found: Found) -> TableRows:
    """Learners by start. Where both optimisers were tried, the one that did better on base classes; but none that
    must keep more than the budget, where the other does not."""
    rows: TableRows = {}
    best: dict[tuple[str, str], tuple[bool, float]] = {}
    for column, cells in found.items():
        for results in cells.values():
            result = results[0]
            row, trains = result["cell"]["row"], result["cell"]["trains"]
            score = max((s["score"] for s in result["choice"]["scores"]), default=0.0)
            start = START_NAMES.get((column, trains), column)
            # what keeps examples must keep within the budget, if it can
            rank = (
                bool(result.get("within_budget", True)) or not result["replay"] or "slots" in result["spec"]["fixed"],
                score,
            )
            if rank >= best.get((row, start), (False, 0.0)):
                best[row, start] = rank
                rows.setdefault(row, {})[start] = _learner(result, score)
    return rows


def _learner(result: Result, score: float) -> Result:
    last = list(result["classes"].values())[-1]
    kept = ("bytes", "budget_bytes", "replay", "within_budget", "seconds", "summary")
    return {
        **{k: last[k] for k in ("mean", "std", "n", "ci95", "ci95_of_images", "by_trajectory") if k in last},
        "seeds": [result["config"]["seed"]],
        "settings": result["choice"]["settings"],
        "choice": [choice(result, list(result["classes"])[-1])],
        "score_on_base_classes": score,
        **{k: result.get(k) for k in kept},
        **provenance_of([result]),
    }
