"""Small line charts as SVG: ours with its interval, the paper's dashed, the other columns faint behind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kcciol.paper.formats import PAPER
from kcciol.paper.report.formatting import number, printed
from kcciol.paper.report.markup import Html, el
from kcciol.paper.report.read import CellGrid, TableCell

WIDTH, HEIGHT = 280.0, 176.0
LEFT, RIGHT, TOP, BOTTOM = 38.0, 14.0, 10.0, 24.0
DIGIT = 6.5  # how wide one is
SPREAD = 20.0  # rows that differ by more than so many times are laid out by their logarithm
DEEP = 100.0  # and so are errors
FARTHEST = 1e15  # rows named by larger numbers are not laid out by them
Points = list[tuple[float, TableCell]]


@dataclass(frozen=True)
class Scale:
    """Where a number lies in the picture; the same for all charts of a table."""

    x: dict[str, float]
    low: float
    high: float
    step: float
    """From one line to the next; of a logarithmic scale from one power of ten to the next."""
    log: bool = False

    def y(self, value: float) -> float:
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        share = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def ticks(self) -> list[float]:
        places = [self.low + i * self.step for i in range(round((self.high - self.low) / self.step) + 1)]
        return [10.0**place for place in places] if self.log else places


def charts(grid: CellGrid, columns: Sequence[str], digits: int, lower: bool) -> Html:
    """One chart for each column; nothing when the rows are not numbers, or fewer than two."""
    scale = scale_of(grid, columns, lower)
    if scale is None:
        return Html("")
    panels = [
        el("figure", el("figcaption", column), _chart(grid, column, columns, scale, digits), class_="panel")
        for column in columns
    ]
    return el("div", *panels, class_="panels")


def overlay(grid: CellGrid, columns: Mapping[str, str], digits: int, lower: bool) -> Html:
    """Several columns, by the class of their lines, in one chart; nothing where there is none to draw."""
    scale = scale_of(grid, list(columns), lower)
    if scale is None:
        return Html("")
    drawn = _frame(scale)
    for column, kind in columns.items():
        points = _points(grid, column, scale)
        drawn.append(_line(points, scale, kind))
        drawn += [_dot(x, scale.y(c.mean), kind, f"{column} {number(c, digits)}") for x, c in points]
    return _svg(drawn, "lines of " + ", ".join(columns))


def scale_of(grid: CellGrid, columns: Sequence[str], lower: bool) -> Scale | None:
    """From zero, or below it, to a round number above all that is drawn; errors that differ much by powers of ten."""
    values, means = numeric(grid), _means(grid, columns)
    if not means or len(set(values.values())) < 2:
        return None
    if spread_out(grid):
        values = {row: math.log(v) for row, v in values.items()}
    first, last = min(values.values()), max(values.values())
    x = {row: LEFT + (v - first) / (last - first) * (WIDTH - LEFT - RIGHT) for row, v in values.items()}
    x = dict(sorted(x.items(), key=lambda item: item[1]))
    if by_powers(grid, columns, lower):
        bottom, top = math.floor(math.log10(min(means))), math.ceil(math.log10(max(means)))
        step = math.ceil((top - bottom) / 6)
        return Scale(x, bottom, bottom + step * math.ceil((top - bottom) / step), step, log=True)
    low, high = min(0.0, *means), max(0.0, *means)
    between = _round_step((high - low) / 4)
    low, high = (math.floor(low / between + 1e-9) * between, math.ceil(high / between - 1e-9) * between)
    return Scale(x, low, max(high, low + between), between)


def by_powers(grid: CellGrid, columns: Sequence[str], lower: bool) -> bool:
    """Whether errors are drawn by their logarithm: of those that lie far apart the small ones would all look like 0."""
    means = _means(grid, columns)
    return lower and bool(means) and min(means) > 0 and max(means) / min(means) > DEEP


def on_scales(grid: CellGrid, columns: Sequence[str], lower: bool) -> str:
    """What must be said of the two scales, if anything."""
    found = [("vertical", by_powers(grid, columns, lower)), ("horizontal", spread_out(grid))]
    named = " and ".join(name for name, by in found if by)
    return f" ({named} log scale)" if named else ""


def _means(grid: CellGrid, columns: Sequence[str]) -> list[float]:
    """All that is drawn, the paper's too."""
    wanted = {*columns, *(PAPER + c for c in columns)}
    shown = (cell.mean for cells in grid.rows.values() for column, cell in cells.items() if column in wanted)
    return [mean for mean in shown if math.isfinite(mean)]


