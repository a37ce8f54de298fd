"""The training loop, whole: phases and their steps, with metrics, checkpoints, signals and divergence.

What is trained is one network that classifies (`kcciol.meta.phases`), an ensemble of small ones
(`kcciol.paper.ensemble.train`) or an encoder (`kcciol.recipes.train`): a `Training` makes a `Phase`, and that a
`PhaseStep`.
"""

from __future__ import annotations

import time
from typing import Protocol

import torch
from torch import Tensor

from kcciol.config import EngineConfig
from kcciol.engine.device import precision
from kcciol.engine.graph import Step, capture
from kcciol.engine.progress import TrainingBar, names_of
from kcciol.engine.ranks import ALONE, Ranks
from kcciol.engine.run_folder import RunFolder
from kcciol.engine.stop import Stopped, StopRequest, watch_signals
from kcciol.errors import UserError

BLOCK = 250  # steps that are drawn together, and whose metrics are kept on the device
CHUNK = 50  # steps on a GPU between two looks of the host at the metrics and the signals


class Diverged(UserError):
    """A number is no longer finite."""


class PhaseStep(Step, Protocol):
    """A step of meta-training: it draws its trajectories and leaves its metrics."""

    metrics: Tensor  # (BLOCK, ...), one row a step

    def load_block(self, block: int, slot: int) -> None:
        """Stand before the step number `slot` of a block."""


class Phase(Protocol):
    """What is trained in a phase, and where it is kept."""

    number: int
    steps: int
    window: list[Tensor]  # metrics (n, ...) of the steps since the last line of the log
    keeps_window: bool  # in its checkpoints; else a line is logged before each

    @property
    def step(self) -> PhaseStep: ...

    def watch(self, metrics: Tensor, done: int) -> float:
        """The loss to show of the last steps' metrics (n, ...); `Diverged` where training cannot go on."""

    def log(self, done: int, metrics: Tensor, speed: float) -> None:
        """Write a line on the steps of the window, whose metrics these are; speed in steps a second."""

    def save(self, done: int) -> None:
        """Write a checkpoint; at the end of the phase what was learned before it, so that it is never missing."""


class Training(Protocol):
    """Three phases, or one, and the folder that they are kept in."""

    @property
    def folder(self) -> RunFolder: ...

    @property
    def steps(self) -> tuple[int, ...]:
        """Of each phase."""

    def phase(self, number: int, resumes: bool) -> Phase:
        """A phase from its beginning, or from where the training was cut."""

    def save_phase(self, number: int) -> None:
        """Write what was learned by the end of a phase."""


def run_phases(
    training: Training,
    at: tuple[int, int],
    engine: EngineConfig,
    device: torch.device,
    quiet: bool = False,
    ranks: Ranks = ALONE,
    last: int = 3,
) -> None:
    """Algorithm 1 from a phase and the steps done in it to the end of the phase `last`; every rank calls this."""
    with _bar(training.steps, quiet) as bar, watch_signals() as stop, precision(engine.precision, device):
        for number, steps in enumerate(training.steps[:last], 1):  # lines 3, 4 and 6
            done = at[1] if number == at[0] else 0
            if number < at[0] or not steps:
                continue
            if done < steps:
                phase, name = training.phase(number, done > 0), names_of(training.steps)[number - 1]
                run_phase(phase, name, done, engine, bar, stop, ranks)
            elif not training.folder.phase(number).exists():  # it was cut between its last step and this file
                training.save_phase(number)
        if asked := ranks.maximum(stop.signal_number or 0):  # it came after the last step
            raise Stopped(asked, "Stopped when all steps were taken, and saved.")


def _bar(steps: tuple[int, ...], quiet: bool) -> TrainingBar:
    """What shows a run. rich is imported where something is shown: it may be missing on a machine that only trains."""
    if quiet:
        return TrainingBar()
    from kcciol.engine.terminal_bar import TerminalBar

    return TerminalBar(steps)


def run_phase(
    phase: Phase, name: str, done: int, engine: EngineConfig, bar: TrainingBar, stop: StopRequest, ranks: Ranks
) -> None:
    """Algorithm 2, or the step of a recipe, over and over, from step `done` to the end of the phase or to a signal."""
    step, window = phase.step, phase.window
    on_gpu = step.metrics.is_cuda
    step.load_block(done // BLOCK, done % BLOCK)
    execute = capture(step) if on_gpu and engine.graph else step
    bar.start(phase.number, done)
    periods = (BLOCK, engine.checkpoint_every, engine.log_every, CHUNK if on_gpu else 1)
    began = time.monotonic(), done
    while done < phase.steps:
        if done % BLOCK == 0 and done:
            step.load_block(done // BLOCK, 0)
        n = min(phase.steps, *(done - done % period + period for period in periods)) - done
        for _ in range(n):
            execute()
        # A signal to one rank stops all at the same step. Asked before the metrics: a GPU would wait for a lost rank.
        asked = ranks.maximum(stop.signal_number or 0)
        slot, done = done % BLOCK, done + n
        window.append(step.metrics[slot : slot + n].cpu())
        bar.update(phase.number, done, phase.watch(window[-1], done))
        ends = done == phase.steps
        saves = ends or asked > 0 or done % engine.checkpoint_every == 0
        if ends or done % engine.log_every == 0 or (saves and not phase.keeps_window):
            phase.log(done, torch.cat(window), (done - began[1]) / max(1e-9, time.monotonic() - began[0]))
            window.clear()
        if saves:
            phase.save(done)
        if asked:
            raise Stopped(asked, f"Stopped in {name} after step {done}, and saved there.")
