"""Numbers and settings as a reader wants to see them, and marks behind a number that says less than it seems to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from kcciol.numbers import half_width
from kcciol.paper.report.read import ResultTable, TableCell

MINUS = "−"
MANY = 12  # longer lists are counted, not shown
FEW = 5  # names of a longer list
EDGE = "†"
FINEST = 8  # digits after the point, at most


def digits_of(cells: Iterable[TableCell]) -> int:
    """Digits after the point: one for percentages, three where everything is small."""
    return 1 if max((abs(c.mean) for c in cells if math.isfinite(c.mean)), default=0.0) >= 10 else 3


def signed(value: float, digits: int) -> str:
    """A difference.

    >>> signed(-1.26, 1)
    '−1.3'
    """
    text = fixed(value, digits)
    return text if text.startswith(MINUS) else f"+{text}"


def fixed(value: float, digits: int) -> str:
    """A number with so many digits after the point.

    >>> fixed(-0.25, 1), fixed(float("inf"), 1), fixed(-0.04, 1)
    ('−0.2', '∞', '0.0')
    """
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def number(cell: TableCell, digits: int) -> str:
    """Mean and interval."""
    return "".join(mean_and_interval(cell, digits))


def mean_and_interval(cell: TableCell, digits: int) -> tuple[str, str]:
    """Both with so many digits, or as many as an error that is smaller, and its interval, need to show two.

    >>> mean_and_interval(TableCell(0.00104, 0.00015, None, {}), 3)
    ('0.00104', ' ± 0.00015')
    >>> mean_and_interval(TableCell(0.04, 0.01, None, {}), 1)
    ('0.0', ' ± 0.01')
    """
    if digits > 1 and 0 < abs(cell.mean) < 10 ** (1 - digits):
        least = min(abs(cell.mean), cell.ci95 or math.inf)
        digits = min(1 - math.floor(math.log10(least)), FINEST)
    return fixed(cell.mean, digits), half_width(cell.ci95, digits)


def printed(cell: TableCell) -> str:
    """The paper's number with the digits that it was printed with."""
    return str(cell.mean).replace("-", MINUS)


def spoken(value: Any) -> str:
    """Any JSON value in one line.

    >>> spoken({"rate": 3e-05, "optimizer": "adam", "nesterov": False})
    'rate 3e-05, optimizer adam, nesterov no'
    >>> spoken([0.001, 0.001])
    '0.001'
    """
    if isinstance(value, dict):
        if isinstance(value.get("mean"), int | float):
            ci95 = value.get("ci95")
            return f"{value['mean']:.4g}" + (f" ± {ci95:.2g}" if isinstance(ci95, int | float) and ci95 else "")
        return ", ".join(f"{k} {spoken(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list):
        parts = [spoken(v) for v in value]
        if len(parts) > MANY:
            return f"{len(parts)} values"
        same = len(set(parts)) == 1 and isinstance(value[0], dict | float)  # every seed chose the same
        return parts[0] if same else "; ".join(parts) if any(", " in p for p in parts) else ", ".join(parts) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def size(value: Any) -> str:
    """Bytes, perhaps of several parts.

    >>> size({"examples": 1844800, "counts": 200})
    '1.8 MB (examples 1.8 MB, counts 200 B)'
    """
    if isinstance(value, dict):
        parts = {k: v for k, v in value.items() if isinstance(v, int | float)}
        if not parts:
            return "none"
        each = ", ".join(f"{k} {size(v)}" for k, v in parts.items()) if len(parts) > 1 else next(iter(parts))
        return f"{size(sum(parts.values()))} ({each})"
    if not isinstance(value, int | float):
        return spoken(value)
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= bytes_:
            return f"{value / bytes_:.1f} {unit}"
    return f"{value:g} B"


def duration(seconds: float) -> str:
    """A time in the unit that fits.

    >>> duration(1283.6)
    '21.4 min'
    """
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def counted(count: int, what: str) -> str:
    """So many of what has a plural in s.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def first_few(names: Iterable[str]) -> str:
    """The first few of several names, each once."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - FEW} more" if len(each) > FEW else ""
    return ", ".join(each[:FEW]) + more


# --- marks ------------------------------------------------------------------------------------------------------------


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


CELL_MARKS: dict[str, tuple[str, Callable[[TableCell], bool]]] = {
    "*": (
        "all streams ask the same images, so the interval is over these images (`ci95_of_images`), not over streams",
        lambda cell: cell.about.get("ci95_of_images") is not None,
    ),
    "↕": ("what the seeds gave lies further apart than the interval", _apart),
    EDGE: ("a setting was chosen at the end of its grid", at_edge),
    "‡": (
        "its cells are not kept, or `kcciol reproduce` did not make them as they are: provenance says which",
        lambda cell: bool(cell.about.get("provenance")),
    ),
}


def marks_of(cell: TableCell) -> list[tuple[str, str]]:
    """The marks of a number, each with what it means."""
    return [(mark, meaning) for mark, (meaning, holds) in CELL_MARKS.items() if holds(cell)]


def marked(cell: TableCell, digits: int) -> str:
    """Mean, interval and marks."""
    return number(cell, digits) + "".join(mark for mark, _ in marks_of(cell))


def used_marks(table: ResultTable) -> str:
    """What the marks behind numbers mean, those that there are."""
    own = [cell for grid in table.grids for *_, cell in grid.own()]
    used = [f"{mark} {words}" for mark, (words, holds) in CELL_MARKS.items() if any(map(holds, own))]
    return "; ".join(used)
