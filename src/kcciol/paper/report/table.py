"""A table as a section of the page: ours beside the paper's, charts, what else was measured, all there is to know."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kcciol.paper.formats import PAPER
from kcciol.paper.report.chart import charts, numeric, on_scales
from kcciol.paper.report.facts import box, every_number, how_measured, names, notes
from kcciol.paper.report.formatting import counted, fixed, mean_and_interval, printed, signed, used_marks
from kcciol.paper.report.markup import Html, el, line, scrolling_table
from kcciol.paper.report.read import CellGrid, ResultTable, verdict
from kcciol.paper.report.view import MARKS, RIVAL, View, explained_marks, heading, tally, words_of

INTERVAL = "± is the 95 % interval over the streams of all seeds"
WIDE = 8  # a grid with more columns than this, and than rows, is shown on its side
MANY = 6  # with more columns than this, no word is spent in a cell
LEARNED = "training_images"


def section(table: ResultTable, anchor: str) -> Html:
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
        notes(view),
        names(table),
        every_number(view),
        how_measured(table.about),
        id=anchor,
    )


def _seeds(each: dict[str, int]) -> str:
    """How many trainings the columns have; those with fewer than most say so themselves."""
    few, many = min(each.values(), default=0), max(each.values(), default=0)
    return (counted(many, "seed") if many else "") + (", fewer where it says so" if few < many else "")


def _legend(table: ResultTable) -> Html:
    if not tally(table):
        return Html("")
    items = [
        el("span", el("span", mark, class_=f"chip {kind}"), " ", words_of(kind, table.lower))
        for kind, mark in MARKS.items()
    ]
    if not all(table.aims_at(column) for grid in table.grids for column in grid.paired):
        items.append(el("span", el("span", "+1", class_="chip rival"), " ", RIVAL))
    return el("p", "Ours above, the paper’s below it with our difference: ", *items, class_="legend")


def _grid(view: View, grid: CellGrid) -> list[Html]:
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


def _chart_legend(view: View, grid: CellGrid, columns: Sequence[str]) -> Html:
    items = [el("span", el("i", class_="key ours"), " ours with its interval")]
    if grid.paired:
        items.append(el("span", el("i", class_="key paper"), " the paper’s"))
    items.append(el("span", el("i", class_="key other"), " ours in the other columns"))
    log = on_scales(grid, columns, view.table.lower)
    over = f"{view.table.metric or 'value'} over {view.table.axis or 'rows'}{log}: "
    return el("p", over, *items, class_="legend")


# --- rows and columns -------------------------------------------------------------------------------------------------


def _matrix(view: View, grid: CellGrid, columns: Sequence[str], rows: Sequence[str]) -> Html:
    """Cells in a box of their own that scrolls when it is wider than the page."""
    aside = len(columns) > WIDE and len(columns) > len(rows)
    lines = []
    for first in columns if aside else rows:
        cells = []
        for second in rows if aside else columns:
            row, column = (second, first) if aside else (first, second)
            cells.append(_cell(view, grid, row, column))
        lines.append(line(view.label(first), cells))
    axis = view.table.axis or "row"
    corner = el("th", f"column, by {axis}" if aside else axis, scope="col", class_="corner")
    heads = [el("th", view.label(name), scope="col") for name in (rows if aside else columns)]
    kind = "cells many" if len(heads) > MANY else "cells"
    return scrolling_table([corner, *heads], lines, kind, " ".join([heading(view.table.name), grid.group]).strip())


def _cell(view: View, grid: CellGrid, row: str, column: str) -> Html:
    ours, paper = grid.rows[row].get(column), grid.rows[row].get(PAPER + column)
    if ours is None and paper is None:
        return el("td")
    shown = el("span", "not measured", class_="none")
    opened = Html("")
    if ours is not None:
        name = f"{view.anchor}-box{next(view.boxes)}"
        mean, interval = mean_and_interval(ours, view.digits)
        about = [el("small", interval)] * bool(interval) + explained_marks(ours)
        shown = el("button", mean, *about, popovertarget=name, type="button")
        opened = box(view, grid, row, column, name)
    if paper is None:
        share = _share(grid, row, column, view.table.lower) if column in grid.plain else None
        tint = f"--tint:{round(100 * share)}%" if share is not None else None
        best = "best" if share == 1 else None
        return el("td", shown, opened, class_=best, style=tint)
    printed_ = el("span", el("span", "paper ", class_="word"), printed(paper), class_="paper")
    chip = Html("")
    if ours is not None:
        gap = signed(ours.mean - paper.mean, view.digits)
        if view.table.aims_at(column):
            kind = verdict(ours, paper, view.table.lower)
            chip = el("span", f"{MARKS[kind]} {gap}", class_=f"chip {kind}", title=words_of(kind, view.table.lower))
        else:
            chip = el("span", gap, class_="chip rival", title=RIVAL)
    return el("td", shown, el("div", printed_, " ", chip, class_="versus"), opened)


def _share(grid: CellGrid, row: str, column: str, lower: bool) -> float | None:
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
        heads = [f"column, by {view.table.axis or 'row'}", *rows]
        shown = {place: fixed(value, view.digits) for place, value in found.items()}
        lines = [line(column, [shown.get((row, column), "") for row in rows]) for column in columns]
        if found:
            tables += [el("h4", grid.group)] if grid.group else []
            tables.append(scrolling_table(heads, lines, "cells", "images learned"))
    summary = el("summary", "The same on the images that were learned from")
    return el("details", summary, *tables) if tables else Html("")
