"""Algorithm 1: three calls of Algorithm 2. The training loop is `_run_phase`, whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from kcciol.config import Config
from kcciol.data.classset import ClassSet
from kcciol.engine import checkpoint
from kcciol.engine.checkpoint import Checkpoint
from kcciol.engine.execute import executor, pick_device, set_precision
from kcciol.engine.progress import TrainingBar
from kcciol.engine.run_folder import RunFolder
from kcciol.engine.stop import Stopped, StopRequest, watch_signals
from kcciol.engine.tensorboard import scalar_writer
from kcciol.errors import UserError
from kcciol.meta.mask import get_mask
from kcciol.meta.step import MetaStep
from kcciol.meta.trajectory import BLOCK, Sampler
from kcciol.problems.classification import Classification


class Diverged(UserError):
    """The loss is no longer finite."""


def train(
    config: Config,
    base: ClassSet,
    out: Path | str,
    resume: bool = False,
    start: Path | None = None,
    quiet: bool = False,
) -> RunFolder:
    """Meta-train on the base classes and leave everything in the folder `out`.

    resume continues the run in `out`. start begins after the phase at whose end that representation was saved.
    """
    device = pick_device(config.engine.device)
    problem = Classification(config.net, base.image_shape, len(base))
    if config.data.train_samples:
        base = base.first_samples(config.data.train_samples)
    Sampler(base, config.trajectory)  # what the data cannot give is said before anything is written
    folder = RunFolder(Path(out))
    if resume:
        folder.reopen(config)
    source = folder.checkpoint if resume and folder.checkpoint.exists() else start
    at = checkpoint.load(source) if source is not None else None
    Theta = problem.init(config.seed) if at is None else at.vector(problem.layout, source)  # Algorithm 1, line 1
    if not resume:
        folder.create(config)
    elif at is not None:
        folder.rewind_metrics(at.phase, at.step)
    Theta = Theta.to(device)
    steps = tuple(phase.steps for phase in config.phases)
    with TrainingBar(steps, quiet) as bar, watch_signals() as stop:
        for number in (1, 2, 3):  # lines 3, 4 and 6
            if config.phases[number - 1].steps and (at is None or at.phase <= number):
                resumed = at if at is not None and at.phase == number else None
                _run_phase(problem, base, config, number, Theta, folder, resumed, bar, stop)
    return folder


def _run_phase(
    problem: Classification,
    base: ClassSet,
    config: Config,
    number: int,
    Theta: Tensor,
    folder: RunFolder,
    resumed: Checkpoint | None,
    bar: TrainingBar,
    stop: StopRequest,
) -> None:
    """Algorithm 2 with one phase's settings, Theta in place."""
    phase, engine = config.phases[number - 1], config.engine
    done = resumed.step if resumed else 0
    if done >= phase.steps:
        return
    step = MetaStep(problem, base, config, phase, Theta, number)
    step.precision = set_precision(engine, Theta.device)
    if phase.lam:
        step.mask = get_mask(problem.layout, Theta, config.mask)  # Algorithm 1, line 5
    if resumed:
        step.adam.m.copy_(resumed.tensors["adam.m"])
        step.adam.v.copy_(resumed.tensors["adam.v"])
        if step.mask is not None:
            step.mask.copy_(resumed.tensors["mask"])
    on_gpu = Theta.device.type == "cuda"
    step.load_block(done // BLOCK, done % BLOCK)
    execute = executor(step, step.state, on_gpu and engine.graph)
    log = _logger(folder, engine.tensorboard, number, sum(p.steps for p in config.phases[: number - 1]))
    bar.start(number, done)
    window: list[Tensor] = []
    chunk = 50 if on_gpu else 1  # steps between two looks at the losses and the signals
    began = time.monotonic(), done
    while done < phase.steps:
        if done % BLOCK == 0 and done:
            step.load_block(done // BLOCK, 0)
        ends = (done - done % period + period for period in (BLOCK, engine.checkpoint_every, engine.log_every, chunk))
        n = min(phase.steps, *ends) - done
        for _ in range(n):
            execute()
        slot, done = done % BLOCK, done + n
        window.append(step.metrics[slot : slot + n].cpu())
        if not torch.isfinite(window[-1][:, 0]).all():
            raise Diverged(
                f"The loss is no longer finite in phase {number} near step {done}; the last good state is kept in "
                f"{folder.path}: lower phase{number}.alpha or phase{number}.beta and resume from there."
            )
        loss = float(window[-1][:, 0].mean())
        bar.update(number, done, loss)
        if done % engine.log_every == 0 or done == phase.steps:
            log(done, torch.cat(window).mean(0), (done - began[1]) / (time.monotonic() - began[0]))
            window.clear()
        if done % engine.checkpoint_every == 0 or stop.signal_number is not None:
            _save(folder.checkpoint, config, problem, base, number, done, step)
        if stop.signal_number is not None:
            raise Stopped(stop.signal_number, f"Stopped in phase {number} after step {done}; --resume continues there.")
    _save(folder.phase(number), config, problem, base, number, done, step, resumable=False)
    _save(folder.checkpoint, config, problem, base, number, done, step)


def _save(
    path: Path,
    config: Config,
    problem: Classification,
    base: ClassSet,
    number: int,
    done: int,
    step: MetaStep,
    resumable: bool = True,
) -> None:
    tensors = problem.layout.views(step.Theta)
    if not torch.isfinite(step.Theta).all():
        raise Diverged(
            f"The parameters are no longer finite in phase {number} at step {done}; {path} is kept as it was."
        )
    if resumable:
        tensors |= {"adam.m": step.adam.m, "adam.v": step.adam.v}
        if step.mask is not None:
            tensors["mask"] = step.mask
    Checkpoint(config, base.image_shape, len(base), number, done, tensors).save(path)


def _logger(folder: RunFolder, tensorboard: bool, number: int, before: int) -> Callable[[int, Tensor, float], None]:
    """A function that writes one line of metrics, and TensorBoard's events when asked."""
    write = scalar_writer(folder.path) if tensorboard else None

    def log(done: int, means: Tensor, speed: float) -> None:
        values = {"loss": float(means[0])}
        if number == 3:
            values |= {"constraint": float(means[1]), "constraint_share": float(means[2])}
        values["steps_per_second"] = round(speed, 2)
        folder.log({"phase": number, "step": done, **values})
        if write is not None:
            write(values, before + done)

    return log
