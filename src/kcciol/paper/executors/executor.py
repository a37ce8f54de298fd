"""What the runner asks of whatever computes cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kcciol.paper.plan import Group, RunPlan


class Executor(Protocol):
    """Computes the cells of groups, each group in one process, and leaves them in the plan's folder of runs."""

    @property
    def apart(self) -> bool:
        """Whether it wants the larger tables of a column as groups of their own, to be made by several processes."""

    def run(self, plan: RunPlan, groups: Sequence[Group]) -> list[str]:
        """Compute what these groups lack; the names of those that failed. Ends early when the plan's time is up."""
