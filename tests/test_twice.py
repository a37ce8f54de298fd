"""Nothing is written twice: no six lines of code stand in two places."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = 6
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def lines_of(text: str) -> list[tuple[int, str]]:
    """Lines that do something, each with its number: without blanks, comments, imports, docstrings, or what only closes
    brackets."""
    tree = ast.parse(text)
    left_out = set[int]()
    for node in ast.walk(tree):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (docstring or isinstance(node, (ast.Import, ast.ImportFrom))):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    words: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT and token.start[0] not in left_out:
            words[token.start[0]].append(token.string)
    lines = ((number, " ".join(found)) for number, found in sorted(words.items()))
    return [(number, line) for number, line in lines if any(map(str.isalnum, line))]


def runs(files: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every run of six lines, and where it begins."""
    for name, text in files.items():
        lines = lines_of(text)
        for i in range(len(lines) - LINES + 1):
            yield tuple(line for _, line in lines[i : i + LINES]), f"{name}:{lines[i][0]}"


def twice(files: Mapping[str, str]) -> list[list[str]]:
    """The places of each run that stands more than once."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for run, place in runs(files):
        places[run].append(place)
    return [found for found in places.values() if len(found) > 1]


def test_no_six_lines_stand_twice() -> None:
    paths = sorted(p for folder in ("src", "benchmarks") for p in (ROOT / folder).rglob("*.py"))
    assert len(paths) > 100
    assert twice({p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in paths}) == []


def test_what_stands_twice_is_found() -> None:
    body = "".join(f"    a{i} = f({i})\n" for i in range(LINES))
    one, other = f"def one():\n    '''Says one.'''\n{body}", f"import os\n\n\ndef other():\n{body}    # more\n"
    assert twice({"one.py": one, "other.py": other}) == [["one.py:3", "other.py:5"]]
    assert twice({"one.py": one, "other.py": other.replace("a3", "b3")}) == []
