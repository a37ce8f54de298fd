"""All families, several at a time, each in a process of its own that may be cut and started again."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from kcciol.engine.stop import Stopped, watch_signals
from kcciol.errors import UserError
from kcciol.paper.consolidation.encoder_family import EncoderFamily
from kcciol.paper.consolidation.encoder_plan import EncoderSetting
from kcciol.paper.consolidation.family import Family
from kcciol.paper.consolidation.plan import SETTINGS, Setting
from kcciol.paper.consolidation.results import NAME, write_results
from kcciol.paper.progress import say, warn

FAMILIES: dict[type[Setting], Callable[..., Family]] = {Setting: Family, EncoderSetting: EncoderFamily}


@dataclass(frozen=True)
class Wanted:
    """What is to be made, where, and how long."""

    out: Path
    settings: tuple[Setting, ...] = tuple(SETTINGS.values())
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "auto"
    jobs: int = 1
    seconds: float = float("inf")
    root: str = ""

    def families(self) -> list[Family]:
        """The longest first: those of the first reset."""
        found = [
            FAMILIES[type(one)](one, reset, seed, self.out, self.device, self.root)
            for one in self.settings
            for seed in self.seeds
            for reset in one.resets
        ]
        return sorted(found, key=lambda family: family.setting.resets.index(family.reset))


def make(wanted: Wanted) -> bool:
    """Make what is not there, and write NAME whenever a family is done; whether nothing is missing in the end."""
    if wanted.jobs < 1:
        raise UserError(f"--jobs is {wanted.jobs}, but must be at least 1.")
    families = wanted.families()
    wanted.out.mkdir(parents=True, exist_ok=True)
    waiting = [family for family in families if not family.complete]
    for one in {family.setting.name: family for family in waiting}.values():
        one.require_images()
    until, running = time.monotonic() + wanted.seconds, dict[SpawnProcess, Family]()
    context, failed = multiprocessing.get_context("spawn"), list[str]()
    with watch_signals() as stop:
        while (waiting or running) and time.monotonic() < until and not stop.signal_number:
            while waiting and len(running) < wanted.jobs:
                family = waiting.pop(0)
                process = context.Process(target=make_family, args=(family,))
                process.start()
                running[process] = family
            for process in [process for process in running if not process.is_alive()]:
                family = running.pop(process)
                failed += [str(family)] * bool(process.exitcode)
                write_results(wanted.out)
            time.sleep(0.2)
        _end(list(running))
    write_results(wanted.out)
    for name in failed:
        warn(f"{name}: failed; see above, and run again to go on.")
    missing = [family for family in families if not family.complete]
    say(f"{len(families) - len(missing)} of {len(families)} families are made: {wanted.out / NAME}")
    return not missing


def make_family(family: Family) -> None:
    """One family, in a process of its own: its nets are too small for several threads."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        family.make()
    except Stopped as stopped:
        raise SystemExit(stopped.exit_code) from None
    except UserError as error:
        warn(f"{family}: {error}")
        raise SystemExit(1) from None


def _end(processes: Sequence[SpawnProcess]) -> None:
    """Ask processes to end, and wait until they have: training notes it and leaves a checkpoint."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(60)
        process.kill()
