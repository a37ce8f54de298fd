"""What all commands share: reading options, writing lines."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from kcciol import config as configs

T = TypeVar("T")
out = Console(highlight=False, markup=False)


def parse(options: type[T], command: str, words: Sequence[str], default: T | None = None) -> T:
    """The options of a command from its words; its own docstring is the help text."""
    arguments: dict[str, Any] = {
        "prog": f"kcciol {command}",
        "args": list(words),
        "description": inspect.getdoc(options),
    }
    if default is not None:
        arguments["default"] = default
    parsed: T = tyro.cli(options, **arguments)
    return parsed


def print_presets() -> None:
    """Every preset with its first line."""
    table = Table.grid(padding=(0, 2))
    for name, what in configs.presets().items():
        table.add_row(f"  {name}", what)
    out.print(table)


def say(line: str) -> None:
    """A line of progress, beside what is piped on."""
    print(line, file=sys.stderr, flush=True)


def word_after(flag: str, words: Sequence[str]) -> str | None:
    """The value of a flag that must be known before the others can be read."""
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word == flag:
            return following
        if word.startswith(flag + "="):
            return word.removeprefix(flag + "=")
    return None
