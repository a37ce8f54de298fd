"""Cells that several studies share."""

from __future__ import annotations

from typing import Any

from kcciol.compare import Trained, measure_learner
from kcciol.evaluation.choose import grid_of
from kcciol.learners import learner_type
from kcciol.reproduce.study import Bench, Cell

ADAM_RATES = (0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
# With Adam too, where the method allows it; its moments are memory, which leaves replay on a whole network none.
ADAM = {"head": ("online", "approx-iid", "ewc", "er"), "all": ("online", "approx-iid", "ewc")}


# what makes a rehearsal quick
TINY: dict[str, Any] = {"units": 32, "tune_steps": 2, "anchor_steps": 2, "epochs": 2, "tune_passes": 0}


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def online_adam(classes: tuple[int, ...]) -> Cell:
    """Algorithm 4 with Adam."""
    return lambda bench: bench.algorithm4(classes)


def scratch(classes: tuple[int, ...]) -> Cell:
    """The whole of a random network learns, by Adam."""

    def cell(bench: Bench) -> dict[str, Any]:
        fixed, rates = {"optimizer": "adam", "reserve": 100}, (3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
        stream = bench.stream(classes=classes, search_classes=50)
        return measure_learner(bench.world("all"), "online", stream, fixed, {"rate": rates})

    return cell


def closed(name: str, classes: tuple[int, ...]) -> Cell:
    """A head in closed form."""
    fixed: dict[str, Any] = {"form": "map"} if name == "gaussian" else {}

    def cell(bench: Bench) -> dict[str, Any]:
        small = {"units": 32} if bench.where.tiny and name == "ridge" else {}
        return measure_learner(bench.world("head"), name, bench.stream(classes=classes), fixed | small)

    return cell


def pixels(**sizes: Any) -> Cell:
    """A floor: class means on raw pixels."""
    return lambda bench: measure_learner(bench.pixels, "ncm", bench.stream(**sizes))


def learned(name: str, trains: Trained, fixed: dict[str, Any], **sizes: Any) -> Cell:
    """A learner through a stream of tasks, its settings chosen on base classes."""

    def cell(bench: Bench) -> dict[str, Any]:
        grid, more = dict(grid_of(name, trains)), dict[str, Any]()
        if fixed.get("optimizer") == "adam":
            grid["rate"] = ADAM_RATES
        if bench.where.tiny:
            known = learner_type(name).settings_type.__dataclass_fields__
            grid, more = {k: v[:2] for k, v in grid.items()}, {k: v for k, v in TINY.items() if k in known}
        return measure_learner(bench.world(trains), name, bench.stream(**sizes), fixed | more, grid, say)

    return cell


def both_optimizers(row: str, name: str, trains: Trained, **sizes: Any) -> dict[str, Cell]:
    """A row's cells: with SGD, and with Adam where that goes; replay also with the 200 examples that authors use."""
    found: dict[str, Cell] = {}
    for optimizer in ("sgd", "adam") if name in ADAM[trains] else ("sgd",):
        fixed = {"optimizer": optimizer}
        found[f"{row}, {trains}, {optimizer}"] = learned(name, trains, fixed, **sizes)
        if trains == "head" and learner_type(name).card.replay:
            many = fixed | {"slots": 200}  # of images that is the budget, so for a whole network it is the same
            found[f"{row} (200 examples), {trains}, {optimizer}"] = learned(name, trains, many, **sizes)
    return found
