"""The groups of a plan one after another in this process: here every cell is measured in the end."""

from __future__ import annotations

from collections.abc import Sequence

from kcciol.engine.stop import Stopped
from kcciol.errors import Busy, UserError
from kcciol.paper.executors.executor import Executor
from kcciol.paper.plan import EXPERIMENTS, Group, RunPlan
from kcciol.paper.progress import is_full, reason, warn


def make_here(plan: RunPlan, groups: Sequence[Group]) -> list[str]:
    """Make groups one after another; the names of those that failed."""
    failed = []
    for group in groups:
        try:
            EXPERIMENTS[group.name].make(group.scope(plan))
        except Stopped:
            raise
        except UserError as error:
            warn(f"{group}: {error}")
            if not isinstance(error, Busy):  # else it will be there when that process is done
                failed.append(str(group))
        except Exception as error:  # one cell's failure must not cost the others
            said = f"{group} failed ({reason(error)})"
            if is_full(error):
                raise UserError(f"{said}; what is made is kept.") from None
            warn(f"{said}.")
            failed.append(str(group))
    return failed


HERE = Executor(make_here)
