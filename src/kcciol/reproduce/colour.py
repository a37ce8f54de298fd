"""mini-ImageNet (Tables 2 and 7) and CIFAR-100 (Table 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from kcciol.compare import Trained
from kcciol.config import Config
from kcciol.reproduce import cells, figures, frames
from kcciol.reproduce.study import Cell, Column, Sizes, Study


def printed(alpha: float, steps: int) -> Callable[[Config], Config]:
    """The paper's printed sizes and rates of phase 1, for its rivals: one class of ten images, rows drawn anew."""

    def change(config: Config) -> Config:
        trajectory = replace(config.trajectory, classes=1, support=10, query=5, remember=10)
        reset: Literal["none", "draw"] = "none" if config.representation == "mrcl" else "draw"
        phase1 = replace(config.phase1, steps=steps, alpha=alpha, beta=1e-4)
        return replace(config, trajectory=trajectory, meta=replace(config.meta, reset=reset), phase1=phase1)

    return change


def columns_of(preset: str, change: Callable[[Config], Config]) -> dict[str, Column]:
    """Every representation; the rivals as printed and, in `-same`, with our trajectories and number of steps."""
    return {
        "scratch": Column(preset, "scratch"),
        "pretrained": Column(preset, "pretrained"),
        "srnn": Column(preset, "srnn"),
        "mrcl": Column(preset, "mrcl", change),
        "oml": Column(preset, "oml", change),
        "oml-same": Column(preset, "phase1", after=("kcciol", 1)),
        "kcciol": Column(preset, "kcciol"),
        "kcciol-phase1": Column(preset, "kcciol", after=("kcciol", 1), phase=1),
        "kcciol-phase2": Column(preset, "kcciol", after=("kcciol", 2), phase=2),
        "kcciol-o": Column(preset, "kcciol-o", after=("kcciol", 2)),
        "control": Column(preset, "control", after=("kcciol", 1)),
    }


def gradient(classes: tuple[int, ...]) -> Callable[[str], Mapping[str, Cell]]:
    """The gradient head, and class means, on each representation; for scratch the whole network learns."""

    def part(column: str) -> Mapping[str, Cell]:
        found = {"adam": cells.scratch(classes) if column == "scratch" else cells.gradient_head(classes)}
        found |= {name: cells.closed(name, classes=classes) for name in ("ncm", "gaussian")}
        return found | ({"pixels": cells.closed("ncm", "pixels", classes=classes)} if column == "scratch" else {})

    return part


def with_means(name: str, found: frames.Found) -> dict[str, Any]:
    """A table of representations, with class means on each, and the two floors, as further columns."""
    rows = frames.representations(found, found)
    means = {
        f"{column} + {head}": results[head]
        for column, results in found.items()
        for head in ("ncm", "gaussian")
        if head in results and column != "scratch"
    }
    for n, more in frames.by_classes(means).items():
        rows.setdefault(n, {}).update(more)
    return frames.frame(name, rows, found)


# --- Table 7 ----------------------------------------------------------------------------------------------------------

LEARNERS = ("der", "der++", "hal", "merlin", "gss", "podnet")
STARTS: dict[str, tuple[Trained, ...]] = {"scratch": ("all",), "pretrained": ("head", "all"), "kcciol": ("head",)}
NAMES = {
    ("scratch", "all"): "",
    ("pretrained", "all"): ", supervised start",
    ("pretrained", "head"): ", supervised start, frozen",
    ("kcciol", "head"): ", kcciol's start, frozen",
}


def table7(classes: tuple[int, ...], held_out: int) -> Callable[[str], Mapping[str, Cell]]:
    """Replay learners from scratch, as the paper seems to have them, and from fairer starts."""
    sizes: dict[str, Any] = {"classes": classes, "trajectories": 10, "budget_images": 200, "search_classes": held_out}

    def part(column: str) -> Mapping[str, Cell]:
        found: dict[str, Cell] = {}
        for trains in STARTS[column]:
            for name in LEARNERS:
                if {"merlin": trains == "head", "podnet": trains == "all"}.get(name, True):
                    found[f"{name}, {trains}"] = cells.learned(name, trains, {}, **sizes)
        return found

    return part


def rows7(found: frames.Found) -> frames.Rows:
    """By the number of classes: a column for each learner from each start."""
    columns = {}
    for column, results in found.items():
        for key, measured in results.items():
            name, trains = key.split(", ")
            columns[name + NAMES[column, trains]] = measured
    return frames.by_classes(columns)


def mini_tables(found: Mapping[str, frames.Found]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if found["table2"]:
        made["table2"] = with_means("table2", found["table2"])
    if found["table7"]:
        rows = rows7(found["table7"])
        if "adam" in found["table2"].get("kcciol", {}):
            for n, more in frames.by_classes({"kcciol": found["table2"]["kcciol"]["adam"]}).items():
                rows.setdefault(n, {}).update(more)
        made["table7"] = frames.frame("table7", rows, found["table7"])
    return made


def cifar_tables(found: Mapping[str, frames.Found]) -> dict[str, Any]:
    return {"table3": with_means("table3", found["table3"])} if found["table3"] else {}


LONGEST = ("kcciol", "pretrained", "scratch")
MINI, CIFAR = (6, 8, 10, 12, 14, 16, 18, 20), (10, 15, 20, 25, 30)
MINI_IMAGENET = Study(
    "mini-imagenet",
    Sizes(MINI, train_samples=30, test_samples=30, held_out=8, redraw=True),
    columns_of("mini-imagenet", printed(alpha=0.1, steps=26000)),
    {"table2": gradient(MINI), "table7": table7(MINI, held_out=8)},
    {"table7": tuple(STARTS)},
    mini_tables,
    LONGEST,
    lambda found, out: figures.constrained(found["table2"], "held-mini-imagenet", "mini-ImageNet", out),
)
CIFAR100 = Study(
    "cifar100",
    Sizes(CIFAR, train_samples=30, test_samples=30, held_out=10, redraw=True),
    columns_of("cifar100", printed(alpha=1e-3, steps=50000)),
    {"table3": gradient(CIFAR)},
    {},
    cifar_tables,
    LONGEST,
    lambda found, out: figures.constrained(found["table3"], "held-cifar100", "CIFAR-100", out),
)
