"""The page as a tree of elements, to look things up in."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from kcciol.paper.report import write

VOID = ("meta", "img")


class Node:
    """An element of the page."""

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Node | str] = []

    @property
    def text(self) -> str:
        """What it says, without what is in closed boxes."""
        return " ".join(self._raw().split())

    def _raw(self) -> str:
        parts = (c if isinstance(c, str) else "" if "popover" in c.attributes else c._raw() for c in self.children)
        return "".join(parts)

    def all(self, tag: str, kind: str = "") -> list[Node]:
        """The elements below it, of a tag and perhaps a class."""
        found = []
        for child in self.children:
            if isinstance(child, Node):
                if child.tag == tag and (not kind or kind in (child.attributes.get("class") or "").split()):
                    found.append(child)
                found += child.all(tag, kind)
        return found

    def by_id(self, name: str) -> Node:
        (found,) = [n for tag in ("section", "div", "li") for n in self.all(tag) if n.attributes.get("id") == name]
        return found


class Parser(HTMLParser):
    """A tree; elements must be closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(text: str) -> Node:
    parser = Parser()
    parser.feed(text)
    parser.close()
    assert len(parser.open) == 1
    return parser.open[0]


def made(folder: Path) -> Node:
    write(folder, folder.parent / "report.html")
    return parse((folder.parent / "report.html").read_text(encoding="utf-8"))


def folder_of(tmp_path: Path, **files: Any) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def cells(section: Node) -> dict[tuple[str, str], Node]:
    """The cells of a section's tables by row and column, also where a table lies on its side."""
    found: dict[tuple[str, str], Node] = {}
    for table in section.all("table", "cells"):
        names = [th.text for th in table.all("thead")[0].all("th")]
        aside = names[0].startswith("column, by ")
        for line in table.all("tbody")[0].all("tr"):
            row = line.all("th")[0].text
            for column, td in zip(names[1:], line.all("td"), strict=True):
                found[(column, row) if aside else (row, column)] = td
    return found


def chips(td: Node) -> list[tuple[str, str]]:
    return [(chip.text, (chip.attributes["class"] or "").split()[1]) for chip in td.all("span", "chip")]
