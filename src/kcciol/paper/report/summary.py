"""The results in a few lines: the paper's method beside the paper's numbers, in Markdown and as a picture."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcciol.errors import UserError
from kcciol.files import replacing, require_file
from kcciol.paper.formats import PAPER
from kcciol.paper.report.chart import by_powers, numeric, spread_out
from kcciol.paper.report.formatting import CELL_MARKS, digits_of, marked, printed
from kcciol.paper.report.read import METHOD, CellGrid, Results, ResultTable
from kcciol.paper.report.view import of_column

PICTURES = (".png", ".svg")  # formats
BESIDE = ("kcciol-paper", "kcciol-phase1", "control")
"""Further columns: the printed reading, and without the later phases or the terms that set them apart."""


def summed_up(results: Results) -> list[tuple[ResultTable, CellGrid]]:
    """Tables that have the method and its printed numbers, by classes or the like, their rows in order. One that
    repeats the method's numbers of an earlier table is left out."""
    found: dict[tuple[float, ...], tuple[ResultTable, CellGrid]] = {}
    for table in results.tables:
        grid = table.grids[0]
        both = [cells for cells in grid.rows.values() if {METHOD, PAPER + METHOD} <= set(cells)]
        if len(table.grids) == 1 and both and (order := numeric(grid)):
            rows = {n: grid.rows[n] for n in sorted(grid.rows, key=lambda n: order[n])}
            found.setdefault(tuple(cells[METHOD].mean for cells in both), (table, replace(grid, rows=rows)))
    return list(found.values())


def markdown(results: Results) -> str:
    """Of each table the first row that both have, one in the middle, and the last."""
    shown = summed_up(results)
    if not shown:
        raise UserError(f"There is no table of {METHOD} beside printed numbers among the results: nothing to sum up.")
    columns = [METHOD, *(c for c in BESIDE if any(c in row for _, grid in shown for row in grid.rows.values()))]
    head = ["", "", "paper, printed", *(f"`{column}`" for column in columns)]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for table, grid in shown:
        digits = digits_of(table.every)
        both = [n for n, row in grid.rows.items() if {METHOD, PAPER + METHOD} <= set(row)]
        for n in dict.fromkeys((both[0], both[len(both) // 2], both[-1])):
            row = grid.rows[n]
            cells = [marked(row[c], digits) if c in row else "" for c in columns]
            what = ", ".join(filter(None, (table.short, table.measure))) if n == both[0] else ""
            place = f"{table.axis}: {n}" if table.axis else n
            words = [_safe(what), _safe(place), printed(row[PAPER + METHOD]), *cells]
            lines.append("| " + " | ".join(words) + " |")
    seeds = ", ".join(f"{table.short} {count}" for table, _ in shown if (count := _seeds(table)))
    note = f"; trained representations of `{METHOD}`: {seeds}" if seeds else ""
    used = [f"; {mark} {meaning}" for mark, (meaning, _) in CELL_MARKS.items() if any(mark in line for line in lines)]
    return "\n".join([*lines, "", _safe(f"(± is the 95 % interval over streams{note}{''.join(used)}.)")])


def picture(results: Results, out: Path) -> None:
    """One panel for each table. The same results give the same bytes."""
    require_file(out, *PICTURES)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("A picture needs matplotlib: pip install 'kcciol[plots]'.") from None
    shown = summed_up(results)
    if not shown:
        raise UserError(f"There is no table of {METHOD} beside printed numbers among the results: nothing to draw.")
    figure = Figure(figsize=(3.2 * len(shown), 3.2), layout="constrained", dpi=110)
    for i, (table, grid) in enumerate(shown, 1):
        _panel(figure.add_subplot(1, len(shown), i), table, grid)
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named), fontsize=8)
    about = {"Software": None, "Description": digest(results)} if out.suffix == ".png" else {"Date": None}
    with replacing(out) as beside, rc_context({"svg.hashsalt": METHOD}):
        figure.savefig(beside, format=out.suffix.removeprefix("."), metadata=about)


def digest(results: Results) -> str:
    """Of all numbers that the picture shows; it stands in the picture."""
    shown = [
        (table.title, table.metric, table.axis, n, column, row[column].mean, row[column].ci95)
        for table, grid in summed_up(results)
        for n, row in grid.rows.items()
        for column in LINES
        if column in row
    ]
    return hashlib.sha256(repr(shown).encode()).hexdigest()


LINES: dict[str, dict[str, Any]] = {
    METHOD: {"color": "C0", "marker": "o", "label": "ours"},
    PAPER + METHOD: {"color": "0.3", "marker": "o", "mfc": "white", "linestyle": "--", "label": "paper, printed"},
    "kcciol-paper": {"color": "C2", "marker": ".", "label": "ours, printed settings"},
    "control": {"color": "C1", "marker": ".", "label": "ours, without its two terms"},
}


def _panel(axes: Any, table: ResultTable, grid: CellGrid) -> None:
    for column, style in LINES.items():
        there = ((float(n), row[column]) for n, row in grid.rows.items() if column in row)
        points = [(x, cell) for x, cell in there if math.isfinite(cell.mean)]  # runs may have diverged
        if points:
            axes.errorbar(
                [x for x, _ in points],
                [cell.mean for _, cell in points],
                yerr=[cell.ci95 or 0.0 for _, cell in points],
                markersize=4,
                linewidth=1.4,
                **style,
            )
    values = [float(n) for n in grid.rows]
    if spread_out(grid):
        axes.set_xscale("log")
    apart = 0.09 * _reach(values[0], values[-1], spread_out(grid))  # labels closer than this would touch
    shown = values[-1:]
    for value in reversed(values[:-1]):
        if _reach(value, shown[-1], spread_out(grid)) >= apart:
            shown.append(value)
    axes.set_xticks(shown, [f"{value:g}" for value in shown])
    axes.minorticks_off()
    axes.set_title(table.short, fontsize=9)
    axes.set_xlabel(table.axis, fontsize=8)
    axes.set_ylabel(table.measure, fontsize=8)
    axes.tick_params(labelsize=7)
    if by_powers(grid, [c for c in LINES if not c.startswith(PAPER)], table.lower):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _reach(low: float, high: float, logarithmic: bool) -> float:
    """How far apart two rows lie on their axis."""
    return math.log(high / low) if logarithmic else high - low


def _safe(text: str) -> str:
    """Text that stays in its cell."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _seeds(table: ResultTable) -> int:
    """How many trained representations the method's numbers are of, where the file says so."""
    known = of_column(table, "seeds", METHOD)
    return len(known) if isinstance(known, list) else 0
