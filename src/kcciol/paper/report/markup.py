"""HTML in pieces: text is escaped unless it is markup already, so that nothing can be forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Html(str):
    """A piece of HTML: what it holds is meant."""


def el(name: str, *children: str, **attributes: str | bool | None) -> Html:
    """An element; `class_` is the attribute class, True one without a value, None or False none at all.

    >>> el("p", "1 < 2 ", el("b", "ours"), class_="a")
    '<p class="a">1 &lt; 2 <b>ours</b></p>'
    """
    given = ((k.rstrip("_").replace("_", "-"), v) for k, v in attributes.items() if v is not None and v is not False)
    head = "".join(f" {k}" if v is True else f' {k}="{escape(str(v))}"' for k, v in given)
    return Html(f"<{name}{head}>{join(children)}</{name}>")


def scrolling_table(heads: Iterable[str], lines: Iterable[Html], kind: str, label: str) -> Html:
    """A table, perhaps without heads, in a box which scrolls, by the keyboard too, when it is wider than the page.
    Heads are words, or elements already."""
    cells = [head if isinstance(head, Html) else el("th", head, scope="col") for head in heads]
    shown = el("table", el("thead", el("tr", *cells)) if cells else Html(""), el("tbody", *lines), class_=kind)
    return el("div", shown, class_="scroll", tabindex="0", role="region", aria_label=label)


def line(name: str, cells: Iterable[str]) -> Html:
    """A line of a table: its name, and its cells, which are words, or elements already."""
    elements = (cell if isinstance(cell, Html) else el("td", cell) for cell in cells)
    return el("tr", el("th", name, scope="row"), *elements)


def join(children: Iterable[str], between: str = "") -> Html:
    """One after another."""
    return Html(between.join(c if isinstance(c, Html) else escape(c) for c in children))
