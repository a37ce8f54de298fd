"""A results folder as one HTML page, ours beside the paper's numbers; `read` has the contract for the files."""

from __future__ import annotations

from pathlib import Path

from kcciol.atomic import replacing, require_file
from kcciol.report.page import page
from kcciol.report.read import read


def write(folder: Path, out: Path) -> list[str]:
    """Write the page; the warnings about what was left out."""
    require_file(out, ".html", ".htm")
    content, warnings = page(read(folder))
    with replacing(out) as part:
        part.write_bytes(content.encode(errors="replace"))  # JSON may hold halves of characters
    return warnings
