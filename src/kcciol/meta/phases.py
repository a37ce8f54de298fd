"""Algorithm 1: three calls of Algorithm 2, each a phase that `kcciol.engine.loop` runs."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from kcciol.config import GIVEN, Config, MaskConfig
from kcciol.data import locate, require_outside
from kcciol.data.classset import ClassSet
from kcciol.engine import checkpoint
from kcciol.engine.checkpoint import Checkpoint
from kcciol.engine.device import pick_device
from kcciol.engine.loop import Diverged, run_phases
from kcciol.engine.ranks import ALONE, Ranks
from kcciol.engine.run_folder import RunFolder, event_writer
from kcciol.errors import UserError, require_kind
from kcciol.files import path_of
from kcciol.meta.importance import mean_squares
from kcciol.meta.mask import get_mask
from kcciol.meta.methods import representation
from kcciol.meta.start import FirstW, first_W_
from kcciol.meta.step import MetaStep, make_inner
from kcciol.meta.trajectory import Sampler
from kcciol.nets.classification import Classification
from kcciol.nets.module import ModuleEncoder


@dataclass(frozen=True)
class Run:
    """What all phases of a run have in common: a `Training` of the loop."""

    config: Config
    problem: Classification
    base: ClassSet
    folder: RunFolder
    at: Checkpoint
    Theta: Tensor  # changed in place
    ranks: Ranks

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(phase.steps for phase in self.config.phases)

    def phase(self, number: int, resumes: bool) -> ClassificationPhase:
        return ClassificationPhase(self, number, self.at if resumes else None)

    def save_phase(self, number: int) -> None:
        self.save(self.folder.phase(number), number, self.steps[number - 1], self.problem.tensors(self.Theta))

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
    module: nn.Module | None = None,
    W: FirstW = "draw",
) -> RunFolder:
    """Meta-train on the base classes and leave everything in the folder `out`.

    resume continues the run in `out`. start begins after the phase at whose end that representation was saved. last is
    the phase to stop after; a resumed run can go on from there.
    module is a network of one's own, which begins with the weights that it has; theta is a copy of them. With
    phase1.steps = 0 the run begins with phase 2, and with 0 in both with phase 3. W is the classifier to begin with, of
    a run that neither resumes nor starts from a file: as drawn, "zero", or the "means" of the base classes' features.
    ranks are the processes that train together, joined already; each of them calls this with the same arguments.
    """
    require_kind(config, Config, "config", 'kcciol.preset("quickstart")')
    require_kind(base, ClassSet, "base", "data.base")
    out = path_of(out)
    if last not in (1, 2, 3):
        raise UserError(f"There is no phase {last!r} to stop after: last must be 1, 2 or 3.")
    if module is not None and not config.net.module:
        config = replace(config, net=replace(config.net, module=GIVEN))
    problem = Classification(config.net, base.image_shape, len(base), module)
    if config.data.train_samples:
        base = base.first_samples(config.data.train_samples)
    folder = RunFolder(out, writes=ranks.rank == 0)
    with contextlib.ExitStack() as stack:

        def begin() -> tuple[Checkpoint, Tensor, torch.device]:
            if resume and folder.saved():  # first of all: where it stands must not change
                stack.enter_context(folder.locked())
            return _begin(config, problem, base, folder, resume, start, ranks, W)

        at, Theta, device = ranks.run_on_all(begin)
        if not resume:
            stack.enter_context(folder.created(config, at, base.identity))
        else:
            folder.restore(config, at, base.identity)
        folder.remember_root(Path(locate(config.data).root))
        folder.rewind_metrics(at.phase, at.step)
        Theta = ranks.broadcast(Theta).to(device)  # the same on all, to the bit, and not before the folder is ready
        for buffer in problem.buffers.values():
            ranks.broadcast(buffer)
        run = Run(config, problem, base, folder, at, Theta, ranks)
        engine = config.engine if problem.by_hand else replace(config.engine, graph=False)  # a module may ask the host
        run_phases(run, (at.phase, at.step), engine, device, quiet or not folder.writes, ranks, last)
        if not config.total_steps:  # the representation `scratch`
            run.save_phase(1)
    return folder


def _begin(
    config: Config,
    problem: Classification,
    base: ClassSet,
    folder: RunFolder,
    resume: bool,
    start: Path | None,
    ranks: Ranks,
    W: FirstW,
) -> tuple[Checkpoint, Tensor, torch.device]:
    """Where the run stands, with Theta, and the device; what cannot be is said here, before anything is written."""
    device = ranks.device(pick_device(config.engine.device))
    ranks.slice_of(config.trajectory.count)
    Sampler(base, config.trajectory)
    make_inner(config, problem, 0.0)
    if isinstance(problem.encoder, ModuleEncoder) and any(phase.steps and phase.lam for phase in config.phases):
        problem.encoder.require_second_derivatives()
    if config.engine.tensorboard:
        event_writer()  # says at once when it is not there
    if resume and start is not None:
        raise UserError("A run that is resumed goes on where it was: leave --start out.")
    if not config.total_steps and representation(config.representation).trains:
        raise UserError("All three phases have 0 steps, so there is nothing to train: give one of them some.")
    if resume:
        at = folder.reopen(config)
        if (at.base_names, at.image_shape) != (base.names, base.image_shape):
            raise UserError(
                f"The run in {folder.path} was started with other classes, or images of another shape: resume it with "
                "the data that it was started with, or choose another folder."
            )
        folder.require_images(base.identity)
        if at.step and folder.checkpoint.exists():  # else it goes on from the end of a phase
            at.require_state(problem.layout, bool(config.phases[at.phase - 1].lam), folder.checkpoint)
        return at, at.vector(problem.layout, folder.checkpoint, problem.buffers), device
    require_outside(folder.path, config.data)
    Theta, first = problem.init(config.seed), 1  # Algorithm 1, line 1
    if start is not None:
        before = checkpoint.load(start)
        if "adam.m" in before.tensors:
            raise UserError(f"{start} lies within phase {before.phase}: --start takes a file like phase1.safetensors.")
        Theta, first = before.vector(problem.layout, start, problem.buffers), before.phase + 1
        if before.base_names != base.names:  # each row of W belongs to one; and none of them is novel any more
            raise UserError(
                f"{start} was trained on other classes than these: give the data it was trained on, or leave --start "
                "out."
            )
    if first > 3:
        raise UserError(f"The representation {start} is from the end of phase 3: no phase comes after it.")
    if start is None:
        first_W_(W, problem, Theta, base)
    at = Checkpoint(config, base.image_shape, base.names, first, 0, problem.tensors(Theta))
    return at, Theta, device


class ClassificationPhase:
    """One phase of one network: a `Phase` of the loop."""

    keeps_window = False

    def __init__(self, run: Run, number: int, resumed: Checkpoint | None) -> None:
        self.run, self.number, self.window = run, number, list[Tensor]()
        config, layout, settings = run.config, run.problem.layout, run.config.phases[number - 1]
        self.steps = settings.steps
        mask = None
        if settings.lam:  # Algorithm 1, line 5
            squares = functools.partial(mean_squares, run.problem, run.base, config, number, run.Theta, run.ranks)
            which = MaskConfig() if resumed else config.mask  # what is resumed has its own, read below
            mask = get_mask(layout, run.Theta, which, config.seed, squares)
        self.step = MetaStep(run.problem, run.base, config, settings, number, run.Theta, mask, run.ranks)
        adam = self.step.adam
        self.state = {"adam.m": adam.m, "adam.v": adam.v} | ({} if mask is None else {"mask": mask})
        if resumed:
            for name, tensor in self.state.items():
                tensor.copy_(resumed.tensors[name])
        self._write = run.folder.logger(config.engine.tensorboard, sum(p.steps for p in config.phases[: number - 1]))

    def watch(self, metrics: Tensor, done: int) -> float:
        if not torch.isfinite(metrics).all():
            raise self._diverged("loss", done)
        return float(metrics[:, 0].mean())

    def log(self, done: int, metrics: Tensor, speed: float) -> None:
        loss, constraint, share = metrics.mean(0).tolist()
        values = {"loss": loss}
        if self.step.phase.gamma:
            values["l1"] = float(self.step.Theta.abs().sum())
        if self.step.phase.lam:
            values |= {"constraint": constraint, "constraint_share": share}
        self._write(self.number, done, values | {"steps_per_second": round(speed, 2)})

    def save(self, done: int) -> None:
        run, tensors = self.run, self.run.problem.tensors(self.step.Theta)
        if not all(torch.isfinite(tensor).all() for tensor in (tensors | self.state).values()):
            raise self._diverged("state", done)
        if done == self.steps:
            run.save_phase(self.number)
        elif (engine := run.config.engine).keep and done % engine.checkpoint_every == 0:
            run.save(run.folder.kept(self.number, done), self.number, done, tensors)
        run.save(run.folder.checkpoint, self.number, done, tensors | self.state)

    def _diverged(self, what: str, done: int) -> Diverged:
        number, folder, settings = self.number, self.run.folder, self.step.phase
        begin = f" --start {folder.phase(number - 1)}" if number > 1 and folder.phase(number - 1).exists() else ""
        used = [f"phase{number}.{name}" for name in ("alpha", "beta", "gamma", "lam") if getattr(settings, name)]
        return Diverged(
            f"The {what} is no longer finite in phase {number} near step {done}, what was saved before it is kept in "
            f"{folder.path}: train into another --out{begin} with a lower {' or '.join(used)}."
        )
