"""What an executor is to the runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kcciol.paper.plan import Group, RunPlan


@dataclass(frozen=True)
class Executor:
    """A place where groups of cells are made."""

    make: Callable[[RunPlan, Sequence[Group]], list[str]]
    """Makes groups; returns the names of those that failed."""
    apart: bool = False
    """Each group is a process of its own, so that groups may be small, and cut."""
    here: bool = True
    """It is this machine, so that data must be here."""
