"""kcciol report: a results folder as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from kcciol.cli.terminal import out, parse, say


@dataclass(frozen=True)
class ReportOptions:
    """Make one HTML page of a results folder: every table and figure in it, ours beside the paper's numbers.

    The page needs nothing but itself: no network, no other files. Files that cannot be read are named in it.
    """

    results: Positional[Path] = Path("results")
    """The folder with table*.json, heads.json, other JSON files of results, and figures/."""
    out: Path = Path("report.html")
    """The HTML file to write."""
    markdown: Annotated[Path | None, arg(metavar="PATH")] = None
    """Also write a short table, ours beside the paper's, to this .md file."""
    picture: Annotated[Path | None, arg(metavar="PATH")] = None
    """Also draw it, to this .png or .svg file."""


def report(words: Sequence[str]) -> int:
    """Make one HTML page of results, ours beside the paper's: kcciol report."""
    options = parse(ReportOptions, "report", words)
    from kcciol.paper.report import write

    for warning in write(options.results, options.out, options.markdown, options.picture):
        say(f"kcciol: {warning}")
    for path in (options.out, options.markdown, options.picture):
        if path is not None:
            out.print(f"wrote {path}")
    return 0
