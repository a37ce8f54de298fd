"""The numbers of a figure: side by side where their names have two parts, else one below the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kcciol.paper.report.formatting import spoken
from kcciol.paper.report.markup import Html, join, line, scrolling_table

NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Sides:
    """Numbers by row and column, and those that belong to neither."""

    rows: list[str]
    columns: list[str]
    values: dict[tuple[str, str], Any]
    alone: dict[str, Any]
    by_row: bool
    """Whether a row, else a column, has numbers of one kind."""


def numbers(found: dict[str, Any]) -> Html:
    """As one or two tables."""
    sides = two_sides(found)
    if sides is None:
        return _list(found)
    alike = [[(row, c) for c in sides.columns] for row in sides.rows]
    if not sides.by_row:
        alike = [list(places) for places in zip(*alike, strict=True)]
    shown: dict[tuple[str, str], str] = {}
    for places in alike:
        shown |= zip(places, even([sides.values[place] for place in places]), strict=True)
    lines = [line(row, [shown[row, c] for c in sides.columns]) for row in sides.rows]
    return join([_list(sides.alone), scrolling_table(["", *sides.columns], lines, "numbers", "numbers")])


def even(values: Sequence[Any]) -> list[str]:
    """Numbers with as many decimals as that which needs most.

    >>> even([39.5, 39.22, 7.0])
    ['39.50', '39.22', '7.00']
    """
    shown = [spoken(value) for value in values]
    if not all(isinstance(value, float) and "e" not in text for value, text in zip(values, shown, strict=True)):
        return shown
    decimals = max(len(text.partition(".")[2]) for text in shown)
    return [f"{value:.{decimals}f}" for value in values]


def _list(found: dict[str, Any]) -> Html:
    lines = [line(name, [spoken(value)]) for name, value in found.items()]
    return scrolling_table([], lines, "numbers", "numbers") if lines else Html("")


def two_sides(found: dict[str, Any]) -> Sides | None:
    """Names such as "ours: error" or "ours, 10 classes", where every first part comes with every second one.

    >>> two_sides({"a: x": 1, "a: y": 2, "a: z": 3, "b: x": 4, "b: y": 5, "b: z": 6}).columns
    ['a', 'b']
    >>> two_sides({"a: x": 1, "b: y": 2})
    """
    at_colon, at_last_comma = [name.partition(": ") for name in found], [name.rpartition(", ") for name in found]
    for cuts in (at_colon, at_last_comma):
        parts = {name: (first, second) for name, (first, cut, second) in zip(found, cuts, strict=True) if cut}
        firsts, seconds = (_in_order(pair[i] for pair in parts.values()) for i in (0, 1))
        if min(len(firsts), len(seconds)) < 2 or len(set(parts.values())) < len(firsts) * len(seconds):
            continue
        aside = len(firsts) < len(seconds)  # the longer side goes down the page
        values = {(pair[::-1] if aside else pair): found[name] for name, pair in parts.items()}
        rows, columns = (seconds, firsts) if aside else (firsts, seconds)
        alone = {name: value for name, value in found.items() if name not in parts}
        return Sides(rows, columns, values, alone, by_row=aside)
    return None


def _in_order(names: Iterable[str]) -> list[str]:
    """Each once; those that differ in their numbers only by these."""
    every = list(dict.fromkeys(names))
    if len({NUMBER.sub("", name) for name in every}) > 1:
        return every
    return sorted(every, key=lambda name: [float(n) for n in NUMBER.findall(name)])
