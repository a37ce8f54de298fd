"""A results folder as one HTML page, ours beside the paper's numbers; `read` has the contract for the files."""

from __future__ import annotations

from pathlib import Path

from kcciol.atomic import replacing
from kcciol.errors import UserError
from kcciol.report.page import page
from kcciol.report.read import read


def write(folder: Path, out: Path) -> list[str]:
    """Write the page; the warnings about what was left out."""
    if out.suffix not in (".html", ".htm") or out.is_dir():
        raise UserError(f"The report cannot be written to {out}: name a file that ends in .html.")
    if not out.absolute().parent.is_dir():
        raise UserError(f"The file {out} cannot be written: {out.absolute().parent} is not a folder.")
    content, warnings = page(read(folder))
    with replacing(out) as part:
        part.write_bytes(content.encode(errors="replace"))  # JSON may hold halves of characters
    return warnings