def numeric(grid: CellGrid) -> dict[str, float]:
    """The rows' names as numbers; empty when one is none."""
    try:
        values = {row: float(row) for row in grid.rows}
    except ValueError:
        return {}
    return values if all(abs(value) < FARTHEST for value in values.values()) else {}


def spread_out(grid: CellGrid) -> bool:
    """Whether the rows are laid out by their logarithm."""
    values = numeric(grid).values()
    return bool(values) and min(values) > 0 and max(values) / min(values) > SPREAD


def _round_step(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1.0, 2.0, 2.5, 5.0) if m * power >= value * (1 - 1e-9)), 10.0 * power)


# --- drawing ----------------------------------------------------------------------------------------------------------


def _chart(grid: CellGrid, column: str, columns: Sequence[str], scale: Scale, digits: int) -> Html:
    ours, paper = _points(grid, column, scale), _points(grid, PAPER + column, scale)
    drawn = _frame(scale)
    drawn += [_line(_points(grid, c, scale), scale, "other") for c in columns if c != column]
    drawn.append(_band(ours, scale))
    drawn += [_line(paper, scale, "paper"), _line(ours, scale, "ours")]
    drawn += [_dot(x, scale.y(c.mean), "paper", f"paper {printed(c)}") for x, c in paper]
    drawn += [_dot(x, scale.y(c.mean), "ours", number(c, digits)) for x, c in ours]
    label = f"{column}: " + " and ".join((["ours"] if ours else []) + (["the paper's"] if paper else []))
    return _svg(drawn, label)


def _svg(drawn: list[Html], label: str) -> Html:
    return el("svg", *drawn, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img", aria_label=label)


def _points(grid: CellGrid, column: str, scale: Scale) -> Points:
    there = [(x, grid.rows[row][column]) for row, x in scale.x.items() if column in grid.rows[row]]
    return [(x, cell) for x, cell in there if math.isfinite(cell.mean)]


def _frame(scale: Scale) -> list[Html]:
    """Lines at round numbers, and as many of the rows' names as fit."""
    drawn = []
    for tick in scale.ticks():
        y = f"{scale.y(tick):.1f}"
        drawn.append(el("line", x1=f"{LEFT:g}", x2=f"{WIDTH - RIGHT:g}", y1=y, y2=y, class_="grid"))
        drawn.append(el("text", _tick(tick), x=f"{LEFT - 6:g}", y=f"{scale.y(tick) + 4:.1f}", text_anchor="end"))
    names = list(scale.x.items())
    last, free = names[-1], -math.inf
    for row, x in names:  # the last is always shown, so others must leave it room
        half = DIGIT * len(row) / 2 + 2
        limit = math.inf if (row, x) == last else last[1] - DIGIT * len(last[0]) / 2 - 2
        if x - half >= free and x + half <= limit:
            drawn.append(el("text", row, x=f"{x:.1f}", y=f"{HEIGHT - 7:g}", text_anchor="middle"))
            free = x + half
    return drawn


def _tick(value: float) -> str:
    """As short as may be.

    >>> _tick(0.25), _tick(0.0001), _tick(2e12)
    ('0.25', '1e-4', '2e+12')
    """
    return f"{value:.0e}".replace("e-0", "e-") if 0 < abs(value) < 1e-3 else f"{value:.4g}"


def _band(part: Points, scale: Scale) -> Html:
    above = [(x, scale.y(c.mean + (c.ci95 or 0.0))) for x, c in part]
    below = [(x, scale.y(c.mean - (c.ci95 or 0.0))) for x, c in part]
    return el("polygon", points=_path([*above, *reversed(below)]), class_="band") if len(part) > 1 else Html("")


def _line(part: Points, scale: Scale, kind: str) -> Html:
    path = _path((x, scale.y(c.mean)) for x, c in part)
    return el("polyline", points=path, class_=kind) if len(part) > 1 else Html("")


def _dot(x: float, y: float, kind: str, what: str) -> Html:
    return el("circle", el("title", what), cx=f"{x:.1f}", cy=f"{y:.1f}", r="3", class_=kind)


def _path(part: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in part)
