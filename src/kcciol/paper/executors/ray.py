"""The groups of a plan as tasks of a Ray cluster: how a laboratory with several machines makes the whole paper.

Each task runs the same command that a process here would run, on whichever machine has room, and sends back the cells
that it made; representations stay where they were trained, in a temporary folder or the one KCCIOL_TASK_RUNS names.
The data must lie in the same folder on every machine as here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcciol.config import DataConfig
from kcciol.data import locate
from kcciol.errors import UserError
from kcciol.files import write_text
from kcciol.paper.executors.executor import Executor
from kcciol.paper.executors.processes import command
from kcciol.paper.plan import INCOMPLETE, Group, RunPlan
from kcciol.paper.progress import say

PATIENCE = 5.0  # seconds for the cluster to answer
JOINING = 60.0  # seconds to become a part of it
REFUSED = 2  # exit code: what lies there was made with other settings, and is none of this plan's


def make_on_cluster(plan: RunPlan, groups: Sequence[Group]) -> list[str]:
    """Hand out tasks and keep the cells that come back; the names of groups that failed."""
    ray = _connect(plan.ray)
    if plan.gpus > float(ray.cluster_resources().get("GPU", 0)):
        ray.shutdown()
        raise UserError(
            f"Each task asks for {plan.gpus:g} GPU, which this cluster does not have: choose another --gpus."
        )
    root = Path(locate(DataConfig(root=plan.workspace.root)).root).absolute()  # a task runs in a folder of its own
    there = replace(plan, workspace=replace(plan.workspace, root=str(root)))
    task = ray.remote(num_cpus=1, num_gpus=plan.gpus, max_retries=1)(run_group)
    waiting: dict[Any, Group] = {}
    failed: list[str] = []
    try:
        for group in groups:
            missing = [str(p.relative_to(plan.workspace.runs)) for p in group.paths(plan) if not p.exists()]
            waiting[task.remote(there, group, missing)] = group
        while waiting and time.monotonic() < plan.until:
            done, _ = ray.wait(list(waiting), timeout=1.0)
            for reference in done:
                group = waiting.pop(reference)
                try:
                    code, made, said = ray.get(reference)
                except Exception as error:  # the machine is gone: the others' cells are not
                    code, made, said = 1, {}, str(error)
                _keep(plan.workspace.runs, made)
                say(f"{group}: {len(made)} cells")
                if code not in (0, INCOMPLETE):
                    failed.append(str(group))
                    for line in said[-2000:].splitlines():
                        say(line)
        if waiting:
            say(f"time is up: {len(waiting)} groups are not done; run again to go on")
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        ray.shutdown()
    return failed


def run_group(plan: RunPlan, group: Group, wanted: Sequence[str]) -> tuple[int, dict[str, str], str]:
    """On a machine of the cluster: the exit code, the cells by their place under the runs folder, what was printed."""
    runs = Path(os.environ.get("KCCIOL_TASK_RUNS") or Path(tempfile.gettempdir()) / "kcciol-reproduce")
    if plan.workspace.tiny:
        runs = runs.with_name(f"{runs.name}-rehearsal")
    done = subprocess.run(command(plan, group, runs), capture_output=True, text=True, check=False)
    there = [] if done.returncode == REFUSED else [name for name in wanted if (runs / name).exists()]
    made = {name: (runs / name).read_text(encoding="utf-8") for name in there}
    return done.returncode, made, done.stdout[-4000:] + done.stderr[-4000:]


def _keep(runs: Path, made: dict[str, str]) -> None:
    for name, text in made.items():
        path = runs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)


def _connect(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs Ray: run `pip install 'kcciol[ray]'`.") from None
    host, _, port = address.removeprefix("ray://").partition(":")
    if address not in ("local", "auto"):
        if not host or not port.isdigit():
            raise UserError(f"--ray is {address!r}, but must be HOST:PORT, ray://HOST:PORT, auto or local.")
        try:
            socket.create_connection((host, int(port)), PATIENCE).close()
        except OSError as error:
            raise UserError(f"The Ray cluster at {address} does not answer ({error}): is it up, is that it?") from None
        _try_joining(address)
    try:
        ray.init(address=None if address == "local" else address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"The Ray cluster at {address} cannot be used ({first}).") from None
    return ray


def _try_joining(address: str) -> None:
    """What answers there may be something else, and Ray would wait for its word for ever: another process tries."""
    words = [sys.executable, "-c", "import ray, sys; ray.init(sys.argv[1], log_to_driver=False)", address]
    try:
        subprocess.run(words, capture_output=True, timeout=JOINING, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"What answers at {address} does not behave as a Ray cluster does: is that its address?"
        ) from None


CLUSTER = Executor(make_on_cluster, here=False)
