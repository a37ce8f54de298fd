"""What consolidation adds: the method beside its own phases, and beside as many steps without its two terms, each two
columns on the same streams."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kcciol.numbers import half_width
from kcciol.paper.formats import PAPER
from kcciol.paper.report.chart import numeric, on_scales, overlay
from kcciol.paper.report.formatting import counted, digits_of, mean_and_interval, signed
from kcciol.paper.report.markup import Html, el, join, line, scrolling_table
from kcciol.paper.report.read import LARGEST, METHOD, CellGrid, ResultTable, TableCell
from kcciol.paper.report.view import explained_marks

CONTROL = "control"
STAGES = {  # columns: what they are called here, and the kind of their lines
    "kcciol-phase1": ("phase 1", "one"),
    "kcciol-phase2": ("phase 2", "two"),
    METHOD: ("phase 3", "ours"),
    CONTROL: ("control", "control"),
    PAPER + METHOD: ("kcciol, the paper’s", "paper"),
}
GAPS = {  # differences: the columns they are of
    "kcciol − phase 1": (METHOD, "kcciol-phase1"),
    "kcciol − control": (METHOD, CONTROL),
    "kcciol − control, class means": (f"{METHOD} + ncm", f"{CONTROL} + ncm"),
    "kcciol − control, printed settings": ("kcciol-paper", "control-paper"),
    "kcciol − control, our meta-loss, first order": ("kcciol-first", "control-first"),
    "kcciol − oml-same": (METHOD, "oml-same"),
}
OTHER_RATES = "≠"
MANY = 8  # columns that leave no room for a chart beside them
SEEDS = 3  # with fewer, their spread says next to nothing
SMALL = 0.01  # differences of errors that need more digits
ABOUT = (
    "Phase 1 is meta-learning alone. Phase 2 goes on with the l1 term, phase 3 with the constraint that holds what is "
    "important: its end is kcciol. The control takes the steps of phases 2 and 3, at their rates, without either term; "
    "oml-same is phase 1 for all the steps, and so the rival that is hardest to beat where it is trained as kcciol is."
)
HOW = (
    "Differences are on the same streams, of the seeds that both have, ± the 95 % interval: over the seeds where there "
    "are three, else over the streams, which says nothing of another seed; below it stands that of each seed. Green is "
    "where kcciol is better, red where it is worse, by more than the interval "
    f"and with every seed. A head learns at the rate that was chosen for its column: {OTHER_RATES} marks where the two "
    "rates differ, so that the difference is theirs, too. Class means have no rate."
)


def section(tables: Iterable[ResultTable], anchor: str) -> Html:
    """A panel for each table that has both the method and the control; nothing without one."""
    shown = [table for table in tables if has(table)]
    if not shown:
        return Html("")
    drawn = {column for table in shown for column in table.grids[0].columns}
    keys = [el("span", el("i", class_=f"key {kind}"), f" {name}") for c, (name, kind) in STAGES.items() if c in drawn]
    return el(
        "section",
        el("h2", "What consolidation adds"),
        el("p", ABOUT),
        el("p", HOW),
        el("p", *keys, class_="legend"),
        el("div", *(_panel(table, table.grids[0]) for table in shown), class_="stages"),
        id=anchor,
    )


def has(table: ResultTable) -> bool:
    """Whether a table tells."""
    grid = table.grids[0]
    both = any({METHOD, CONTROL} <= set(cells) for cells in grid.rows.values())
    return len(table.grids) == 1 and both and bool(numeric(grid))


def _panel(table: ResultTable, grid: CellGrid) -> Html:
    lines = {column: kind for column, (_, kind) in STAGES.items() if column in grid.columns}
    stages = [column for column in lines if not column.startswith(PAPER)]
    gaps = {name: pair for name, pair in GAPS.items() if set(pair) <= set(grid.columns)}
    digits = digits_of(table.every)
    heads = [table.axis or "row", *gaps, *(STAGES[c][0] for c in stages)]
    rows = []
    for row, cells in grid.rows.items():
        if METHOD in cells:
            means = [_mean(cells[c], digits) if c in cells else el("td") for c in stages]
            rows.append(line(row, [*_gaps(table, cells, gaps.values(), digits), *means]))
    names = [re.sub(r" (?=\d)", "\u00a0", name) for name in heads]  # "phase 1" is one word
    about = f"{table.measure}{on_scales(grid, list(lines), table.lower)}{_seeds(grid)}"
    return el(
        "div",
        el("h3", table.short),
        el("p", about, class_="about"),
        el("div", overlay(grid, lines, digits, table.lower), class_="panel"),
        scrolling_table(names, rows, "cells", f"{table.title}, by phase"),
        class_="wide" if len(heads) > MANY else None,
    )


def _mean(cell: TableCell, digits: int) -> Html:
    return el("td", mean_and_interval(cell, digits)[0], *explained_marks(cell))


def _seeds(grid: CellGrid) -> str:
    """How many both have, and so what the intervals are over."""
    both = (cells for cells in grid.rows.values() if {METHOD, CONTROL} <= set(cells))
    found = {len(one.by_seed) for cells in both if (one := gap(cells[METHOD].about, cells[CONTROL].about)) is not None}
    if len(found) != 1:
        return ""
    (count,) = found
    return f" · {counted(count, 'seed')}, ± over {'seeds' if count >= SEEDS else 'streams'}"


def _gaps(table: ResultTable, cells: dict[str, TableCell], pairs: Iterable[tuple[str, str]], digits: int) -> list[Html]:
    found = []
    for one, other in pairs:
        both = one in cells and other in cells
        difference = gap(cells[one].about, cells[other].about) if both else None
        differ = both and _rates(cells[one]) != _rates(cells[other])
        found.append(el("td", _gap(difference, table.lower, digits, differ)) if difference is not None else el("td"))
    return found


def _rates(cell: TableCell) -> list[Any]:
    """What each seed chose, where that is a rate."""
    choice = cell.about.get("choice")
    return [c.get("chosen") if isinstance(c, dict) else c for c in choice] if isinstance(choice, list) else []


def _gap(found: Gap, lower: bool, digits: int, differ: bool) -> Html:
    better = -found.sign if lower else found.sign
    if digits > 1 and max(abs(found.mean), found.half or 0.0) < SMALL:
        digits += 2
    chip = el(
        "span",
        signed(found.mean, digits) + half_width(found.half, digits),
        class_=f"chip {('rival', 'reached', 'missed')[better]}",
    )
    seeds = ", ".join(signed(each, digits) for each in found.by_seed)
    return join([chip, f" {OTHER_RATES}" if differ else "", el("small", seeds, class_="seeds")])


# --- two columns on the same streams ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gap:
    """How far one column lies above another, on the streams of the seeds that both have."""

    mean: float
    half: float | None
    """Of the 95 % interval: over the seeds where there are three, else over the streams; of a single one none."""
    by_seed: list[float]

    @property
    def sign(self) -> int:
        """1 or -1 where it can be told from zero, and all seeds agree; else 0."""
        sign = 1 if self.mean > 0 else -1
        told = self.half is not None and abs(self.mean) > self.half
        return sign if told and all(sign * gap > 0 for gap in self.by_seed) else 0


def gap(a: Mapping[str, Any], b: Mapping[str, Any]) -> Gap | None:
    """a - b, of cells that have `by_trajectory`, the streams of one of their `seeds` after those of another; none where
    they share no seed.

    >>> two = {"seeds": [0, 1], "by_trajectory": [3.0, 5.0, 9.0, 9.0]}
    >>> gap(two, {"seeds": [0], "by_trajectory": [1.0, 2.0]}).by_seed
    [2.5]
    """
    import torch

    from kcciol.evaluation.metrics import summarize

    ours, theirs = streams(a), streams(b)
    seeds = [seed for seed in ours if seed in theirs and len(ours[seed]) == len(theirs[seed])]
    if not seeds:
        return None
    high, low = (torch.tensor([part[s] for s in seeds], dtype=torch.float64) for part in (ours, theirs))
    each = (high - low).mean(1)
    found = summarize(each if len(seeds) >= SEEDS else (high - low).flatten())
    return Gap(float(each.mean()), found.ci95, each.tolist())


def streams(cell: Mapping[str, Any]) -> dict[str, list[float]]:
    """What each seed gave, by its name; nothing where that cannot be told."""
    seeds, flat = cell.get("seeds"), cell.get("by_trajectory")
    if not isinstance(seeds, list) or not isinstance(flat, list) or not (seeds and flat) or len(flat) % len(seeds):
        return {}
    if cell.get("diverged"):  # runs are missing, and of which seed cannot be told
        return {}
    if not all(isinstance(value, int | float) and abs(value) < LARGEST for value in flat):
        return {}
    size = len(flat) // len(seeds)
    return {str(seed): flat[i * size : (i + 1) * size] for i, seed in enumerate(seeds)}
