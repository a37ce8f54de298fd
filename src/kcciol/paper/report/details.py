"""How a table or a figure was measured: its time, commands and settings, folded."""

from __future__ import annotations

from typing import Any

from kcciol.paper.report.formatting import duration, first_few, spoken
from kcciol.paper.report.markup import Html, el, join, scrolling
from kcciol.paper.report.read import records_in


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
        cells = (each, duration(sum(_numbers(spent[column]))) if column in spent else "")
        lines.append(el("tr", el("th", column, scope="row"), *(el("td", c) for c in cells)))
    heads = [el("th", h, scope="col") for h in ("column", "training, each seed, own steps", "measuring, all cells")]
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *lines), class_="every")
    return scrolling(table, "time")


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
