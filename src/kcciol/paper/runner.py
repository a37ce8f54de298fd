"""Making what is not there yet: the runner decides what is missing and where it is computed."""

from __future__ import annotations

from kcciol.errors import UserError
from kcciol.paper.executors.inline import make_here
from kcciol.paper.executors.processes import make_in_processes
from kcciol.paper.executors.ray import make_on_cluster
from kcciol.paper.plan import EXPERIMENTS, STUDIES, RunPlan, every_path, groups
from kcciol.paper.store import check, rename_old_cells
from kcciol.paper.study import Bench


def make(plan: RunPlan) -> list[str]:
    """Make what is not there yet; returns the names of groups that failed. What is there is kept, whatever happens."""
    rename_old_cells(plan)
    check(plan)
    # a process that trains can be cut, a function cannot
    several = not plan.ray and (plan.jobs > 1 or plan.until < float("inf"))
    wanted = groups(plan, apart=several)
    if not wanted and not any(path.exists() for path in every_path(plan)):
        raise UserError("Nothing of this is made of these columns and seeds: ask for others, or leave them out.")
    for group in wanted if not plan.ray else ():  # the data are there, or it is refused at once
        if group.columns:
            _ = Bench(STUDIES[group.name], group.columns[0], group.seeds[0], plan.workspace).data
        else:
            EXPERIMENTS[group.name].ready(plan.workspace)
    if plan.ray:
        return make_on_cluster(plan, wanted)
    return make_in_processes(plan, wanted) if several else make_here(plan, wanted)
