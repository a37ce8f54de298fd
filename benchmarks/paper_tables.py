"""Tables of results/table*.json in Markdown, for the docs: some columns, or their differences on the same streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kcciol.numbers import half_width
from kcciol.paper.formats import PAPER
from kcciol.paper.report.consolidation import gap
from kcciol.paper.report.formatting import at_edge, marks_of
from kcciol.paper.report.read import TableCell, read_table

RESULTS = Path(__file__).parents[1] / "results"
Cells = dict[str, dict[str, Any]]


def read(name: str) -> dict[str, Any]:
    """A file of results."""
    value: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return value


def markdown_table(axis: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """Rows of cells; those with none are left out."""
    lines = ["| " + " | ".join([axis, *columns]) + " |", "| --- " * (len(columns) + 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join([name, *cells]) + " |" for name, cells in rows.items() if any(cells)])


def columns(name: str, wanted: Sequence[str], shown: Callable[[Cells, str], str], group: str = "") -> str:
    """Some columns of a table."""
    assert len(set(wanted)) == len(wanted), "a column is printed once"
    data = read(f"{name}.json")
    rows = data["rows"][group] if group else data["rows"]
    cells = {row: [shown(cells, column) if column in cells else "" for column in wanted] for row, cells in rows.items()}
    return markdown_table(data["axis"].rpartition("then ")[2], wanted, cells)


def accuracy(cells: Cells, column: str) -> str:
    """Mean, interval and marks, the printed number in brackets."""
    cell = cells[column]
    marks = "".join(mark for mark, _ in marks_of(TableCell(cell["mean"], cell.get("ci95"), cell.get("std"), cell)))
    paper = f" ({cells[PAPER + column]['mean']:.1f})" if PAPER + column in cells else ""
    return f"{cell['mean']:.1f}{half_width(cell.get('ci95'))}{marks}{paper}"


def edges() -> str:
    """The columns of each table with settings that were chosen at the end of their grid, and in which rows."""
    found: dict[str, list[str]] = {}
    for name in ("table1", "table2", "table3", "table5", "table6", "table7", "heads"):
        for grid in read_table(RESULTS / f"{name}.json").grids:
            title = ", ".join(filter(None, (name, grid.group and f"{grid.group} classes")))
            for column in grid.columns:
                places = [row for row, cells in grid.rows.items() if column in cells and at_edge(cells[column])]
                if places:
                    found[f"{title}: {column}"] = ["all" if len(places) == len(grid.rows) else ", ".join(places)]
    return markdown_table("column", ["rows"], found)


def forgetting(cells: Cells, column: str) -> str:
    """Of a gradient head in the cell itself, of a learner in the summary of its stream."""
    cell = cells[column]
    own = cell.get("forgetting", ((cell.get("summary") or {}).get("forgetting") or {}).get("mean"))
    return "" if own is None else f"{own:.1f}"


def memory(cells: Cells, column: str) -> str:
    """kB; what keeps examples and more than the budget is marked."""
    cell = cells[column]
    over = " (over)" if cell["replay"] and not cell.get("within_budget", True) else ""
    return f"{sum(cell['bytes'].values()) / 1000:,.0f}{over}"


def differences(name: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Columns less others, on the same streams of the same seeds."""
    data = read(f"{name}.json")

    def shown(cells: Cells, one: str, other: str) -> str:
        found = gap(cells[one], cells[other]) if one in cells and other in cells else None
        return "" if found is None else f"{found.mean:+.1f}{half_width(found.half)}"

    rows = {n: [shown(cells, *pair) for pair in pairs] for n, cells in data["rows"].items()}
    return markdown_table(data["axis"], [f"{one} − {other}" for one, other in pairs], rows)


RIVALS = ("pretrained", "srnn", "maml-rep-first", "maml-rep", "mrcl-first", "mrcl", "oml-first", "oml", "anml")
SAME = ("maml-rep-same", "mrcl-same", "oml-same")
STAGES = ("kcciol-phase1", "kcciol-phase2", "control", "gamma0", "lambda0", "kcciol", "kcciol-o")
STARTS = ("scratch", "standard", "pretraining", "oml", "kcciol")
HEADS = ("online-sgd", "online-adam", "ncm", "gaussian", "slda", "ridge", "pixels")
REPRESENTATIONS = (
    "pixels + ncm",
    "untrained + ncm",
    "scratch",
    "pretrained",
    "srnn",
    "mrcl",
    "oml",
    "kcciol-paper",
    "kcciol",
)
LEARNERS = ("online, kcciol's start, frozen", "kcciol")
CLOSED = tuple(f"{c} + {head}" for head in ("ncm", "gaussian") for c in ("mrcl", "kcciol-phase2", "kcciol"))
AGAINST = [(f"kcciol + {head}", f"{c} + {head}") for head in ("ncm", "gaussian") for c in ("kcciol-phase2", "mrcl")]
TABLES: dict[str, Callable[[], str]] = {
    "table1": lambda: columns("table1", REPRESENTATIONS, accuracy),
    "rivals": lambda: columns("table1", (*RIVALS, *SAME, "kcciol"), accuracy),
    "margins": lambda: differences("table1", [("kcciol", c) for c in ("oml", "anml", *SAME)]),
    "stages": lambda: columns("table1", STAGES, accuracy),
    "gains": lambda: differences("table1", [("kcciol", c) for c in STAGES if c != "kcciol"]),
    "means": lambda: differences(
        "table1", [("kcciol + ncm", f"{c} + ncm") for c in ("kcciol-phase1", "kcciol-phase2", "control")]
    ),
    "forgetting": lambda: columns("table1", ("pretrained", "oml", "oml-same", *STAGES), forgetting),
    "forgetting5": lambda: columns("table5", STARTS, forgetting),
    "table5": lambda: columns("table5", (*STARTS, "pixels", "untrained"), accuracy),
    "table6": lambda: columns("table6", (*STARTS, "pixels", "untrained"), accuracy),
    "memory": lambda: columns("table5", STARTS, memory),
    "heads200": lambda: columns("heads", HEADS, accuracy, "200"),
    "heads600": lambda: columns("heads", HEADS, accuracy, "600"),
    "rules": lambda: columns("table7", LEARNERS, accuracy),
    "held": lambda: differences("table2", [("kcciol", "kcciol-o"), ("kcciol", "kcciol-o-plain")]),
    "closed": lambda: columns("table3", CLOSED, accuracy),
    "edges": edges,
    "phase3": lambda: differences("table3", AGAINST),
}
