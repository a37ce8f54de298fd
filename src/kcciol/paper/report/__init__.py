"""A results folder as one HTML page, ours beside the paper's numbers; `read` has the contract for the files."""

from __future__ import annotations

from pathlib import Path

from kcciol.files import replacing, require_file
from kcciol.paper.report.page import page
from kcciol.paper.report.read import read
from kcciol.paper.report.summary import PICTURES, markdown, picture


def write(folder: Path, out: Path, summary: Path | None = None, drawing: Path | None = None) -> list[str]:
    """Write the page, and perhaps the summary in Markdown and as a picture; the warnings about what was left out."""
    for path, endings in ((out, (".html", ".htm")), (summary, (".md",)), (drawing, PICTURES)):
        if path is not None:
            require_file(path, *endings)
    results = read(folder)
    text = markdown(results) if summary is not None else ""
    content, warnings = page(results)
    if drawing is not None:  # first: matplotlib may be missing
        picture(results, drawing)
    if summary is not None:
        _put(summary, text + "\n")
    _put(out, content)
    return warnings


def _put(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_bytes(text.encode(errors="replace"))  # JSON may hold halves of characters
