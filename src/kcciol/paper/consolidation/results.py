"""One file of what the families have found: results/consolidation.json.

`rows`: by data set, reset and head, and in there by condition, accuracy on novel classes, as the mean of the seeds with
Student's interval over them, and of each seed what was chosen and how good it was on base classes kept out of training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kcciol.engine.record import record
from kcciol.evaluation.metrics import summarize
from kcciol.files.documents import Document
from kcciol.paper.consolidation.encoder_plan import ENCODERS
from kcciol.paper.consolidation.family import RESULT, read_result
from kcciol.paper.consolidation.plan import SETTINGS

RESULTS = Document("consolidation")
NAME = "consolidation.json"
PARTS = ("", "encoders")  # the second has the same in it, of what goes on from encoders of our recipes
OF_SEEDS = ("condition", "option", "step", "score", "seen", "settings", "at_edge")  # kept of each seed


def write_results(out: Path) -> dict[str, Any]:
    """Put together what the families in this folder have found so far, and write it there."""
    families = sorted((read_result(path) for path in out.glob(RESULT)), key=_place)
    parts = {part: gathered([f for f in families if f.get("part", "") == part]) for part in PARTS}
    found = parts.pop("") | parts
    RESULTS.write(out / NAME, found | {"record": record()})
    return found


def _place(family: Mapping[str, Any]) -> tuple[int, bool, int]:
    """In the order of the plan; other settings come last."""
    known = list(SETTINGS | ENCODERS)
    name = family["setting"]
    return known.index(name) if name in known else len(known), family["reset"] != "zero", int(family["seed"])


def gathered(families: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of all families, those of different seeds together."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for family in families:
        groups.setdefault(f"{family['setting']} {family['reset']}", []).append(family)
    rows: dict[str, Any] = {}
    for name, members in groups.items():
        members.sort(key=lambda family: int(family["seed"]))
        for head in dict.fromkeys(head for m in members for row in m["rows"].values() for head in row):
            rows[f"{name} {head}"] = {
                column: cell_of([(m["seed"], m["rows"][column][head]) for m in members if column in m["rows"]])
                for column in dict.fromkeys(column for m in members for column in m["rows"])
            }
    curves = {name: _curves([m["curves"] for m in members]) for name, members in groups.items()}
    configs = {name: {**members[0]["config"], "seed": [m["seed"] for m in members]} for name, members in groups.items()}
    images = {name: members[0]["images"] for name, members in groups.items()}
    made = {name: members[0]["record"] for name, members in groups.items()}
    return {"rows": rows, "curves": curves, "config": configs, "images": images, "made": made}


def cell_of(found: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[str, Any]:
    """One condition and head, of all seeds."""
    means = [float(cell["mean"]) for _, cell in found]
    return {
        **summarize(torch.tensor(means, dtype=torch.float64)).to_dict(),
        "seeds": [seed for seed, _ in found],
        "by_seed": means,
        "by_trajectory": [value for _, cell in found for value in cell["by_trajectory"]],
        **{key: [cell[key] for _, cell in found] for key in OF_SEEDS},
    }


def _curves(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Along each condition, at each point, the mean of the seeds."""
    return {
        condition: [
            {key: sum(point[key] for point in points) / len(points) for key in points[0]}
            for points in zip(*(member[condition] for member in members if condition in member), strict=True)
        ]
        for condition in dict.fromkeys(condition for member in members for condition in member)
    }
