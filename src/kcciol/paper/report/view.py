"""A table on its way into the page: what its columns are called, and how they fare against the paper."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kcciol.paper.formats import PAPER
from kcciol.paper.report.formatting import counted, digits_of, marks_of
from kcciol.paper.report.markup import Html, el, join
from kcciol.paper.report.read import METHOD, ResultTable, TableCell, verdict

MARKS: dict[str, str] = {"reached": "✓", "within": "≈", "missed": "✗"}
RIVAL = "one of its rivals, made again: no number to reach"


@dataclass
class View:
    """A table on its way into the page: its anchor, its digits, and names for its boxes."""

    table: ResultTable
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


def aimed(table: ResultTable) -> list[str]:
    """The columns whose printed numbers are to be reached, the method itself first."""
    columns = dict.fromkeys(c for grid in table.grids for c in grid.paired if table.aims_at(c))
    return sorted(columns, key=lambda column: column != METHOD)


def tally(table: ResultTable, columns: Sequence[str] | None = None) -> Counter[str]:
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


def seeds_of(table: ResultTable) -> dict[str, int]:
    """How many trainings each column has, those that say so: the fewest of its cells."""
    found: dict[str, int] = {}
    for grid in table.grids:
        for _, column, cell in grid.own():
            seeds = cell.about.get("seeds") or of_column(table, "seeds", column)
            if isinstance(seeds, list) and seeds:
                found[column] = min(len(seeds), found.get(column, len(seeds)))
    return found


def of_column(table: ResultTable, key: str, column: str) -> Any:
    """What the table says about a column, or about all of them."""
    value = table.about.get(key)
    return value.get(column) if isinstance(value, dict) else value


def explained_marks(cell: TableCell) -> list[Html]:
    """The marks behind a number, which say what they mean when they are pointed at."""
    return [el("small", f" {mark}", title=meaning) for mark, meaning in marks_of(cell)]
