"""Making what is not there yet: the runner decides what is missing and where it is computed."""

from __future__ import annotations

from kcciol.errors import UserError
from kcciol.paper.executors.executor import Executor
from kcciol.paper.executors.inline import HERE
from kcciol.paper.executors.processes import PROCESSES
from kcciol.paper.executors.ray import CLUSTER
from kcciol.paper.plan import EXPERIMENTS, RunPlan, groups
from kcciol.paper.store import check


def make(plan: RunPlan) -> list[str]:
    """Make what is not there yet; returns the names of groups that failed. What is there is kept, whatever happens."""
    check(plan)
    executor = executor_of(plan)
    wanted = groups(plan, apart=executor.apart)
    if not wanted and not any(cell.path.exists() for cell in plan.cells()):
        raise UserError("Nothing of this is made of these columns and seeds: ask for others, or leave them out.")
    for group in wanted if executor.here else ():  # the data are there, or it is refused at once
        EXPERIMENTS[group.name].require_data(group.scope(plan))
    return executor.make(plan, wanted)


def executor_of(plan: RunPlan) -> Executor:
    """Where a plan is made."""
    if plan.ray:
        return CLUSTER
    # a process that trains can be cut, a function cannot
    return PROCESSES if plan.jobs > 1 or plan.until < float("inf") else HERE
