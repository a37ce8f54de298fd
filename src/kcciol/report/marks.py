"""Marks behind a number that says less than it seems to."""

from __future__ import annotations

from kcciol.report.read import Cell, Table


def _apart(cell: Cell) -> bool:
    """Whether the seeds' means lie further apart than the interval reaches: another seed may give what is not in it."""
    means = cell.about.get("by_seed")
    if cell.ci95 is None or not isinstance(means, list) or len(means) < 2:
        return False
    return all(isinstance(m, int | float) for m in means) and max(means) - min(means) > 2 * cell.ci95


def _at_edge(cell: Cell) -> bool:
    """Whether something was chosen at the end of its grid: beyond it may lie a better one."""
    choice = cell.about.get("choice")
    return any(isinstance(c, dict) and bool(c.get("at_edge")) for c in (choice if isinstance(choice, list) else []))


CELL_MARKS = {
    "↕": ("what the seeds gave lies further apart than the interval", _apart),
    "†": ("a setting was chosen at the end of its grid", _at_edge),
}


def used_marks(table: Table) -> str:
    """What the marks behind numbers mean, those that there are."""
    own = [cell for grid in table.grids for *_, cell in grid.own()]
    used = [f"{mark} {words}" for mark, (words, holds) in CELL_MARKS.items() if any(map(holds, own))]
    return "; ".join(used)
