"""All there is to know about a number, in the box that opens at it and in a list below its table, and about how a table
or a figure was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kcciol.paper.formats import PAPER
from kcciol.paper.report.formatting import duration, first_few, number, printed, signed, size, spoken
from kcciol.paper.report.markup import Html, el, join, line, scrolling_table
from kcciol.paper.report.read import CellGrid, ResultTable, TableCell, records_in, verdict
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
COLUMNS = {  # of tables alone; representations and learners say themselves what they are
    "scratch": "all of a random network learns online",
    "kcciol": "the method, with the settings of our preset",
    "kcciol-paper": "the method, with the printed settings",
    "kcciol-phase1": "kcciol where its phase 1 ends",
    "kcciol-phase2": "kcciol where its phase 2 ends",
    "kcciol-o": "kcciol, but phase 3 holds all parameters instead of the important half",
    "kcciol-o-plain": "kcciol-o, but without the l1 term in phase 2",
    "standard": "a supervised network, all of which learns online",
    "pretraining": "a supervised network, of which the head learns",
}
ENDS = {
    "-first": "with first-order gradients",
    "-same": "with the trajectories and steps of kcciol",
    " + ncm": "with class means as the head; pixels + ncm and untrained + ncm are floors",
    " + gaussian": "with a Bayesian Gaussian for each class as the head",
}


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
        lines.append(line(place, cells))
    heads = (f"{view.table.axis or 'row'}, column", "ours", "paper", "more")
    summary = el("summary", f"Every number with its n, seeds, settings, memory and time ({len(lines)})")
    same = el("p", "All of them: ", _listed(shared, {}), ".") if shared else ""
    return el("details", summary, same, scrolling_table(heads, lines, "every", "every number")) if own else Html("")


def _listed(known: dict[str, str], without: dict[str, str]) -> str:
    return "; ".join(f"{key}: {value}" for key, value in known.items() if key not in without)


def explained(names: Iterable[str]) -> dict[str, str]:
    """Words for those of the names that are known, and for how names end.

    >>> explained(["lambda0", "mrcl-same", "what"])["-same"]
    'with the trajectories and steps of kcciol'
    """
    from kcciol.learners import LEARNERS, card_of
    from kcciol.meta.methods import REPRESENTATIONS

    methods = {name: method.what for name, method in REPRESENTATIONS.items()}
    known = methods | {name: card_of(name).what for name in LEARNERS.ours} | COLUMNS
    every = list(dict.fromkeys(names))
    found = {name: known[name] for name in every if name in known}
    return found | {end: words for end, words in ENDS.items() if any(name.endswith(end) for name in every)}


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


# --- time, commands and settings --------------------------------------------------------------------------------------


def how_measured(about: dict[str, Any]) -> Html:
    """Time and settings: what all columns share once, then what each has of its own."""
    parts = []
    trained, spent = (about.get(k) for k in ("training_seconds", "seconds"))
    if isinstance(trained, dict) or isinstance(spent, dict):
        parts.append(_times(trained if isinstance(trained, dict) else {}, spent if isinstance(spent, dict) else {}))
    if calls := _calls(about.get("device_seconds")):
        parts.append(el("p", f"Calls that wrote it, perhaps with others of its data set: {calls}."))
    commands = first_few(str(r.get("command")) for r in records_in(about) if r.get("command"))
    if commands:
        parts.append(el("p", "Commands: ", el("code", commands)))
    settings = about.get("settings")
    if isinstance(settings, dict):
        parts.append(_settings(settings))
    return el("details", el("summary", "How it was measured: time and settings"), *parts) if parts else Html("")


def _times(trained: dict[str, Any], spent: dict[str, Any]) -> Html:
    lines = []
    for column in dict.fromkeys([*trained, *spent]):
        seconds = list(_numbers(trained.get(column)))
        each = ", ".join(duration(s) for s in seconds)
        lines.append(line(column, [each, duration(sum(_numbers(spent[column]))) if column in spent else ""]))
    heads = ("column", "training, each seed, own steps", "measuring, all cells")
    return scrolling_table(heads, lines, "every", "time")


def _calls(log: Any) -> str:
    """How long each call took, and how many processes it had."""
    entries = [entry for entry in log if isinstance(entry, dict)] if isinstance(log, list) else []
    known = [(e["seconds"], e.get("jobs")) for e in entries if isinstance(e.get("seconds"), int | float)]
    return "; ".join(f"{duration(s)}{f', --jobs {jobs}' if jobs else ''}" for s, jobs in known)


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [x for v in value for x in _numbers(v)]
    return [float(value)] if isinstance(value, int | float) else []


def _settings(settings: dict[str, Any]) -> Html:
    flat = {column: flatten(value) for column, value in settings.items()}
    if not all(isinstance(value, dict) for value in settings.values()):
        return el("pre", "\n".join(f"{k} = {v}" for k, v in flatten(settings).items()))
    first = next(iter(flat.values()), {})
    shared = {k: v for k, v in first.items() if all(part.get(k) == v for part in flat.values())}
    blocks = [("all columns" if len(flat) > 1 else next(iter(flat), ""), shared)]
    blocks += [(c, {k: v for k, v in part.items() if k not in shared}) for c, part in flat.items()]
    return join(
        el("div", el("h4", name), el("pre", "\n".join(f"{k} = {v}" for k, v in values.items())))
        for name, values in blocks
        if values
    )


def flatten(value: Any, name: str = "") -> dict[str, str]:
    """Nested settings as lines.

    >>> flatten({"net": {"channels": 32, "strides": [2, 1]}})
    {'net.channels': '32', 'net.strides': '2, 1'}
    """
    if not isinstance(value, dict):
        return {name: spoken(value)}
    return {k: v for key, part in value.items() for k, v in flatten(part, f"{name}.{key}" if name else key).items()}
