"""kcciol reproduce: re-make the paper's tables."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from kcciol.cli.terminal import out as terminal
from kcciol.cli.terminal import parse
from kcciol.errors import UserError

TERMINATED = 143  # exit code after SIGTERM


@dataclass(frozen=True)
class ReproduceOptions:
    """Re-make tables of the paper: train what they need, measure it, write them beside the paper's numbers.

    What is there already is not made again; a run that is cut goes on where it was when it is called again. Names: an
    experiment, or all that is made of a data set (sine: of sine functions), or all. With --cells the measurements that
    the tables are made of are kept in OUT/cells (of a rehearsal: OUT/rehearsal/cells), where another machine that makes
    more of a table finds them.
    """

    names: Positional[Annotated[tuple[str, ...], arg(metavar="[NAME ...]")]] = ()
    """table1 to table7, heads, figures, weights, gan; omniglot, mini-imagenet, cifar100, sine or mnist; or all."""
    root: str = ""
    """Where the data lie; by default the folder that the variable KCCIOL_DATA names, else ./data."""
    runs: Path = Path("runs/reproduce")
    """Where representations and measurements are kept (of a rehearsal: runs/rehearsal)."""
    out: Path = Path("results")
    """The folder for the tables (of a rehearsal: runs/rehearsal/results)."""
    preset: Literal["paper", "tiny"] = "paper"
    """tiny: a rehearsal of everything on drawn characters, in minutes on a CPU; its numbers mean nothing."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the representations."""
    columns: tuple[str, ...] = ()
    """Only these representations; none means all."""
    jobs: int = 1
    """Processes at once. On one GPU start CUDA's MPS daemon before, so that they share it instead of taking turns."""
    ray: str = ""
    """Make everything as tasks of the Ray cluster at this address: HOST:PORT, auto, or local for one started here."""
    gpus: float = 1.0
    """With --ray: GPUs of the cluster that a task asks for; 0.5 lets two share one, 0 is for machines without."""
    minutes: float = 1e6
    """Stop after so many minutes; call again to go on."""
    tables: bool = True
    """Write the tables at the end."""
    cells: bool = False
    """Keep the measurements in OUT/cells, for other machines; where some are kept, more are without this flag."""


def reproduce(words: Sequence[str]) -> int:
    """Re-make tables of the paper."""
    from kcciol.engine.ranks import Ranks
    from kcciol.engine.stop import Stopped
    from kcciol.paper import archive, runner
    from kcciol.paper.plan import EXPERIMENTS, INCOMPLETE, PARTS, RunPlan, parts_of
    from kcciol.paper.report.read import read_table
    from kcciol.paper.report.terminal import lines
    from kcciol.paper.study import Workspace
    from kcciol.paper.writing import refuse_rehearsal, write_tables

    options = parse(ReproduceOptions, "reproduce", words)
    if Ranks.here().count > 1:
        raise UserError("torchrun is for kcciol train; kcciol reproduce shares out its work itself: --jobs, or --ray.")
    if not options.names:
        there = [*PARTS, *(part for parts in PARTS.values() for part in parts)]
        raise UserError(f"kcciol reproduce needs the name of an experiment: all, {', '.join(there)}.")
    if options.cells and not options.tables:
        raise UserError("--cells keeps what tables are made of: leave --no-tables out.")
    if options.jobs < 1 or not options.minutes > 0:
        raise UserError("--jobs must be at least 1 and --minutes above 0.")
    if not options.seeds or min(options.seeds) < 0 or len(set(options.seeds)) < len(options.seeds):
        raise UserError("--seeds must be one or more different numbers of 0 or more.")
    if not 0 <= options.gpus < math.inf:
        raise UserError(f"--gpus is {options.gpus}, but must be 0 or more.")
    parts = parts_of(options.names)
    known = {column for name in parts for column in EXPERIMENTS[name].columns}
    if options.columns and (whole := [name for name in parts if not EXPERIMENTS[name].columns]):
        raise UserError(f"{whole[0]} is made in one go: leave --columns out.")
    if wrong := [c for c in options.columns if c not in known]:
        raise UserError(f"There is no representation {wrong[0]!r} here; there are: {', '.join(sorted(known))}.")
    began = time.monotonic()
    tiny, runs, tables = options.preset == "tiny", options.runs, options.out
    if tiny and runs == ReproduceOptions.runs:
        runs = Path("runs/rehearsal")
    if tiny and tables == ReproduceOptions.out:
        tables = runs / "results"
    if tiny and options.tables:
        refuse_rehearsal(tables)
    workspace = Workspace(options.root, runs, tiny)
    until = began + 60 * options.minutes if options.minutes < ReproduceOptions.minutes else math.inf
    plan = RunPlan(workspace, parts, options.seeds, options.columns, options.jobs, until, options.ray, options.gpus)
    wanted = [("--runs", runs), *([("--out", tables)] if options.tables else [])]
    wanted += [("--out", archive.archive_of(plan, tables).workspace.runs / "cells")] if options.cells else []
    before = exit_on_sigterm()
    try:
        with folders(wanted):
            if options.tables and (unused := archive.restore(plan, tables)):
                terminal.print(f"{len(unused)} of the cells that are kept cannot be used: {unused[0]}", soft_wrap=True)
            complete = all(cell.path.exists() for cell in plan.cells())  # then this call costs nothing
            failed = runner.make(plan)
    except Stopped as stopped:
        terminal.print(f"{stopped} Call again to go on.")
        return stopped.exit_code
    except (KeyboardInterrupt, SystemExit) as end:
        if options.tables:  # else it is one process among several
            print("kcciol: interrupted. Call again to go on.", file=sys.stderr)
        return 130 if isinstance(end, KeyboardInterrupt) else TERMINATED
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    left_alone: list[str] = []
    if options.tables:
        archive.restore(plan, tables)  # others may have made some meanwhile
        written, left_alone = write_tables(plan, tables, 0.0 if complete else time.monotonic() - began)
        if others := archive.store(plan, tables, options.cells):
            left_alone.append(f"{len(others)} kept cells are others than the tables' ({others[0]}, for one), and stay.")
        shown = [line for path in written if path.parent == tables for line in (*lines(read_table(path)), "")]
        for line in (*shown, *(f"wrote {path}" for path in written), *left_alone):
            terminal.print(line, soft_wrap=True)  # it may name a file
    for name in failed:
        terminal.print(f"failed: {name}")
    if not failed and (left := sum(not cell.path.exists() for cell in plan.cells())):
        if options.tables:  # of one process among several it means nothing
            terminal.print(f"{left} {'cell is' if left == 1 else 'cells are'} not made yet: call again to go on.")
        return INCOMPLETE
    return 1 if failed else 2 if left_alone else 0


@contextlib.contextmanager
def folders(wanted: Sequence[tuple[str, Path]]) -> Iterator[None]:
    """Folders that can be written to, by their flags; of those that were made, the empty ones go when it is refused."""
    new = [path for _, folder in wanted for path in (folder, *folder.parents) if not path.exists()]
    try:
        for flag, folder in wanted:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                words = f"The folder {folder} cannot be made ({error.strerror}): choose another {flag}."
                raise UserError(words) from None
            if not os.access(folder, os.W_OK):
                raise UserError(f"The folder {folder} is not one you may write to: choose another {flag}.")
        yield
    except UserError:
        for path in new:
            with contextlib.suppress(OSError):  # it is not empty
                path.rmdir()
        raise


def exit_on_sigterm() -> Any:
    """Let SIGTERM end the process as an error would: others may share the GPU. Returns what it did before."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
