"""Results as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from kcciol.paper.report import consolidation
from kcciol.paper.report.facts import flatten, how_measured
from kcciol.paper.report.figure import numbers
from kcciol.paper.report.formatting import first_few
from kcciol.paper.report.markup import Html, el, join
from kcciol.paper.report.read import Figure, Other, Results, ResultTable
from kcciol.paper.report.table import section
from kcciol.paper.report.view import MARKS, aimed, heading, tally, words_of

ABOUT = (
    "kcciol teaches a model new classes online: they arrive one after another, each example is seen once, and nothing "
    "is stored for replay."
)
PAPER_TITLE = "Knowledge Consolidation based Class Incremental Online Learning with Limited Data"
PAPER_LINK = "https://arxiv.org/abs/2106.06795"
PAPER_TABLES = 7
SHORT = re.compile(r"\b([0-9a-f]{7})[0-9a-f]+")  # of a commit
CONSOLIDATION = "what-consolidation-adds"
FEW = 3  # columns that are counted one by one
ROOM = 4 * 2**20  # bytes of images and files in the page, so that all of it stays under 5 MiB


def page(results: Results) -> tuple[str, list[str]]:
    """The whole page, and its warnings; the same results give the same bytes."""
    anchors = _anchors([*(t.name for t in results.tables), *(f"figure-{f.name}" for f in results.figures)])
    added = consolidation.section(results.tables, CONSOLIDATION)
    tables = list(zip(results.tables, anchors, strict=False))
    figures = list(zip(results.figures, anchors[len(tables) :], strict=True))
    room = _Room(ROOM)
    shown = [_figure(figure, anchor, room) for figure, anchor in figures]
    others = [_other(other, room) for other in results.others]
    warnings = [*results.warnings, *room.warnings]
    body = [
        _header(results),
        _warnings(warnings),
        _summary(results.tables, tables),
        _contents(tables, figures, bool(added), bool(others)),
        el("main", added, *(section(table, anchor) for table, anchor in tables), *shown, _others(others)),
    ]
    return _document(body), warnings


def _document(body: Iterable[Html]) -> str:
    style, script = (_file(name) for name in ("style.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # A page that may load nothing and run nothing but its own script, whatever was written into a result.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        el("title", "kcciol: results"),
        el("style", Html(style)),
    ]
    content = el("html", el("head", *head), "\n", el("body", *_lines(body), el("script", Html(script))), lang="en")
    return f"<!DOCTYPE html>\n{content}\n"


def _lines(parts: Iterable[Html]) -> list[str]:
    return [piece for part in parts if part for piece in (part, "\n")]


def _file(name: str) -> str:
    return (resources.files("kcciol.paper.report") / name).read_text(encoding="utf-8")


def _anchors(names: Iterable[str]) -> list[str]:
    """Names that may stand in a link, each once."""
    found: list[str] = []
    for name in names:
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "part"
        while slug in found:
            slug += "-again"
        found.append(slug)
    return found


# --- the top ----------------------------------------------------------------------------------------------------------


def _header(results: Results) -> Html:
    lines = _provenance(results.records)
    pairs = [el("div", el("dt", key), el("dd", value)) for key, value in lines.items() if value]
    link = el("a", PAPER_TITLE, href=PAPER_LINK)
    return el(
        "header",
        el("h1", "Results, ours beside the paper’s"),
        el("p", ABOUT, class_="lead"),
        el("p", "The paper is ", link, " (IJCAI 2021). Every number here was read from a file of results."),
        el("dl", *pairs, class_="record") if pairs else "",
    )


def _provenance(records: list[dict[str, Any]]) -> dict[str, str]:
    """When, on what, and with which versions."""
    days = sorted({str(r["time"])[:10] for r in records})
    hardware, versions = ([r[k] for r in records if isinstance(r.get(k), dict)] for k in ("hardware", "versions"))
    machines = [str(h.get("gpu") or f"CPU with {h.get('cpu_threads')} threads") for h in hardware]
    found = {
        "measured": " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "",
        "hardware": first_few(machines),
    }
    for name in dict.fromkeys(k for v in versions for k in v):
        found[name] = first_few(sorted({str(v[name]) for v in versions if v.get(name) is not None}))
    found["commit"] = first_few(SHORT.sub(r"\1", str(r["commit"])) for r in records if r.get("commit"))
    return found


def _warnings(warnings: list[str]) -> Html:
    if not warnings:
        return Html("")
    items = el("ul", *(el("li", warning) for warning in warnings))
    return el("aside", el("strong", "Not everything could be read"), items, class_="warning", role="alert")


def _summary(tables: list[ResultTable], anchored: list[tuple[ResultTable, str]]) -> Html:
    cards = [_card(table, anchor) for table, anchor in anchored]
    if not cards:
        return Html("")
    keys = [("reached", "as good as the paper or better"), ("within", "worse, but within our 95 % interval")]
    keys += [("missed", "worse, beyond it"), ("unmeasured", "not measured")]
    legend = [el("span", el("span", MARKS.get(kind, "·"), class_=f"chip {kind}"), f" {words}") for kind, words in keys]
    shown = el("p", "The paper’s cells: ", *legend, class_="legend") if any(map(tally, tables)) else ""
    there = {table.name for table in tables}
    missing = [str(i) for i in range(1, PAPER_TABLES + 1) if f"table{i}" not in there]
    said = f"Of the paper’s tables not measured here: {', '.join(missing)}." if len(missing) < PAPER_TABLES else ""
    lacking = el("p", said, class_="legend") if missing and said else ""
    about = el("p", "How many of the numbers that the paper prints for its method are reached:") if shown else ""
    return join([about, el("div", *cards, class_="cards", role="group", aria_label="In short"), shown, lacking])


def _card(table: ResultTable, anchor: str) -> Html:
    columns = aimed(table)
    if not tally(table):
        count = sum(1 for grid in table.grids for _ in grid.own())
        big = el("p", str(count), el("small", " cells"), class_="big")
        parts = [big, el("p", "measured, with no numbers of the paper beside them")]
    elif 1 < len(columns) <= FEW:
        parts = [part for column in columns for part in _fared(table, [column], column)]
    else:
        parts = _fared(table, columns, "reached")
    title = el("h2", el("a", heading(table.name), href=f"#{anchor}"))
    return el("div", title, el("p", table.title, class_="name"), *parts, class_="card")


def _fared(table: ResultTable, columns: list[str], name: str) -> list[Html]:
    """How many of the printed numbers of some columns were reached."""
    found = tally(table, columns)
    kinds = [kind for kind in (*MARKS, "unmeasured") if found[kind]]
    count = el("b", f"{found['reached']} of {sum(found.values())}")
    big = el("p", count, el("small", f" {name}"), class_="big")
    bar = el("div", *(el("i", class_=kind, style=f"flex-grow:{found[kind]}") for kind in kinds), class_="bar")
    return [big, bar, el("p", join((_count(found[kind], kind, table.lower) for kind in kinds), " "))]


def _count(count: int, kind: str, lower: bool) -> Html:
    """A chip, whose words are for those who cannot see its mark."""
    words = words_of(kind, lower)
    word = el("span", f" {words}", class_="unseen")
    return el("span", f"{MARKS.get(kind, '·')} {count}", word, class_=f"chip {kind}", title=f"{count} {words}")


def _contents(
    tables: list[tuple[ResultTable, str]], figures: list[tuple[Figure, str]], added: bool, others: bool
) -> Html:
    items = [("What consolidation adds", CONSOLIDATION)] if added else []
    items += [(f"{heading(t.name)}: {t.title}", anchor) for t, anchor in tables]
    items += [(figure.title, anchor) for figure, anchor in figures]
    items += [("Other files", "others")] if others else []
    links = [el("li", el("a", name, href=f"#{anchor}")) for name, anchor in items]
    return el("nav", el("h2", "Contents"), el("ol", *links), aria_label="Contents")


# --- the rest ---------------------------------------------------------------------------------------------------------


class _Room:
    """What may still be put into the page."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.warnings: list[str] = []

    def embed(self, name: str, data: bytes, kind: str) -> str | None:
        """A link that holds the data itself; none, and a warning, when there is no room for it."""
        link = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        if len(link) > self.left:
            self.warnings.append(f"{name} is too large to be put into this page.")
            return None
        self.left -= len(link)
        return link


