"""Marks behind a number that says less than it seems to."""

from __future__ import annotations

from kcciol.paper.report.read import ResultTable, TableCell

EDGE = "†"


def _apart(cell: TableCell) -> bool:
    """Whether the seeds' means lie further apart than the interval reaches: another seed may give what is not in it."""
    means = cell.about.get("by_seed")
    if cell.ci95 is None or not isinstance(means, list) or len(means) < 2:
        return False
    return all(isinstance(m, int | float) for m in means) and max(means) - min(means) > 2 * cell.ci95


def at_edge(cell: TableCell) -> bool:
    """Whether something was chosen at the end of its grid: beyond it may lie a better one."""
    choice = cell.about.get("choice")
    return any(isinstance(c, dict) and bool(c.get("at_edge")) for c in (choice if isinstance(choice, list) else []))


def _made(cell: TableCell) -> bool:
    """Whether it has another history than that of cells which are kept as they were made."""
    return bool(cell.about.get("provenance"))


def marks_of(cell: TableCell) -> list[tuple[str, str]]:
    """The marks of a number, each with what it means."""
    return [(mark, meaning) for mark, (meaning, holds) in CELL_MARKS.items() if holds(cell)]


def _of_images(cell: TableCell) -> bool:
    """Whether the interval is of images, because the trajectories do not differ enough to say anything."""
    return cell.about.get("ci95_of_images") is not None


CELL_MARKS = {
    "*": ("the interval is of so many images (`ci95_of_images`): its trajectories hold the same ones", _of_images),
    "↕": ("what the seeds gave lies further apart than the interval", _apart),
    EDGE: ("a setting was chosen at the end of its grid", at_edge),
    "‡": ("its cells are not kept, or `kcciol reproduce` did not make them as they are: provenance says which", _made),
}


def used_marks(table: ResultTable) -> str:
    """What the marks behind numbers mean, those that there are."""
    own = [cell for grid in table.grids for *_, cell in grid.own()]
    used = [f"{mark} {words}" for mark, (words, holds) in CELL_MARKS.items() if any(map(holds, own))]
    return "; ".join(used)
