"""A table as a section of the page: ours beside the paper's, charts, what else was measured, all there is to know."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kcciol.report.chart import charts, numeric, on_scales
from kcciol.report.marks import CELL_MARKS, used_marks
from kcciol.report.markup import Html, el, join, scrolling
from kcciol.report.measured import how_measured
from kcciol.report.names import explained
from kcciol.report.read import METHOD, PAPER, Cell, Grid, Table, verdict
from kcciol.report.words import (
    counted,
    digits_of,
    duration,
    fixed,
    mean_and_interval,
    number,
    printed,
    signed,
    size,
    spoken,
)

MARKS: dict[str, str] = {"reached": "✓", "within": "≈", "missed": "✗"}
RIVAL = "one of its rivals, made again: no number to reach"
INTERVAL = "± is the 95 % interval over the streams of all seeds"
WIDE = 8  # a grid with more columns than this, and than rows, is shown on its side
MANY = 6  # with more columns than this, no word is spent in a cell
FACTS = {  # what is known about a cell, in this order and words; what has no word here comes after, under its own name
    "n": "n",
    "seeds": "seeds",
    "by_seed": "mean of each seed",
    "choice": "chosen",
    "settings": "settings",
    "chosen_on": "chosen on",
    "score_on_base_classes": "score where chosen",
    "bytes": "memory",
    "replay": "keeps examples",
    "within_budget": "fits the budget",
    "seconds": "time",
}
LEARNED = "training_images"
HIDDEN = ("by_trajectory",)  # as many numbers as there are streams


@dataclass
class View:
    """A table on its way into the page: its anchor, its digits, and names for its boxes."""

    table: Table
    anchor: str
    seeds: dict[str, int] = field(init=False)
    digits: int = field(init=False)
    boxes: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.seeds = seeds_of(self.table)
        self.digits = digits_of(self.table.every)

    def label(self, name: str) -> Html:
        """The name of a row or column, with how many seeds it has, if fewer than others, and a link to its note."""
        parts = [name]
        if self.seeds.get(name, 0) < max(self.seeds.values(), default=0) and name in self.seeds:
            parts.append(el("small", f" {counted(self.seeds[name], 'seed')}"))
        if name in self.table.notes:
            place = list(self.table.notes).index(name) + 1
            parts.append(el("sup", el("a", f"note {place}", href=f"#{self.anchor}-note{place}")))
        return join(parts)


def heading(name: str) -> str:
    """What a table is called.

    >>> heading("table12-extra"), heading("heads")
    ('Table 12, extra', 'Heads')
    """
    number = "".join(itertools.takewhile(str.isdecimal, name.removeprefix("table")))
    if not name.startswith("table") or not number:
        return name[:1].upper() + name[1:]
    rest = name.removeprefix("table" + number).strip("-_ ")
    return f"Table {number}" + (f", {rest}" if rest else "")


def aimed(table: Table) -> list[str]:
    """The columns whose printed numbers are to be reached, the method itself first."""
    columns = dict.fromkeys(c for grid in table.grids for c in grid.paired if table.aims_at(c))
    return sorted(columns, key=lambda column: column != METHOD)


def tally(table: Table, columns: Sequence[str] | None = None) -> Counter[str]:
    """How the paper's cells that are to be reached, perhaps of some columns only, fared: reached, within, missed, or
    unmeasured."""
    found: Counter[str] = Counter()
    wanted = aimed(table) if columns is None else columns
    for grid in table.grids:
        for cells in grid.rows.values():
            for column in wanted:
                ours, paper = cells.get(column), cells.get(PAPER + column)
                if paper is not None:
                    found[verdict(ours, paper, table.lower) if ours is not None else "unmeasured"] += 1
    return found


def words_of(kind: str, lower: bool) -> str:
    """A verdict in words."""
    better, worse = ("below", "above") if lower else ("above", "below")
    return {
        "reached": f"at or {better} the paper",
        "within": f"{worse} it, within our interval",
        "missed": f"{worse} it, beyond our interval",
        "unmeasured": "not measured",
    }[kind]


def section(table: Table, anchor: str) -> Html:
    """The whole section."""
    view = View(table, anchor)
    parts = [part for grid in table.grids for part in _grid(view, grid)]
    about = [table.metric, "lower is better" if table.lower else "", _seeds(view.seeds), INTERVAL, used_marks(table)]
    about.append("the stronger a tint, the better" if any(grid.plain for grid in table.grids) else "")
    return el(
        "section",
        el("h2", el("span", heading(table.name), class_="tag"), " ", table.title),
        el("p", " · ".join(a for a in about if a), class_="about"),
        _legend(table),
        *parts,
        _learned(view),
        _notes(view),
        _names(table),
        _every_number(view),
        how_measured(table.about),
        id=anchor,
    )


def seeds_of(table: Table) -> dict[str, int]:
    """How many trainings each column has, those that say so: the fewest of its cells."""
    found: dict[str, int] = {}
    for grid in table.grids:
        for _, column, cell in grid.own():
            seeds = cell.about.get("seeds") or _of_column(table, "seeds", column)
            if isinstance(seeds, list) and seeds:
                found[column] = min(len(seeds), found.get(column, len(seeds)))
    return found


def _seeds(each: dict[str, int]) -> str:
    """How many trainings the columns have; those with fewer than most say so themselves."""
    few, many = min(each.values(), default=0), max(each.values(), default=0)
    return (counted(many, "seed") if many else "") + (", fewer where it says so" if few < many else "")


def _legend(table: Table) -> Html:
    if not tally(table):
        return Html("")
    items = [
        el("span", el("span", mark, class_=f"chip {kind}"), " ", words_of(kind, table.lower))
        for kind, mark in MARKS.items()
    ]
    if not all(table.aims_at(column) for grid in table.grids for column in grid.paired):
        items.append(el("span", el("span", "+1", class_="chip rival"), " ", RIVAL))
    return el("p", "Ours above, the paper’s below it with our difference: ", *items, class_="legend")


def _grid(view: View, grid: Grid) -> list[Html]:
    parts = []
    if grid.group:
        parts.append(el("h3", f"{view.table.groups or 'group'}: {grid.group}"))
    ours = sorted(grid.paired, key=lambda column: not view.table.aims_at(column))  # the method itself comes first
    if ours:
        parts.append(_matrix(view, grid, ours, list(grid.rows)))
    drawn = charts(grid, ours or grid.plain, view.digits, view.table.lower)
    if drawn:
        parts += [_chart_legend(view, grid, ours or grid.plain), drawn]
    rows = [row for row, cells in grid.rows.items() if any(c in cells for c in grid.plain)]
    if grid.plain:
        if grid.paired:
            parts.append(el("h3", "Also measured, not in the paper"))
        parts.append(_matrix(view, grid, grid.plain, rows))
    return parts


def _chart_legend(view: View, grid: Grid, columns: Sequence[str]) -> Html:
    items = [el("span", el("i", class_="key ours"), " ours with its interval")]
    if grid.paired:
        items.append(el("span", el("i", class_="key paper"), " the paper’s"))
    items.append(el("span", el("i", class_="key other"), " ours in the other columns"))
    log = on_scales(grid, columns, view.table.lower)
    over = f"{view.table.metric or 'value'} over {view.table.axis or 'rows'}{log}: "
    return el("p", over, *items, class_="legend")


# --- rows and columns -------------------------------------------------------------------------------------------------


def _matrix(view: View, grid: Grid, columns: Sequence[str], rows: Sequence[str]) -> Html:
    """Cells in a box of their own that scrolls when it is wider than the page."""
    aside = len(columns) > WIDE and len(columns) > len(rows)
    lines = []
    for first in columns if aside else rows:
        cells = []
        for second in rows if aside else columns:
            row, column = (second, first) if aside else (first, second)
            cells.append(_cell(view, grid, row, column))
        lines.append(el("tr", el("th", view.label(first), scope="row"), *cells))
    axis = view.table.axis or "row"
    corner = el("th", f"column, by {axis}" if aside else axis, scope="col", class_="corner")
    heads = [el("th", view.label(name), scope="col") for name in (rows if aside else columns)]
    many = " many" if len(heads) > MANY else ""
    table = el("table", el("thead", el("tr", corner, *heads)), el("tbody", *lines), class_=f"cells{many}")
    name = " ".join([heading(view.table.name), grid.group]).strip()
    return scrolling(table, name)


def _cell(view: View, grid: Grid, row: str, column: str) -> Html:
    ours, paper = grid.rows[row].get(column), grid.rows[row].get(PAPER + column)
    if ours is None and paper is None:
        return el("td")
    shown = el("span", "not measured", class_="none")
    box = Html("")
    if ours is not None:
        name = f"{view.anchor}-box{next(view.boxes)}"
        mean, interval = mean_and_interval(ours, view.digits)
        marks = [el("small", f" {mark}", title=words) for mark, (words, holds) in CELL_MARKS.items() if holds(ours)]
        shown = el("button", mean, el("small", interval) if interval else "", *marks, popovertarget=name, type="button")
        box = _box(view, grid, row, column, name)
    if paper is None:
        share = _share(grid, row, column, view.table.lower) if column in grid.plain else None
        tint = f"--tint:{round(100 * share)}%" if share is not None else None
        best = "best" if share == 1 else None
        return el("td", shown, box, class_=best, style=tint)
    printed_ = el("span", el("span", "paper ", class_="word"), printed(paper), class_="paper")
    chip = Html("")
    if ours is not None:
        gap = signed(ours.mean - paper.mean, view.digits)
        if view.table.aims_at(column):
            kind = verdict(ours, paper, view.table.lower)
            chip = el("span", f"{MARKS[kind]} {gap}", class_=f"chip {kind}", title=words_of(kind, view.table.lower))
        else:
            chip = el("span", gap, class_="chip rival", title=RIVAL)
    return el("td", shown, el("div", printed_, " ", chip, class_="versus"), box)


def _share(grid: Grid, row: str, column: str, lower: bool) -> float | None:
    """How good a cell is among its like, from 0 to 1: of its row where rows are numbers, else of the whole grid."""
    rows = [grid.rows[row]] if numeric(grid) else list(grid.rows.values())
    every = [cells[c].mean for cells in rows for c in grid.plain if c in cells]
    means, mean = [m for m in every if math.isfinite(m)], grid.rows[row][column].mean
    low, high = min(means, default=0.0), max(means, default=0.0)
    if high <= low or math.isinf(mean):
        return None
    return (high - mean if lower else mean - low) / (high - low)


def _learned(view: View) -> Html:
    """Accuracy on the images that were learned from, where it is known, folded."""
    tables = []
    for grid in view.table.grids:
        known = [(row, c, cell.about.get(LEARNED)) for row, c, cell in grid.own()]
        found = {(row, c): float(v) for row, c, v in known if isinstance(v, int | float)}
        rows, columns = (list(dict.fromkeys(pair[i] for pair in found)) for i in (0, 1))
        heads = [el("th", name, scope="col") for name in (f"column, by {view.table.axis or 'row'}", *rows)]
        lines = [
            el("tr", el("th", c, scope="row"), *(el("td", _shown(found.get((row, c)), view.digits)) for row in rows))
            for c in columns
        ]
        if found:
            tables += [el("h4", grid.group)] if grid.group else []
            table = el("table", el("thead", el("tr", *heads)), el("tbody", *lines), class_="cells")
            tables.append(scrolling(table, "images learned"))
    return (
        el("details", el("summary", "The same on the images that were learned from"), *tables) if tables else Html("")
    )


def _shown(value: float | None, digits: int) -> str:
    return "" if value is None else fixed(value, digits)


# --- all there is to know ---------------------------------------------------------------------------------------------


def facts(table: Table, column: str, cell: Cell) -> dict[str, str]:
    """What is known about a cell, by name."""
    known = {"seeds": _of_column(table, "seeds", column)} | cell.about
    found = {}
    for key in [*FACTS, *(k for k in known if k not in FACTS)]:
        value = known.get(key)
        alone = key == "by_seed" and isinstance(value, list) and len(value) < 2  # it is the mean itself
        if value is not None and key not in HIDDEN and not alone:
            found[FACTS.get(key, key.replace("_", " "))] = _fact(key, value)
    if cell.std is not None:
        found["std"] = spoken(cell.std)
    trained = _of_column(table, "training_seconds", column)
    if isinstance(trained, list) and trained and all(isinstance(s, int | float) for s in trained):
        found["training of each seed"] = ", ".join(duration(s) for s in trained)
    return found


def _fact(key: str, value: Any) -> str:
    if key == "bytes":
        return size(value)
    if key == "choice" and isinstance(value, list):  # without the score of each that was tried
        value = [{k: v for k, v in c.items() if k != "scores"} if isinstance(c, dict) else c for c in value]
    if key == "seconds" and isinstance(value, int | float):
        return duration(value)
    return spoken(value)


def _of_column(table: Table, key: str, column: str) -> Any:
    """What the table says about a column, or about all of them."""
    value = table.about.get(key)
    return value.get(column) if isinstance(value, dict) else value


def _box(view: View, grid: Grid, row: str, column: str, name: str) -> Html:
    """What opens when a number is touched."""
    ours, paper = grid.rows[row][column], grid.rows[row].get(PAPER + column)
    lines = {"ours": number(ours, view.digits)}
    if paper is not None:
        lines["paper"] = _printed(paper)
        aimed = view.table.aims_at(column)
        says = words_of(verdict(ours, paper, view.table.lower), view.table.lower) if aimed else RIVAL
        lines["difference"] = f"{signed(ours.mean - paper.mean, view.digits)}, {says}"
    lines |= facts(view.table, column, ours)
    pairs = [piece for key, value in lines.items() for piece in (el("dt", key), el("dd", value))]
    where = " · ".join(part for part in (column, f"{view.table.axis} {row}".strip(), grid.group) if part)
    return el("div", el("strong", where), el("dl", *pairs), id=name, popover=True, class_="box")


def _printed(paper: Cell) -> str:
    return printed(paper) + (f" (std {spoken(paper.std)})" if paper.std is not None else "")


def _every_number(view: View) -> Html:
    """The same as in the boxes, as one long table: for the keyboard, and, when it is unfolded, for paper."""
    own = [(grid, *found) for grid in view.table.grids for found in grid.own()]
    known = [facts(view.table, column, ours) for _, _, column, ours in own]
    shared = {k: v for k, v in known[0].items() if all(part.get(k) == v for part in known)} if len(known) > 1 else {}
    lines = []
    for (grid, row, column, ours), part in zip(own, known, strict=True):
        paper = grid.rows[row].get(PAPER + column)
        where = ", ".join(name for name in (grid.group, row, column) if name)
        cells = [number(ours, view.digits), _printed(paper) if paper is not None else "", _listed(part, shared)]
        lines.append(el("tr", el("th", where, scope="row"), *(el("td", c) for c in cells)))
    heads = [el("th", h, scope="col") for h in (f"{view.table.axis or 'row'}, column", "ours", "paper", "more")]
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *lines), class_="every")
    summary = el("summary", f"Every number with its n, seeds, settings, memory and time ({len(lines)})")
    same = el("p", "All of them: ", _listed(shared, {}), ".") if shared else ""
    return el("details", summary, same, scrolling(table, "every number")) if own else Html("")


def _listed(known: dict[str, str], without: dict[str, str]) -> str:
    return "; ".join(f"{key}: {value}" for key, value in known.items() if key not in without)


def _names(table: Table) -> Html:
    """What rows and columns are, those that are known."""
    known = explained(name for grid in table.grids for name in (*grid.columns, *grid.rows))
    pairs = [piece for name, words in known.items() for piece in (el("dt", name), el("dd", words))]
    return el("details", el("summary", "What the names mean"), el("dl", *pairs)) if known else Html("")


def _marked(text: str) -> Html:
    """Plain text in which names stand between backticks."""
    return join(el("code", part) if i % 2 else part for i, part in enumerate(re.split("`([^`]+)`", text)))


def _notes(view: View) -> Html:
    """What was tried where the paper's number is not reached."""
    items = [
        el("li", el("strong", name), ": " if name else "", _marked(text), id=f"{view.anchor}-note{i}")
        for i, (name, text) in enumerate(view.table.notes.items(), 1)
    ]
    return el("div", el("h3", "Notes"), el("ol", *items), class_="notes") if items else Html("")