def _figure(figure: Figure, anchor: str, room: _Room) -> Html:
    link = room.embed(f"The image of figures/{figure.name}.json", figure.image, figure.kind) if figure.image else None
    image = Html(str(el("img", src=link, alt=figure.title)).removesuffix("</img>")) if link else ""
    history = figure.about.get("provenance")
    notes = [f"‡ {line}." for line in history] if isinstance(history, list) else []
    said = " ".join(filter(None, [figure.caption, *notes]))
    caption = el("figcaption", said) if said else ""
    shown = el("figure", image, caption, class_="picture")
    beside = el("div", shown, el("div", numbers(figure.numbers)), class_="beside")
    return el("section", el("h2", figure.title), beside, how_measured(figure.about), id=anchor)


def _others(others: list[Html]) -> Html:
    if not others:
        return Html("")
    about = el("p", "Files that hold other results: their numbers, how they came about, and the file itself.")
    return el("section", el("h2", "Other files"), about, *others, id="others")


def _other(other: Other, room: _Room) -> Html:
    value = other.value if isinstance(other.value, dict) else {}
    link = room.embed(other.name, other.text, "application/json")
    parts: list[Html] = []
    if link:
        parts.append(
            el("p", el("a", f"save {other.name}", href=link, download=other.name), f" ({len(other.text) / 1e3:.1f} kB)")
        )
    plain = {k: v for k, v in value.items() if isinstance(v, int | float | str) and k not in ("seed", "title")}
    for name, part in (("numbers", plain), ("config", value.get("config")), ("record", value.get("record"))):
        if part:
            parts += [el("h4", name), el("pre", "\n".join(f"{k} = {v}" for k, v in flatten(part).items()))]
    title = value.get("title")
    summary = join([el("code", other.name), f" {title}" if isinstance(title, str) else ""])
    return el("details", el("summary", summary), *parts)
