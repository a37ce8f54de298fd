"""The groups of a plan one after another in this process: here every cell is measured in the end."""

from __future__ import annotations

import errno
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from kcciol.engine.stop import Stopped
from kcciol.errors import Busy, UserError
from kcciol.evaluation.results import RESULT, with_record
from kcciol.files import file_lock
from kcciol.paper.executors.executor import Executor
from kcciol.paper.plan import EXPERIMENTS, STUDIES, Group, RunPlan, cells
from kcciol.paper.study import Cell, Study, Subject, trained_seconds


def make_here(plan: RunPlan, groups: Sequence[Group]) -> list[str]:
    """Make groups one after another; the names of those that failed."""
    failed = []
    for group in groups:
        try:
            make_group(plan, group)
        except Stopped:
            raise
        except UserError as error:
            print(f"{group}: {error}", file=sys.stderr, flush=True)
            if not isinstance(error, Busy):  # else it will be there when that process is done
                failed.append(str(group))
        except Exception as error:  # one cell's failure must not cost the others
            said = f"{group} failed ({reason(error)})"
            if is_full(error):
                raise UserError(f"{said}; what is made is kept.") from None
            print(f"{said}.", file=sys.stderr, flush=True)
            failed.append(str(group))
    return failed


def make_group(plan: RunPlan, group: Group) -> None:
    """All that a group makes."""
    if group.name in EXPERIMENTS:
        EXPERIMENTS[group.name].make(plan.workspace, group.seeds)
    failed: list[UserError] = []
    for column in group.columns:  # one that does not need another that failed is made all the same
        try:
            make_column(group.plan(plan), STUDIES[group.name], column, group.seeds[0])
        except Stopped:
            raise
        except UserError as error:
            failed.append(error)
        except Exception as error:
            failed.append(UserError(f"{column} failed ({reason(error)})."))
            if is_full(error):  # no other could be kept
                break
    if failed:
        kind = Busy if all(isinstance(error, Busy) for error in failed) else UserError
        raise kind(" ".join(dict.fromkeys(map(str, failed))))


def make_column(plan: RunPlan, study: Study, column: str, seed: int) -> None:
    """Every cell of a column that is not there yet."""
    subject = Subject(study, column, seed, plan.workspace)
    failed: list[str] = []
    for path, part, name, cell in cells(plan, study, column, seed):
        if path.exists():
            continue
        _ = subject.representation  # without which nothing can be measured
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock")
        with file_lock(lock) as mine:
            if not mine:  # another process makes it
                continue
            try:
                if not path.exists():  # or has just made it
                    make_cell(path, subject, cell, study.key(part, column, name, cell))
            except UserError as error:
                failed.append(str(error))
            except Exception as error:  # one cell's failure must not cost the others
                if is_full(error):  # but nothing more can be kept
                    raise
                failed.append(reason(error))
            finally:
                lock.unlink(missing_ok=True)
    if failed:
        raise UserError(f"{len(failed)} cells of {column} failed ({'; '.join(dict.fromkeys(failed))})")


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
REFUSED = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)


def is_full(error: Exception) -> bool:
    """Whether the disk takes no more, whatever is made."""
    return isinstance(error, OSError) and error.errno in FULL


def reason(error: Exception) -> str:
    """Why something failed; with a traceback, unless none would help: the disk is full, or the folder another's."""
    if isinstance(error, OSError) and error.errno in (*FULL, *REFUSED):
        return str(error)
    traceback.print_exc()
    return f"{type(error).__name__}: {error}"


def make_cell(path: Path, subject: Subject, cell: Cell, key: dict[str, str]) -> None:
    """Measure one thing and write it down."""
    clock = time.monotonic()
    try:
        result = with_record(cell.run(subject), subject.representation) | {"spec": cell.spec(subject)}
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # other processes need it
    seconds = time.monotonic() - clock
    spent = trained_seconds(subject.study, subject.column, subject.seed, subject.workspace)
    RESULT.write(path, {"cell": key} | result | {"cell_seconds": seconds, "trained_seconds": spent})
    column = f"{key['column']}, seed {subject.seed}"
    print(f"{key['study']}, {column}, {key['part']}, {key['name']}: {seconds:.1f} s", flush=True)


HERE = Executor(make_here)
