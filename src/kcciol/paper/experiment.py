"""What an experiment is to those who make its cells and write its tables.

There are two kinds: of representations (`representations`), whose columns are trained one by one, and of members that
train side by side (`together`), which is made in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kcciol.paper.plot import Plot
from kcciol.paper.study import Workspace
from kcciol.paper.tables import Found, Result


@dataclass(frozen=True)
class Scope:
    """What is wanted of an experiment."""

    workspace: Workspace
    parts: tuple[str, ...]
    seeds: tuple[int, ...]
    columns: tuple[str, ...] = ()
    """Only these; none means all."""


@dataclass(frozen=True)
class CellFile:
    """A cell that there is to be."""

    path: Path
    part: str
    column: str
    name: str
    read: Callable[[], Result]
    """What lies there; refuses what was made with other settings."""


class Share(NamedTuple):
    """What must be done in one process: a column and those that go on from its phases, or all at once."""

    seeds: tuple[int, ...]
    columns: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    helper: int = 0
    """Above 0: one of several processes that make a column's cells together, once it is trained."""


class Experiment(Protocol):
    """What is made of one data set."""

    @property
    def name(self) -> str: ...

    @property
    def parts(self) -> Collection[str]:
        """Its tables, and what else it can be asked for by name."""

    @property
    def columns(self) -> Collection[str]:
        """What can be asked for alone; nothing where all is made in one go."""

    def folder(self, workspace: Workspace) -> Path:
        """Where its cells lie."""

    def cells(self, scope: Scope) -> Iterator[CellFile]:
        """All cells that there are to be."""

    def shares(self, scope: Scope, apart: bool) -> Iterator[Share]:
        """How what is not there is shared out to processes, the longest first. apart: they may be small."""

    def require_data(self, scope: Scope) -> None:
        """Refuse at once what could not be made, such as for lack of data."""

    def untrained(self, scope: Scope) -> list[str]:
        """The columns for which something is left to train."""

    def root(self, column: str) -> str:
        """The column whose training this one's goes on from."""

    def make(self, scope: Scope) -> None:
        """Make what is not there."""

    def tables(self, found: Mapping[str, Found]) -> dict[str, Any]:
        """Tables of all cells that are there, by part."""

    def draw(self, found: Mapping[str, Found]) -> list[Plot]:
        """Figures of the same."""
