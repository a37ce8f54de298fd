"""What all commands share: reading options, writing lines."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import inspect
import io
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import tyro
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from kcciol import config as configs
from kcciol.errors import UserError, visible

T = TypeVar("T")
NARROWEST = 60  # columns of a table: in fewer, numbers would be cut, so a narrower terminal breaks its lines


class Terminal(Console):
    """Shows the control characters of names that it prints; those that style its own tables are its own."""

    @property
    def size(self) -> ConsoleDimensions:
        """No narrower than a table; some programs say that they have no columns at all."""
        width, height = super().size
        return ConsoleDimensions(max(width, NARROWEST), height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size

    def print(self, *objects: Any, **options: Any) -> None:
        """A string is one line, whatever is in it and however long: a path must not be broken where it is piped on."""
        if all(isinstance(one, str) for one in objects):
            options.setdefault("soft_wrap", True)
        super().print(*(visible(one) if isinstance(one, str) else one for one in objects), **options)

    def on_broken_pipe(self) -> None:
        """Whoever calls says how a command ends whose reader has left."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            plain = segment.control or segment.text.isprintable()
            yield segment if plain else segment._replace(text=visible(segment.text, keep="\n"))


out = Terminal(highlight=False, markup=False)
flags: dict[str, str] = {}  # of the command that is run, by the keys that a config has for them


def parse(options: type[T], command: str, words: Sequence[str], default: T | None = None, more: str = "") -> T:
    """The options of a command from its words; its own docstring is the help text, and what more there is to say."""
    flags.update(_flags_of(options))
    paragraphs = f"{inspect.getdoc(options)}\n\n{more}".rstrip().split("\n\n")
    width = shutil.get_terminal_size().columns
    arguments: dict[str, Any] = {
        "prog": f"kcciol {command}",
        "args": list(words),
        # tyro joins lines that begin with a letter to those before them
        "description": "\n\n".join(textwrap.fill(part, width, subsequent_indent="  ") for part in paragraphs),
    }
    if default is not None:
        arguments["default"] = default
    said = io.StringIO()
    shows = all(text.isprintable() for text in (*words, *_texts(default)))  # else the help may hold what these do
    with contextlib.redirect_stdout(sys.stdout if shows else said), contextlib.redirect_stderr(io.StringIO()):
        try:
            parsed: T = tyro.cli(options, **arguments)
            return parsed
        except SystemExit as end:
            wrong = bool(end.code)
    if not wrong:  # it was help that was asked for
        if not shows:
            say(said.getvalue().rstrip("\n"))
        raise SystemExit(0)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        tyro.cli(options, **arguments)  # again, as for a file: without a box or colours
    raise UserError(sentence_of(said.getvalue(), command))


_WHOLE, _NUMBER = (rf"\1 is \2, but must be a {kind}" for kind in ("whole number", "number"))


def sentence_of(said: str, command: str) -> str:
    """What the parser says, in parts between rules, in one sentence.

    >>> sentence_of("Value error\\n---\\nError parsing --size: invalid literal for int() with base 10: 'x'\\n", "data")
    "--size is 'x', but must be a whole number (`kcciol data --help` explains it)."
    """
    lines = [line.strip() for line in said.splitlines()]
    parts = [list(part) for rule, part in itertools.groupby(lines, lambda line: set(line) == {"-"}) if not rule]
    what = " ".join(parts[1] if len(parts) > 1 else parts[0]).rstrip(". ")
    what = re.sub(r"^Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)$", _WHOLE, what)
    what = re.sub(r"^Error parsing (\S+): could not convert string to float: (.*)$", _NUMBER, what)
    what = re.sub(r"^Missing value for argument '(\S+)'.*$", r"'\1' needs a value", what)
    what = re.sub(r"^Error parsing (\S+): Could not find valid parse for arguments: (.*)$", r"\1 cannot be \2", what)
    near = [
        line.split()[0] for part in parts for line in part[1:] if part[0].startswith("Perhaps") and line[:2] == "--"
    ][:3]
    maybe = f"; perhaps you meant {' or '.join(near)}" if near else ""
    return f"{what}{maybe} (`kcciol {command} --help` explains it)."


def _texts(value: Any) -> Iterator[str]:
    """All text in settings, which a file may have brought."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _texts(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, (str, Path)):
        yield str(value)


def _flags_of(kind: type, key: str = "", flag: str = "--", top: bool = True) -> Iterator[tuple[str, str]]:
    """Each setting's key in a config, and its flag. The options' own groups of settings have no prefix."""
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            whole = top and name == "config"
            yield from _flags_of(hint, "" if whole else f"{key}{name}.", flag if top else f"{flag}{name}.", False)
        elif top and name == "root":
            yield "data.root", "--root"
        elif not top:
            yield f"{key}{name}", f"{flag}{name}".replace("_", "-")


def with_flags(sentence: str) -> str:
    """What is said of settings to who has typed flags.

    >>> flags["data.train_samples"] = "--data.train-samples"
    >>> with_flags("data.train_samples is 0: see my/data.train_samples.")
    '--data.train-samples is 0: see my/data.train_samples.'
    >>> with_flags("There is no class 'data.train_samples'.")
    "There is no class 'data.train_samples'."
    """
    return re.sub(
        r"(?<![\w./'\"-])[a-z]\w*\.[a-z]\w*|^[a-z]\w*(?= is )", lambda found: flags.get(found[0], found[0]), sentence
    )


def print_presets() -> None:
    """Every preset with its first line."""
    table = Table.grid(padding=(0, 2))
    for name, what in configs.presets().items():
        table.add_row(f"  {name}", what)
    out.print(table)


def say(line: str) -> None:
    """A line of progress, or of what is wrong, beside what is piped on."""
    with contextlib.suppress(OSError):  # nobody reads any more: its terminal has been closed
        print(visible(line, keep="\n"), file=sys.stderr, flush=True)


def word_after(flag: str, words: Sequence[str]) -> str | None:
    """The value of a flag that must be known before the others can be read."""
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word == flag:
            return following
        if word.startswith(flag + "="):
            return word.removeprefix(flag + "=")
    return None
