"""Numbers in the prose of the docs: each names where in results/ it is read, and is held against it.

A number is written `84.0 ± 0.2<!-- table1/200/kcciol -->`: file, then the keys on the way, those of a table from its
rows on. `table1/200/kcciol - anml` is a difference of two columns on the same streams of the same seeds. What has no
interval of its own in the text may leave it out. A number that no file holds says so: `0.99<!-- not in results -->`.

A comparison is written `in every row<!-- all: table1/*/oml-same > table1/*/anml -->`, with the same in place of each
`*`, or `10 to 14<!-- all: table2/*/kcciol - mrcl in 10..14 -->`; `<!-- all but 150, 600: ... -->` leaves some out, of
which it must not hold. `the highest<!-- highest: table1/*/oml of anml, mrcl -->` says that it has the highest mean of
these columns in every row.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from kcciol.paper.report.consolidation import gap

RESULTS = Path(__file__).parents[1] / "results"
CLAIM = re.compile(r"([+−-]?\d[\d.,]*(?: ± \d[\d.]*)?)(?: %)?<!-- ([\w-]+/[^>]*?) -->")
ALL = re.compile(r"<!-- all(?: but ([^:>]+))?:\s([^>]+?) (?:> ([^>]+?)|in (-?[\d.]+?)\.\.(-?[\d.]+)) -->")
HIGHEST = re.compile(r"<!-- highest:\s([^>]+?) of ([^>]+?) -->")
UNKEPT = re.compile(r"[+−-]?\d[\d.,]*<!-- not in results -->")
TABLES = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|arXiv \S+|Python 3\.\d+", re.DOTALL)
UNREAD = re.compile(r"\d+\.\d+")


def mistakes(text: str) -> list[str]:
    """What is wrong with the numbers of a page: not what is in results/, or read from nowhere."""
    prose = TABLES.sub("", text)
    found = []
    for written, place in CLAIM.findall(prose):
        try:
            value = read(place)
        except (KeyError, OSError, TypeError) as error:
            found.append(f"{written}: there is no {place} ({error})")
            continue
        if (said := shown(value, written)) != written.replace("−", "-"):
            found.append(f"{written} of {place} is {said}")
    for but, left, right, low, high in ALL.findall(prose):
        found += wrong_comparison(left, right, low, high, {name.strip() for name in but.split(",")} - {""})
    for best, others in HIGHEST.findall(prose):
        for other in others.split(","):
            found += wrong_comparison(best, f"{best.rpartition('/')[0]}/{other.strip()}", "", "", set())
    read_well = len(ALL.findall(prose)) + len(HIGHEST.findall(prose))
    found += ["a comparison cannot be read"] * (prose.count("<!-- all") + prose.count("<!-- highest") - read_well)
    rest = CODE.sub("", UNKEPT.sub("", HIGHEST.sub("", ALL.sub("", CLAIM.sub("", prose)))))
    return found + [f"{number} is read from nowhere" for number in UNREAD.findall(rest)]


def wrong_comparison(left: str, right: str, low: str, high: str, but: set[str]) -> list[str]:
    """Where it does not hold though it should, and where it does though it is left out."""
    says = f"{left} > {right}" if right else f"{left} in {low}..{high}"
    names = stars(left)
    if len(names) < 2 or not but <= set(names):
        return [f"{says} is said of {', '.join(names) or 'nothing'}"]
    found = []
    for name in names:
        value = read(left.replace("*", name))[0]
        holds = value > read(right.replace("*", name))[0] if right else float(low) <= round(value, 1) <= float(high)
        if holds == (name in but):
            found.append(f"{says} is {holds} of {name}")
    return found


def stars(pattern: str) -> list[str]:
    """What the `*` of a place stands for."""
    name, *keys = pattern.split("/")
    value = load(name)
    for key in keys:
        if "*" in key:
            before, _, after = key.partition("*")
            return [
                k[len(before) : len(k) - len(after)]
                for k in value
                if re.fullmatch(f"{re.escape(before)}.*{re.escape(after)}", k)
            ]
        value = value[key]
    return []


def read(place: str) -> tuple[float, float | None]:
    """A mean and half of its interval, or a number that has none."""
    head, _, last = place.rpartition("/")
    one, minus, other = last.partition(" - ")
    if not minus:
        value = at(place)
        return (value["mean"], value.get("ci95")) if isinstance(value, dict) else (value, None)
    a, b = at(f"{head}/{one}"), at(f"{head}/{other}")
    if not isinstance(a, dict):
        return a - b, None
    if (found := gap(a, b)) is None:
        return a["mean"] - b["mean"], None
    return found.mean, found.half


def at(place: str) -> Any:
    """What lies there."""
    name, *keys = place.split("/")
    value = load(name)
    for key in keys:
        value = value[key]
    return value


@cache
def load(name: str) -> Any:
    """A table's rows, a figure's numbers, or all of another file."""
    path = RESULTS / f"{name}.json"
    if path.exists():
        value = json.loads(path.read_text(encoding="utf-8"))
        return value.get("rows", value)
    return json.loads((RESULTS / "figures" / f"{name}.json").read_text(encoding="utf-8"))["numbers"]


def shown(value: tuple[float, float | None], like: str) -> str:
    """A number with as many digits, and as much of a sign and an interval, as it is written with."""
    mean, half = value
    written, both, interval = like.partition(" ± ")
    sign = "+" if written.startswith("+") else ""
    text = f"{mean:{sign}.{decimals(written)}f}"
    return text + (f" ± {half:.{decimals(interval)}f}" if both and half is not None else "")


def decimals(text: str) -> int:
    return len(text.partition(".")[2])
