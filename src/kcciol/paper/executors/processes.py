"""The groups of a plan as processes on this machine, several at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from kcciol.engine.stop import watch_signals
from kcciol.paper.executors.executor import Executor
from kcciol.paper.plan import INCOMPLETE, Group, RunPlan
from kcciol.paper.progress import say

TRAINING = 3  # groups that train at once: one nearly fills a GPU, so more end no sooner, and all are cut in the middle


def make_in_processes(plan: RunPlan, groups: Sequence[Group]) -> list[str]:
    """Make each group in a process of its own, several at once; the names of groups that failed."""
    waiting = list(groups)
    running: dict[subprocess.Popen[bytes], Group] = {}
    failed: list[Group] = []
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(watch_signals())  # noted, not raised in the middle of a look at a process
        stack.callback(end, running)
        while (waiting or running) and time.monotonic() < plan.until and not stop.signal_number:
            while len(running) < plan.jobs and (group := next_group(plan, waiting, list(running.values()))):
                waiting.remove(group)
                running[subprocess.Popen(command(plan, group, plan.workspace.runs), env=environment(group))] = group
            for process in [p for p in running if p.poll() is not None]:
                group = running.pop(process)
                if process.returncode not in (0, INCOMPLETE):  # what is left, others are making
                    failed.append(group)
                    if failed.count(group) == 1:  # once more: processes that share a GPU can fall by another's fault
                        waiting.append(group)
                    else:  # those of its columns that are not trained need nobody's help
                        waiting = [other for other in waiting if not other.helps(group) or other.trained(plan)]
                waiting = [other for other in waiting if not (other.helper and other.done(plan))]
            time.sleep(0.1)
    if stop.signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    if stop.signal_number:
        sys.exit(128 + stop.signal_number)
    if waiting or running:
        say(f"time is up: {len(waiting)} groups wait, {len(running)} cut; run again to go on")
    return list(dict.fromkeys(str(group) for group in failed if not group.done(plan)))


def end(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Ask processes to end, and wait until they have."""
    for process in processes:
        process.terminate()  # training notes it and leaves a checkpoint
    for process in processes:
        process.wait()


def next_group(plan: RunPlan, waiting: Sequence[Group], running: Sequence[Group]) -> Group | None:
    """The first group that can begin: helpers wait until their column is trained, by others if there are any; and not
    more than a few train at once."""
    full = sum(other.trains(plan) for other in running) >= TRAINING
    for group in waiting:
        if full and group.trains(plan):
            continue
        if not group.columns or group.trained(plan):
            return group
        before = [*running, *(other for other in waiting if not other.helper)] if group.helper else running
        if not any(group.trains_with(other) for other in before):
            return group
    return None


def environment(group: Group) -> dict[str, str]:
    """The environment of its process. On a shared GPU training gives way to helpers, and to what is made in one go:
    there each small step waits for the last one."""
    gives_way = bool(group.columns) and not group.helper
    return os.environ | ({"CUDA_MPS_CLIENT_PRIORITY": "1"} if gives_way else {})  # 1: below the others


def command(plan: RunPlan, group: Group, runs: Path) -> list[str]:
    """The command that makes one group."""
    found = [sys.executable, "-m", "kcciol", "reproduce", *group.parts, "--no-tables"]
    found += ["--runs", str(runs), "--seeds", *map(str, group.seeds)]
    if group.columns:
        found += ["--columns", *group.columns]
    if plan.workspace.root:
        found += ["--root", plan.workspace.root]
    return found + (["--preset", "tiny"] if plan.workspace.tiny else [])


PROCESSES = Executor(make_in_processes, apart=True)
