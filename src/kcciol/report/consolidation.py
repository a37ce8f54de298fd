"""What consolidation adds: the method beside its own phases, and beside as many steps without its two terms."""

from __future__ import annotations

from collections.abc import Iterable

from kcciol.report.chart import numeric, overlay
from kcciol.report.markup import Html, el
from kcciol.report.pairs import Gap, gap
from kcciol.report.read import METHOD, PAPER, Cell, Grid, Table
from kcciol.report.words import digits_of, mean_and_interval, signed

CONTROL = "control"
STAGES = {"kcciol-phase1": "phase 1", "kcciol-phase2": "phase 2", METHOD: "phase 3", CONTROL: "control"}
KINDS = {"kcciol-phase1": "one", "kcciol-phase2": "two", METHOD: "ours", CONTROL: "control"}  # of lines
KINDS[PAPER + METHOD] = "paper"
ABOUT = (
    "Phase 1 is meta-learning alone. Phase 2 goes on with the l1 term, phase 3 with the constraint that holds what is "
    "important: its end is kcciol. The control takes the steps of phases 2 and 3, at their rates, without either term."
)
HOW = (
    "Differences are on the same streams, ± the 95 % interval over these (over seeds, where there are three). Coloured "
    "is what it leaves zero out of and all seeds agree on: green where kcciol is better, red where it is worse."
)


def section(tables: Iterable[Table], anchor: str) -> Html:
    """A panel for each table that has both the method and the control; nothing without one."""
    panels = [_panel(table, table.grids[0]) for table in tables if has(table)]
    if not panels:
        return Html("")
    named = STAGES | {PAPER + METHOD: "kcciol, the paper’s"}
    keys = [el("span", el("i", class_=f"key {KINDS[c]}"), f" {name}") for c, name in named.items()]
    return el(
        "section",
        el("h2", "What consolidation adds"),
        el("p", ABOUT),
        el("p", HOW),
        el("p", *keys, class_="legend"),
        el("div", *panels, class_="stages"),
        id=anchor,
    )


def has(table: Table) -> bool:
    """Whether a table tells."""
    grid = table.grids[0]
    both = any({METHOD, CONTROL} <= set(cells) for cells in grid.rows.values())
    return len(table.grids) == 1 and both and bool(numeric(grid))


def _panel(table: Table, grid: Grid) -> Html:
    columns = [c for c in STAGES if c in grid.columns]
    drawn = {c: KINDS[c] for c in (PAPER + METHOD, *columns) if c in grid.columns}
    rivals = [c for c in columns if c not in (METHOD, "kcciol-phase2")]
    digits = digits_of(cell for cells in grid.rows.values() for cell in cells.values())
    heads = [table.axis or "row", *(STAGES[c] for c in columns), *(f"kcciol − {STAGES[c]}" for c in rivals)]
    lines = [
        el("tr", el("th", row, scope="row"), *_numbers(cells, columns, digits), *_gaps(table, cells, rivals, digits))
        for row, cells in grid.rows.items()
        if METHOD in cells
    ]
    names = [el("th", name, scope="col") for name in heads]
    shown = el("table", el("thead", el("tr", *names)), el("tbody", *lines), class_="cells")
    better = " (lower is better)" if table.lower else ""
    return el(
        "div",
        el("h3", table.title.split(",")[0]),
        el("p", f"{table.metric}{better}", class_="about"),
        el("div", overlay(grid, drawn, digits, table.lower), class_="panel"),
        el("div", shown, class_="scroll", tabindex="0", role="region", aria_label=f"{table.title}, by phase"),
    )


def _numbers(cells: dict[str, Cell], columns: Iterable[str], digits: int) -> list[Html]:
    return [el("td", mean_and_interval(cells[c], digits)[0] if c in cells else "") for c in columns]


def _gaps(table: Table, cells: dict[str, Cell], rivals: Iterable[str], digits: int) -> list[Html]:
    found = [gap(cells[METHOD].about, cells[c].about) if c in cells else None for c in rivals]
    return [el("td", _gap(one, table.lower, digits)) if one is not None else el("td") for one in found]


def _gap(found: Gap, lower: bool, digits: int) -> Html:
    better = -found.sign if lower else found.sign
    digits = digits if digits == 1 else digits + 2
    seeds = "of each seed: " + ", ".join(signed(each, digits) for each in found.by_seed)
    words = f"{signed(found.mean, digits)} ± {found.half:.{digits}f}"
    return el("span", words, class_=f"chip {('rival', 'reached', 'missed')[better]}", title=seeds)
