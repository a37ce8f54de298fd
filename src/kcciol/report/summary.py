"""The results in a few lines: the paper's method beside the paper's numbers, in Markdown and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kcciol.atomic import replacing, require_file
from kcciol.errors import UserError
from kcciol.report.chart import numeric, spread_out
from kcciol.report.read import PAPER, Cell, Grid, Results, Table
from kcciol.report.words import digits_of, number, printed

PICTURES = (".png", ".svg")  # formats
METHOD = "kcciol"
BESIDE = ("kcciol-paper", "kcciol-phase1", "control")
"""Further columns: the printed reading, and without the later phases or the terms that set them apart."""


def summed_up(results: Results, names: Sequence[str] = ()) -> list[tuple[Table, Grid]]:
    """Tables (all, or those named) that have the method and its printed numbers, by classes or the like. One that
    repeats those of an earlier table is left out."""
    found: dict[tuple[float, ...], tuple[Table, Grid]] = {}
    for table in results.tables:
        grid = table.grids[0]
        both = [cells for cells in grid.rows.values() if {METHOD, PAPER + METHOD} <= set(cells)]
        if len(table.grids) == 1 and both and numeric(grid) and (not names or table.name in names):
            found.setdefault(tuple(cells[METHOD].mean for cells in both), (table, grid))
    return list(found.values())


def markdown(results: Results, names: Sequence[str] = ()) -> str:
    """The first and the last row that both have, of each table."""
    shown = summed_up(results, names)
    if not shown:
        raise UserError(f"There is no table of {METHOD} beside printed numbers among the results: nothing to sum up.")
    columns = [METHOD, *(c for c in BESIDE if any(c in row for _, grid in shown for row in grid.rows.values()))]
    head = ["", "", "paper, printed", *(f"`{column}`" for column in columns)]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for table, grid in shown:
        digits = digits_of(cell for row in grid.rows.values() for cell in row.values())
        both = [n for n, row in grid.rows.items() if {METHOD, PAPER + METHOD} <= set(row)]
        for n in dict.fromkeys((both[0], both[-1])):
            row = grid.rows[n]
            cells = [number(row[c], digits) if c in row else "" for c in columns]
            what = f"{_short(table)}, {table.metric}" if n == both[0] else ""
            words = [_safe(what), _safe(f"{n} {table.axis}"), printed(row[PAPER + METHOD]), *cells]
            lines.append("| " + " | ".join(words) + " |")
    seeds = ", ".join(f"{_short(table)} {count}" for table, _ in shown if (count := _seeds(table)))
    note = f"; trained representations of `{METHOD}`: {seeds}" if seeds else ""
    return "\n".join([*lines, "", _safe(f"(± is the 95 % interval over streams{note}.)")])


def picture(results: Results, out: Path, names: Sequence[str] = ()) -> None:
    """One panel for each table."""
    require_file(out, *PICTURES)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("A picture needs matplotlib: pip install 'kcciol[plots]'.") from None
    shown = summed_up(results, names)
    if not shown:
        raise UserError(f"There is no table of {METHOD} beside printed numbers among the results: nothing to draw.")
    figure = Figure(figsize=(3.2 * len(shown), 3.0), layout="constrained", dpi=110)
    for i, (table, grid) in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), i)
        _panel(axes, table, grid)
        if i == 1:
            axes.legend(fontsize=8)
    with replacing(out) as beside:
        figure.savefig(beside, format=out.suffix.removeprefix("."), metadata={})


LINES: dict[str, dict[str, Any]] = {
    METHOD: {"color": "C0", "marker": "o", "label": "ours"},
    PAPER + METHOD: {"color": "0.3", "marker": "o", "mfc": "white", "linestyle": "--", "label": "paper, printed"},
    "control": {"color": "C1", "marker": ".", "label": "ours, without its two terms"},
}


def _panel(axes: Any, table: Table, grid: Grid) -> None:
    for column, style in LINES.items():
        points = [(float(n), row[column]) for n, row in grid.rows.items() if column in row]
        if points:
            axes.errorbar(
                [x for x, _ in points],
                [cell.mean for _, cell in points],
                yerr=[_bar(cell) for _, cell in points],
                markersize=4,
                linewidth=1.4,
                **style,
            )
    if spread_out(grid):
        axes.set_xscale("log")
        axes.set_xticks([float(n) for n in grid.rows], list(grid.rows), fontsize=7)
        axes.minorticks_off()
    axes.set_title(_short(table), fontsize=9)
    axes.set_xlabel(table.axis, fontsize=8)
    axes.set_ylabel(table.metric, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_ylim(bottom=0)


def _safe(text: str) -> str:
    """Text that stays in its cell."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _short(table: Table) -> str:
    """What a title says before its first comma."""
    return table.title.split(",")[0]


def _seeds(table: Table) -> int:
    """How many trained representations the method's numbers are of, where the file says so."""
    seeds = table.about.get("seeds")
    known = seeds.get(METHOD) if isinstance(seeds, dict) else seeds
    return len(known) if isinstance(known, list) else 0


def _bar(cell: Cell) -> float:
    return cell.ci95 or 0.0
