"""Tables and figures of a rehearsal, whose numbers mean nothing, say so in their titles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcciol.paper.formats import PAPER

REHEARSAL = "Rehearsal, numbers mean nothing: "


def is_rehearsal(value: Mapping[str, Any]) -> bool:
    """Whether a table or a figure says that it is one."""
    return str(value.get("title", "")).startswith(REHEARSAL)


def rehearsed(table: dict[str, Any]) -> dict[str, Any]:
    """A table of a rehearsal: it says so, and has none of the paper's numbers beside it."""
    rows = {
        row: {column: cell for column, cell in cells.items() if not column.startswith(PAPER)}
        for row, cells in table["rows"].items()
    }
    columns = [column for column in table.get("columns", []) if not column.startswith(PAPER)]
    about = {"title": REHEARSAL + table["title"], "columns": columns, "compared": {}}
    return table | about | {"rows": {row: cells for row, cells in rows.items() if cells}}
