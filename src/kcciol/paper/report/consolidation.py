"""What consolidation adds: the method beside its own phases, and beside as many steps without its two terms."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kcciol.paper.report.chart import numeric, on_scales, overlay
from kcciol.paper.report.formatting import counted, digits_of, mean_and_interval, signed
from kcciol.paper.report.markup import Html, el, join, scrolling
from kcciol.paper.report.pairs import SEEDS, Gap, gap
from kcciol.paper.report.read import METHOD, PAPER, CellGrid, ResultTable, TableCell

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
OTHER_RATES = "*"
MANY = 8  # columns that leave no room for a chart beside them
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
    rows = [
        el(
            "tr",
            el("th", row, scope="row"),
            *_gaps(table, cells, gaps.values(), digits),
            *_means(cells, stages, digits),
        )
        for row, cells in grid.rows.items()
        if METHOD in cells
    ]
    names = [el("th", re.sub(r" (?=\d)", "\u00a0", name), scope="col") for name in heads]  # "phase 1" is one word
    shown = el("table", el("thead", el("tr", *names)), el("tbody", *rows), class_="cells")
    about = f"{table.measure}{on_scales(grid, list(lines), table.lower)}{_seeds(grid)}"
    return el(
        "div",
        el("h3", table.short),
        el("p", about, class_="about"),
        el("div", overlay(grid, lines, digits, table.lower), class_="panel"),
        scrolling(shown, f"{table.title}, by phase"),
        class_="wide" if len(heads) > MANY else None,
    )


def _seeds(grid: CellGrid) -> str:
    """How many both have, and so what the intervals are over."""
    both = (cells for cells in grid.rows.values() if {METHOD, CONTROL} <= set(cells))
    found = {len(one.by_seed) for cells in both if (one := gap(cells[METHOD].about, cells[CONTROL].about)) is not None}
    if len(found) != 1:
        return ""
    (count,) = found
    return f" · {counted(count, 'seed')}, ± over {'seeds' if count >= SEEDS else 'streams'}"


def _means(cells: dict[str, TableCell], columns: Iterable[str], digits: int) -> list[Html]:
    return [el("td", mean_and_interval(cells[c], digits)[0] if c in cells else "") for c in columns]


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
    half = "" if found.half is None else f" ± {found.half:.{digits}f}"
    chip = el("span", signed(found.mean, digits) + half, class_=f"chip {('rival', 'reached', 'missed')[better]}")
    seeds = ", ".join(signed(each, digits) for each in found.by_seed)
    return join([chip, f" {OTHER_RATES}" if differ else "", el("small", seeds, class_="seeds")])
