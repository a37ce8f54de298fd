"""A table as lines of text, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from kcciol.paper.formats import PAPER
from kcciol.paper.report.formatting import digits_of, marked, printed, used_marks
from kcciol.paper.report.read import CellGrid, ResultTable


def lines(table: ResultTable) -> list[str]:
    """Its title, a line for each column of the table with the paper's number in brackets, and what the marks mean."""
    digits = digits_of(table.every)
    found = [", ".join(filter(None, (table.title, table.measure)))]
    for grid in table.grids:
        found += [f"{table.groups or 'group'}: {grid.group}"] if grid.group else []
        found += _aligned(_cells(table, grid, digits))
    return [
        *found,
        *filter(None, ["(...): the paper's" if any(g.paired for g in table.grids) else "", used_marks(table)]),
    ]


def _cells(table: ResultTable, grid: CellGrid, digits: int) -> list[list[str]]:
    """A head, and a row for each column that was measured or printed."""
    columns = dict.fromkeys([*(c for _, c, _ in grid.own()), *grid.paired])
    found = [[table.axis or "row", *grid.rows]]
    for column in columns:
        cells = [(row.get(column), row.get(PAPER + column)) for row in grid.rows.values()]
        shown = [
            " ".join(
                [
                    *([marked(ours, digits)] if ours is not None else []),
                    *([f"({printed(paper)})"] if paper is not None else []),
                ]
            )
            for ours, paper in cells
        ]
        found.append([column, *shown])
    return found


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of one width each.

    >>> _aligned([["n", "10"], ["ncm", "5.1"]])
    ['n    10', 'ncm  5.1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
