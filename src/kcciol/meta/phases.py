"""Algorithm 1: three calls of Algorithm 2. The training loop is `_run_phase`, whole."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kcciol.config import Config
from kcciol.data.classset import ClassSet
from kcciol.engine import checkpoint
from kcciol.engine.checkpoint import Checkpoint
from kcciol.engine.execute import executor, pick_device
from kcciol.engine.progress import TrainingBar
from kcciol.engine.ranks import ALONE, Ranks
from kcciol.engine.run_folder import RunFolder
from kcciol.engine.stop import Stopped, StopRequest, watch_signals
from kcciol.engine.tensorboard import require_tensorboard
from kcciol.errors import UserError, require_kind
from kcciol.meta.mask import get_mask
from kcciol.meta.step import MetaStep, make_inner
from kcciol.meta.trajectory import BLOCK, Sampler
from kcciol.problems.classification import Classification


class Diverged(UserError):
    """A number is no longer finite."""


@dataclass(frozen=True)
class Run:
    """What all phases of a run have in common."""

    config: Config
    problem: Classification
    base: ClassSet
    folder: RunFolder
    Theta: Tensor  # changed in place
    bar: TrainingBar
    stop: StopRequest
    ranks: Ranks

    def save(self, path: Path, number: int, step: int, tensors: dict[str, Tensor]) -> None:
        at = Checkpoint(self.config, self.base.image_shape, self.base.names, number, step, tensors)
        self.folder.save(path, at)


def train(
    config: Config,
    base: ClassSet,
    out: Path | str,
    resume: bool = False,
    start: Path | None = None,
    quiet: bool = False,
    ranks: Ranks = ALONE,
    last: int = 3,
) -> RunFolder:
    """Meta-train on the base classes and leave everything in the folder `out`.

    resume continues the run in `out`. start begins after the phase at whose end that representation was saved. last is
    the phase to stop after; a resumed run can go on from there.
    ranks are the processes that train together, joined already; each of them calls this with the same arguments.
    """
    require_kind(config, Config, "config", 'kcciol.preset("quickstart")')
    require_kind(base, ClassSet, "base", "data.base")
    if last not in (1, 2, 3):
        raise UserError(f"There is no phase {last!r} to stop after: last must be 1, 2 or 3.")
    problem = Classification(config.net, base.image_shape, len(base))
    if config.data.train_samples:
        base = base.first_samples(config.data.train_samples)
    folder = RunFolder(Path(out), writes=ranks.rank == 0)
    steps = tuple(phase.steps for phase in config.phases)
    with contextlib.ExitStack() as stack:

        def begin() -> tuple[Checkpoint, Tensor, torch.device]:
            if resume and (folder.path / "config.toml").exists():  # first of all: where it stands must not change
                stack.enter_context(folder.locked())
            return _begin(config, problem, base, folder, resume, start, ranks)

        at, Theta, device = ranks.together(begin)
        if not resume:
            folder.create(config, at)
            stack.enter_context(folder.locked())
        bar = stack.enter_context(TrainingBar(steps, quiet or not folder.writes))
        stop = stack.enter_context(watch_signals())
        folder.rewind_metrics(at.phase, at.step)
        Theta = ranks.first(Theta).to(device)  # the same on all, to the bit, and not before the folder is ready
        run = Run(config, problem, base, folder, Theta, bar, stop, ranks)
        for number in range(1, last + 1):  # lines 3, 4 and 6
            if number >= at.phase and config.phases[number - 1].steps:
                _run_phase(run, number, at if at.phase == number and at.step else None)
        if not config.total_steps:  # the representation `scratch`
            run.save(folder.phase(1), 1, 0, problem.layout.views(run.Theta))
    return folder


def _begin(
    config: Config,
    problem: Classification,
    base: ClassSet,
    folder: RunFolder,
    resume: bool,
    start: Path | None,
    ranks: Ranks,
) -> tuple[Checkpoint, Tensor, torch.device]:
    """Where the run stands, with Theta, and the device; what cannot be is said here, before anything is written."""
    device = ranks.device(pick_device(config.engine.device))
    ranks.share(config.trajectory.count)
    Sampler(base, config.trajectory)
    make_inner(config, problem, 0.0)
    if config.engine.tensorboard:
        require_tensorboard()
    if resume and start is not None:
        raise UserError("A run that is resumed goes on where it was: leave --start out.")
    if not config.total_steps and config.representation != "scratch":
        raise UserError("All three phases have 0 steps, so there is nothing to train: give one of them some.")
    if resume:
        at = folder.reopen(config)
        return at, at.vector(problem.layout, folder.checkpoint), device
    Theta, first = problem.init(config.seed), 1  # Algorithm 1, line 1
    if start is not None:
        before = checkpoint.load(start)
        if "adam.m" in before.tensors:
            raise UserError(f"{start} lies within phase {before.phase}: --start takes a file like phase1.safetensors.")
        Theta, first = before.vector(problem.layout, start), before.phase + 1
    if first > 3:
        raise UserError(f"The representation {start} is from the end of phase 3: no phase comes after it.")
    at = Checkpoint(config, base.image_shape, base.names, first, 0, problem.layout.views(Theta))
    return at, Theta, device


def _run_phase(run: Run, number: int, resumed: Checkpoint | None) -> None:
    """Algorithm 2 with one phase's settings."""
    config, Theta, folder = run.config, run.Theta, run.folder
    phase, engine = config.phases[number - 1], config.engine
    done = resumed.step if resumed else 0
    if done >= phase.steps:
        if not folder.phase(number).exists():  # the run was cut between its last step and this file
            run.save(folder.phase(number), number, done, run.problem.layout.views(Theta))
        return
    mask = get_mask(run.problem.layout, Theta, config.mask) if phase.lam else None  # Algorithm 1, line 5
    step = MetaStep(run.problem, run.base, config, phase, number, Theta, mask, run.ranks)
    if resumed:
        step.adam.m.copy_(resumed.tensors["adam.m"])
        step.adam.v.copy_(resumed.tensors["adam.v"])
        if mask is not None:
            mask.copy_(resumed.tensors["mask"])
    on_gpu = Theta.device.type == "cuda"
    step.load_block(done // BLOCK, done % BLOCK)
    execute = executor(step, step.state, step.counters, on_gpu and engine.graph)
    log = folder.logger(engine.tensorboard, sum(p.steps for p in config.phases[: number - 1]))
    run.bar.start(number, done)
    window: list[Tensor] = []
    chunk = 50 if on_gpu else 1  # steps between two looks at the losses and the signals
    began, asked = (time.monotonic(), done), 0
    while done < phase.steps:
        if done % BLOCK == 0 and done:
            step.load_block(done // BLOCK, 0)
        ends = (done - done % period + period for period in (BLOCK, engine.checkpoint_every, engine.log_every, chunk))
        n = min(phase.steps, *ends) - done
        for _ in range(n):
            execute()
        # A signal to one rank stops all at the same step. Asked before the losses: a GPU would wait for a lost rank.
        asked = run.ranks.largest(run.stop.signal_number or 0)
        slot, done = done % BLOCK, done + n
        window.append(step.metrics[slot : slot + n].cpu())
        if not torch.isfinite(window[-1]).all():
            raise Diverged(_advice("loss", number, done, folder))
        run.bar.update(number, done, float(window[-1][:, 0].mean()))
        save = done % engine.checkpoint_every == 0 or asked > 0
        if done % engine.log_every == 0 or save or done == phase.steps:
            speed = (done - began[1]) / (time.monotonic() - began[0])
            log(number, done, _metrics(torch.cat(window).mean(0), step) | {"steps_per_second": round(speed, 2)})
            window.clear()
        if save and done < phase.steps:
            _save(run, step, number, done)
            if asked:
                break
    if done == phase.steps:
        _save(run, step, number, done, finished=True)
    if asked:
        raise Stopped(asked, f"Stopped in phase {number} after step {done}, and saved there.")


def _metrics(means: Tensor, step: MetaStep) -> dict[str, float]:
    """What a line of metrics.jsonl says of the steps since the line before."""
    values = {"loss": float(means[0])}
    if step.phase.gamma:
        values["l1"] = float(step.Theta.abs().sum())
    if step.phase.lam:
        values |= {"constraint": float(means[1]), "constraint_share": float(means[2])}
    return values


def _save(run: Run, step: MetaStep, number: int, done: int, finished: bool = False) -> None:
    """Write the checkpoint; at the end of a phase the representation first, so that a checkpoint never lacks it."""
    tensors = run.problem.layout.views(step.Theta)
    state = {"adam.m": step.adam.m, "adam.v": step.adam.v} | ({} if step.mask is None else {"mask": step.mask})
    if not all(torch.isfinite(tensor).all() for tensor in (tensors | state).values()):
        raise Diverged(_advice("state", number, done, run.folder))
    if finished:
        run.save(run.folder.phase(number), number, done, tensors)
    run.save(run.folder.checkpoint, number, done, tensors | state)


def _advice(what: str, number: int, done: int, folder: RunFolder) -> str:
    begin = f" --start {folder.phase(number - 1)}" if number > 1 and folder.phase(number - 1).exists() else ""
    return (
        f"The {what} is no longer finite in phase {number} near step {done}, what was saved before it is kept in "
        f"{folder.path}: train into another --out{begin} with a lower phase{number}.alpha or phase{number}.beta."
    )
