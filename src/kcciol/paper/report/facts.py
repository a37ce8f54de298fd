"""All there is to know about a number: in the box that opens at it, and in a list below its table."""

from __future__ import annotations

import re
from typing import Any

from kcciol.paper.report.formatting import duration, number, printed, signed, size, spoken
from kcciol.paper.report.glossary import explained
from kcciol.paper.report.markup import Html, el, join, scrolling
from kcciol.paper.report.read import PAPER, CellGrid, ResultTable, TableCell, verdict
from kcciol.paper.report.view import RIVAL, View, of_column, words_of

FACTS = {  # what is known about a cell, in this order and words; what has no word here comes after, under its own name
    "n": "n",
    "seeds": "seeds",
    "by_seed": "mean of each seed",
    "choice": "chosen",
    "settings": "settings",
    "provenance": "provenance",
    "chosen_on": "chosen on",
    "score_on_base_classes": "score where chosen",
    "bytes": "memory",
    "replay": "keeps examples",
    "within_budget": "fits the budget",
    "seconds": "time",
}
HIDDEN = ("by_trajectory",)  # as many numbers as there are streams


def facts(table: ResultTable, column: str, cell: TableCell) -> dict[str, str]:
    """What is known about a cell, by name."""
    known = {"seeds": of_column(table, "seeds", column)} | cell.about
    found = {}
    for key in [*FACTS, *(k for k in known if k not in FACTS)]:
        value = known.get(key)
        alone = key == "by_seed" and isinstance(value, list) and len(value) < 2  # it is the mean itself
        if value is not None and key not in HIDDEN and not alone:
            found[FACTS.get(key, key.replace("_", " "))] = _fact(key, value)
    if cell.std is not None:
        found["std"] = spoken(cell.std)
    trained = of_column(table, "training_seconds", column)
    if isinstance(trained, list) and trained and all(isinstance(s, int | float) for s in trained):
        found["training of each seed"] = ", ".join(duration(s) for s in trained)
    return found


def _fact(key: str, value: Any) -> str:
    if key == "bytes":
        return size(value)
    if key.startswith("ci95") and value == 0:  # as older results have it
        return "not known: the means are equal, so there is no spread to measure"
    if key == "choice" and isinstance(value, list):  # without the score of each that was tried
        value = [{k: v for k, v in c.items() if k != "scores"} if isinstance(c, dict) else c for c in value]
    if key == "seconds" and isinstance(value, int | float):
        return duration(value)
    return spoken(value)


def box(view: View, grid: CellGrid, row: str, column: str, name: str) -> Html:
    """What opens when a number is touched."""
    ours, paper = grid.rows[row][column], grid.rows[row].get(PAPER + column)
    lines = {"ours": number(ours, view.digits)}
    if paper is not None:
        lines["paper"] = _printed(paper)
        aimed = view.table.aims_at(column)
        says = words_of(verdict(ours, paper, view.table.lower), view.table.lower) if aimed else RIVAL
        lines["difference"] = f"{signed(ours.mean - paper.mean, view.digits)}, {says}"
    lines |= facts(view.table, column, ours)
    pairs = [piece for key, value in lines.items() for piece in (el("dt", key), el("dd", value))]
    place = " · ".join(part for part in (column, f"{view.table.axis} {row}".strip(), grid.group) if part)
    return el("div", el("strong", place), el("dl", *pairs), id=name, popover=True, class_="box")


def _printed(paper: TableCell) -> str:
    return printed(paper) + (f" (std {spoken(paper.std)})" if paper.std is not None else "")


def every_number(view: View) -> Html:
    """The same as in the boxes, as one long table: for the keyboard, and, when it is unfolded, for paper."""
    own = [(grid, *found) for grid in view.table.grids for found in grid.own()]
    known = [facts(view.table, column, ours) for _, _, column, ours in own]
    shared = {k: v for k, v in known[0].items() if all(part.get(k) == v for part in known)} if len(known) > 1 else {}
    lines = []
    for (grid, row, column, ours), part in zip(own, known, strict=True):
        paper = grid.rows[row].get(PAPER + column)
        place = ", ".join(name for name in (grid.group, row, column) if name)
        cells = [number(ours, view.digits), _printed(paper) if paper is not None else "", _listed(part, shared)]
        lines.append(el("tr", el("th", place, scope="row"), *(el("td", c) for c in cells)))
    heads = [el("th", h, scope="col") for h in (f"{view.table.axis or 'row'}, column", "ours", "paper", "more")]
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *lines), class_="every")
    summary = el("summary", f"Every number with its n, seeds, settings, memory and time ({len(lines)})")
    same = el("p", "All of them: ", _listed(shared, {}), ".") if shared else ""
    return el("details", summary, same, scrolling(table, "every number")) if own else Html("")


def _listed(known: dict[str, str], without: dict[str, str]) -> str:
    return "; ".join(f"{key}: {value}" for key, value in known.items() if key not in without)


def names(table: ResultTable) -> Html:
    """What rows and columns are, those that are known."""
    known = explained(name for grid in table.grids for name in (*grid.columns, *grid.rows))
    pairs = [piece for name, words in known.items() for piece in (el("dt", name), el("dd", words))]
    return el("details", el("summary", "What the names mean"), el("dl", *pairs)) if known else Html("")


def _marked(text: str) -> Html:
    """Plain text in which names stand between backticks."""
    return join(el("code", part) if i % 2 else part for i, part in enumerate(re.split("`([^`]+)`", text)))


def notes(view: View) -> Html:
    """What was tried where the paper's number is not reached."""
    items = [
        el("li", el("strong", name), ": " if name else "", _marked(text), id=f"{view.anchor}-note{i}")
        for i, (name, text) in enumerate(view.table.notes.items(), 1)
    ]
    return el("div", el("h3", "Notes"), el("ol", *items), class_="notes") if items else Html("")
