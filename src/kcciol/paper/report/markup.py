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


def scrolling(table: Html, label: str) -> Html:
    """A table in a box of its own, which scrolls, by the keyboard too, when it is wider than the page."""
    return el("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def join(children: Iterable[str], between: str = "") -> Html:
    """One after another."""
    return Html(between.join(c if isinstance(c, Html) else escape(c) for c in children))
