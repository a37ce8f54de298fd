"""Cells that several studies share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcciol.evaluation.measure import measure_learner
from kcciol.evaluation.protocol import Trained
from kcciol.learners import learner_type
from kcciol.paper.progress import say
from kcciol.paper.study import Cell, Subject, search_spec, stream_spec

ADAM_RATES = (0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
# With Adam too, where the method allows it; its moments are memory, which leaves replay on a whole network none.
ADAM = {"head": ("online", "approx-iid", "ewc", "er", "der", "der++"), "all": ("online", "approx-iid", "ewc")}
CLOSED: dict[str, dict[str, Any]] = {"gaussian": {"form": "map"}}  # what the tables fix of heads in closed form
# what makes a rehearsal quick
TINY: dict[str, Any] = {"units": 32, "tune_steps": 2, "anchor_steps": 2, "epochs": 2, "tune_passes": 0}


def _say_below(line: str) -> None:
    say(f"  {line}")


def gradient_head(classes: tuple[int, ...], optimizer: str = "adam") -> Cell:
    """Algorithm 4."""

    def spec(subject: Subject) -> dict[str, Any]:
        return search_spec(subject.evaluations(classes, optimizer))

    return Cell(spec, lambda subject: subject.algorithm4(subject.evaluations(classes, optimizer)))


def learned(
    name: str,
    trains: Trained | str,
    fixed: dict[str, Any],
    grid: dict[str, Any] | None = None,
    key: Mapping[str, str] | None = None,
    **sizes: Any,
) -> Cell:
    """A learner through streams, its settings chosen on base classes. trains: "pixels" for a head on raw images."""

    def settings(subject: Subject) -> tuple[dict[str, Any], dict[str, Any]]:
        tried = dict(learner_type(name).grid_for("all" if trains == "all" else "head") if grid is None else grid)
        if fixed.get("optimizer") == "adam" and grid is None:
            tried["rate"] = ADAM_RATES
        if not subject.workspace.tiny:
            return fixed, tried
        known = learner_type(name).settings_type.__dataclass_fields__
        return fixed | {k: v for k, v in TINY.items() if k in known}, {k: v[:2] for k, v in tried.items()}

    def spec(subject: Subject) -> dict[str, Any]:
        now, tried = settings(subject)
        what = {"learner": name, "trains": trains, "fixed": now, "grid": {k: list(v) for k, v in tried.items()}}
        return what | {"stream": stream_spec(subject.stream(**sizes))}

    def run(subject: Subject) -> dict[str, Any]:
        pixels = trains == "pixels"
        scenario = subject.pixels if pixels else subject.scenario("all" if trains == "all" else "head")
        return measure_learner(scenario, name, subject.stream(**sizes), *settings(subject), _say_below)

    return Cell(spec, run, key or {})


def scratch(classes: tuple[int, ...]) -> Cell:
    """The whole of a random network learns, by Adam."""
    rates = {"rate": (3e-3, 1e-3, 3e-4, 1e-4, 3e-5)}
    return learned("online", "all", {"optimizer": "adam", "reserve": 100}, rates, classes=classes, search_classes=50)


def closed(name: str, trains: str = "head", **sizes: Any) -> Cell:
    """A head in closed form; on "pixels" a floor."""
    return learned(name, trains, CLOSED.get(name, {}), **sizes)


def floors(classes: tuple[int, ...]) -> dict[str, Cell]:
    """Class means on a random network, and on raw pixels: what any representation must be better than."""
    return {"ncm": closed("ncm", classes=classes), "pixels": closed("ncm", "pixels", classes=classes)}


def variant(
    row: str, name: str, trains: Trained | str, fixed: dict[str, Any], optimizer: str = "", **sizes: Any
) -> dict[str, Cell]:
    """A learner's cell in a row of a table, under the name that its key gives it."""
    key = {"row": row, "trains": trains} | ({"optimizer": optimizer} if optimizer else {})
    return {", ".join(key.values()): learned(name, trains, fixed, key=key, **sizes)}


def cells_of(row: str, name: str, trains: Trained, **sizes: Any) -> dict[str, Cell]:
    """A learner's cells: with SGD, and with Adam where that goes; replay also with the 200 examples of the papers."""
    found: dict[str, Cell] = {}
    for optimizer in ("sgd", "adam") if name in ADAM[trains] else ("sgd",):
        fixed = {"optimizer": optimizer}
        found |= variant(row, name, trains, fixed, optimizer, **sizes)
        known = learner_type(name).settings_type.__dataclass_fields__
        if trains == "head" and "slots" in known:
            many = fixed | {"slots": 200}  # of images that is the budget, so for a whole network it is the same
            found |= variant(f"{row} (200 examples)", name, trains, many, optimizer, **sizes)
    return found
