"""What trials of robustness share: options, findings, limits of time and memory, and small things to try."""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kcciol.config import Config, preset
from kcciol.paper.presets import regression_preset
from kcciol.paper.sine.settings import RegressionConfig
from kcciol.serialization import from_dict, to_dict

Part = Literal["learners", "checkpoints", "commands", "threads"]
WIDTH = 6
SMALL = {"reserve": 3, "slots": 5, "replay": 2, "units": 7, "chunk": 4, "epochs": 2, "draws": 2, "members": 2}
SMALL |= {"tune_steps": 2, "recent": 3, "anchor_steps": 2, "restarts": 2}


@dataclass(frozen=True)
class Options:
    out: Path = Path("results/robustness.json")
    """The file to write; what it holds of the same settings already is gone on with."""
    parts: tuple[Part, ...] = ("learners", "checkpoints", "commands", "threads")
    """What to try."""
    files: int = 20_000
    """Mutated files of learners, and as many of training."""
    commands: int = 1_000
    """Mutated command lines."""
    threads: int = 8
    """Threads that learn at once."""
    learns: int = 1_000
    """Examples that each of them learns."""
    seconds: float = 2.0
    """The longest that a file may take; a command that takes longer is asked to end."""
    mebibytes: int = 1024
    """The most memory that a file or a command may take."""
    first: int = 0
    """The number of the first mutant."""
    seed: int = 0
    """Another seed is other mutants."""


@dataclass
class Findings:
    """What came of a part."""

    done: int = 0
    outcomes: dict[str, int] = dataclasses.field(default_factory=dict)
    slowest_s: float = 0.0
    slowest: str = ""
    largest_mib: float = 0.0
    largest: str = ""
    faults: list[str] = dataclasses.field(default_factory=list)

    def add(self, name: str, outcome: str, seconds: float, mebibytes: float, fault: str = "") -> None:
        """One more mutant; fault says what was wrong, if anything."""
        self.done += 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if seconds > self.slowest_s:
            self.slowest_s, self.slowest = round(seconds, 3), name
        if mebibytes > self.largest_mib:
            self.largest_mib, self.largest = round(mebibytes, 1), name
        if fault and len(self.faults) < 100:
            self.faults.append(f"{name}: {fault}")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.contextmanager
def limits(mebibytes: int) -> Iterator[None]:
    """No more memory than so much beyond what there is: what would take more is a fault."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        now = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + mebibytes * 2**20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Whatever takes much longer than it may is ended."""

    def ring(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def training_config() -> Config:
    """A run of a second."""
    small: dict[str, Any] = {"size": 16, "base_classes": 6, "novel_classes": 2, "samples": 8, "train_samples": 6}
    config = to_dict(preset("quickstart"))
    config["data"] |= small
    config["net"] |= {"channels": 3, "strides": [2, 2]}
    config["trajectory"] |= {"classes": 2, "support": 2, "remember": 4}
    config["evaluation"] |= {"classes": [2], "trajectories": 2, "search_trajectories": 1}
    config["evaluation"] |= {"train_samples": 4, "test_samples": 2, "rates": [0.01]}
    for number in (1, 2, 3):
        config[f"phase{number}"]["steps"] = 3
    config["engine"] |= {"device": "cpu", "checkpoint_every": 2}
    return from_dict(Config, config)


def waves_config() -> RegressionConfig:
    """The same for sine functions."""
    config = to_dict(regression_preset("sine"))
    config["sine"] |= {"functions": 4, "novel": 4, "slots": 2, "batches": 2, "batch": 2, "query": 2}
    config["net"] |= {"width": 4, "features": 5, "theta": 2, "W": 2}
    for number in (1, 2, 3):
        config[f"phase{number}"]["steps"] = 2
    return from_dict(RegressionConfig, config)
