"""Omniglot: Tables 1, 5 and 6, and the matrix of representations and heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kcciol.config import Config, preset
from kcciol.evaluation.protocol import Trained
from kcciol.paper import cells, figures, pictures, tables
from kcciol.paper.representations import Representations
from kcciol.paper.study import Cell, Column, Sizes, masked

CLASSES = (10, 50, 100, 150, 200, 600)
HELD_OUT = 100


def first_order(config: Config) -> Config:
    return replace(config, meta=replace(config.meta, order="first"))


def with_our_trajectories(config: Config) -> Config:
    """MAML-Rep with our trajectories, remember set, reset and steps: what is left of it is that the images of a
    trajectory are learned together (and that Adam never starts anew)."""
    ours = preset("omniglot")
    meta = replace(config.meta, relabel=False, reset=ours.meta.reset)
    return replace(config, trajectory=ours.trajectory, meta=meta, phase1=replace(ours.phase1, steps=ours.total_steps))


COLUMNS = {
    "scratch": Column("omniglot", "scratch"),
    "pretrained": Column("omniglot", "pretrained"),
    "srnn": Column("omniglot", "srnn"),
    "maml-rep-first": Column("omniglot-paper", "maml-rep", first_order),
    "maml-rep": Column("omniglot-paper", "maml-rep"),
    "mrcl-first": Column("omniglot-paper", "mrcl", first_order),
    "mrcl": Column("omniglot-paper", "mrcl"),
    "oml-first": Column("omniglot-paper", "oml", first_order),
    "oml": Column("omniglot-paper", "oml"),
    "maml-rep-same": Column("omniglot", "maml-rep", with_our_trajectories),
    "mrcl-same": Column("omniglot", "phase1", first_order),  # all that is left of it
    "oml-same": Column("omniglot", "phase1", after=("kcciol", 1)),
    "anml": Column("omniglot-paper", "anml"),
    "kcciol-paper": Column("omniglot-paper", "kcciol"),
    "kcciol": Column("omniglot", "kcciol"),
    "kcciol-phase1": Column("omniglot", "kcciol", after=("kcciol", 1), phase=1),
    "kcciol-phase2": Column("omniglot", "kcciol", after=("kcciol", 2), phase=2),
    "kcciol-o": Column("omniglot", "kcciol-o", after=("kcciol", 2)),
    "gamma0": Column("omniglot", "gamma0", after=("control", 2)),  # until there they are alike
    "lambda0": Column("omniglot", "lambda0", after=("kcciol", 2)),
    "control": Column("omniglot", "control", after=("kcciol", 1)),
}
SHARES = {  # held in phase 3, of a figure only; two of them are columns already
    column: Column("omniglot", "kcciol", masked(share), after=("kcciol", 2))
    for column, share in figures.DELTAS.items()
    if column not in COLUMNS
}

BY_PHASE = ("kcciol-phase1", "kcciol-phase2", "kcciol", "control")  # what consolidation adds


def table1(column: str) -> Mapping[str, Cell]:
    """Algorithm 4 with Adam, W from zero; for scratch the whole network learns. Beside it the two floors, and class
    means on the phases, which have no rate that could differ."""
    if column in SHARES:
        return {}
    if COLUMNS[column].untrained:
        return {"adam": cells.scratch(CLASSES), **cells.floors(CLASSES)}
    means = {"ncm": cells.closed("ncm", classes=CLASSES)} if column in BY_PHASE else {}
    return {"adam": cells.gradient_head(CLASSES), **means}


def heads(column: str) -> Mapping[str, Cell]:
    """Heads on the same features; online Adam is in Table 1, but for scratch, whose head it is not."""
    if column in SHARES or COLUMNS[column].phase:
        return {}
    found: dict[str, Cell] = {"online-sgd": cells.gradient_head((200, 600), "sgd")}
    found |= {name: cells.closed(name, classes=CLASSES) for name in ("ncm", "gaussian")}
    found |= {name: cells.closed(name, classes=(200, 600)) for name in ("slda", "ridge")}
    if COLUMNS[column].untrained:
        found["online-adam"] = cells.gradient_head((200, 600))
        found["pixels"] = cells.closed("ncm", "pixels", classes=CLASSES)
    return found


TABLE5_ROWS = {"online": "online", "approx-iid": "approx-iid", "mer": "mer", "ewc": "ewc", "er-reservoir": "er"}
REPLAY = ("der", "der++", "hal", "gss")  # of Table 5 on a frozen network, and not in the paper
CLOSED = ("ncm", "gaussian", "slda", "ridge")
STARTS: dict[str, tuple[Trained, ...]] = {
    "scratch": ("all",),
    "pretrained": ("head", "all"),
    "oml": ("head",),
    "kcciol": ("head",),
}


def continual(task_classes: int, tasks: int) -> Callable[[str], Mapping[str, Cell]]:
    """Tables 5 and 6: learners on a frozen network, and on all of it where it is supervised or random."""
    sizes: dict[str, Any] = {"classes": (task_classes * tasks,), "task_classes": task_classes}
    sizes |= {"order": "task" if task_classes > 1 else "class", "trajectories": 10, "budget_images": 200}
    sizes["search_classes"] = task_classes * min(tasks, HELD_OUT // task_classes)
    few = sizes | {"search_classes": 4 * max(5, task_classes), "search_trajectories": 3}  # a whole network is costly

    def part(column: str) -> Mapping[str, Cell]:
        found: dict[str, Cell] = {}
        if COLUMNS[column].untrained:
            for floor in ("pixels", "head"):
                found |= cells.variant("ncm", "ncm", floor, {}, **sizes)
        for trains in STARTS[column]:
            for row, name in TABLE5_ROWS.items():
                found |= cells.cells_of(row, name, trains, **(few if trains == "all" else sizes))
            if trains == "head":
                for name in REPLAY if task_classes == 1 else ():
                    found |= cells.cells_of(name, name, trains, **sizes)
                for name in CLOSED:
                    found |= cells.variant(name, name, trains, cells.CLOSED.get(name, {}), **sizes)
        return found

    return part


NOTES1 = {
    "kcciol-paper": "Tried on base characters kept out of training: 15 or 20 images of each, rows of W drawn anew or "
    "set to zero (docs/protocol.md, Settings). Trained on all 963 base characters, with rates chosen on the training "
    "streams, it is in results/omniglot.json.",
}
NOTES5 = {
    "mer": "In the bytes of 200 images it keeps fewer examples than the 200 of the paper; with these it is the row "
    "`mer (200 examples)`.",
}


def omniglot_tables(found: Mapping[str, tables.Found]) -> dict[str, Any]:
    """Whatever can be made of the cells that are there."""
    made = {
        "table1": tables.frame("table1", tables.representations(found["table1"], COLUMNS), found["table1"], NOTES1),
        "table5": tables.frame("table5", tables.learners(found["table5"]), found["table5"], NOTES5),
        "table6": tables.frame("table6", tables.learners(found["table6"]), found["table6"]),
        "heads": {
            "title": "Omniglot, representations x heads, held-out images",
            "axis": "classes, then representation",
            "metric": "accuracy % on held-out images",
            "rows": tables.matrix(found["heads"], found["table1"], COLUMNS, "online-sgd"),
            **tables.column_records(found["heads"]),
        },
    }
    return {name: table for name, table in made.items() if found[name]}


STUDY = Representations(
    "omniglot",
    Sizes(CLASSES, train_samples=15, test_samples=5, held_out=HELD_OUT),
    COLUMNS | SHARES,
    {
        "table1": table1,
        "heads": heads,
        "table5": continual(1, 50),
        "table6": continual(5, 20),
        "figures": figures.part,
    },
    {"table5": tuple(STARTS), "table6": tuple(STARTS), "figures": tuple(figures.FIGURES)},
    omniglot_tables,
    longest=("kcciol", "pretrained", "scratch", "anml", "mrcl-same", "maml-rep-same"),
    draw=lambda found: pictures.draw(found["figures"]),
)
