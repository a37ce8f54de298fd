"""Algorithm 1 for members: three phases of all of them together, in one folder that can be resumed.

members.json             the members' configs
metrics.jsonl            a line every engine.log_every steps, a number for each member
checkpoint.safetensors   where to resume
phase1.safetensors ...   Theta (M, length) after each phase
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from kcciol.atomic import held, write_json
from kcciol.engine.checkpoint import read, write
from kcciol.engine.execute import executor, pick_device, set_precision
from kcciol.engine.progress import TrainingBar
from kcciol.engine.record import record
from kcciol.engine.run_folder import rewind, writable
from kcciol.engine.stop import Stopped, StopRequest, watch_signals
from kcciol.errors import Busy, UserError
from kcciol.meta.mask import get_mask
from kcciol.nets.layout import Layout
from kcciol.together.settings import MemberConfig
from kcciol.together.step import BLOCK, MemberStep
from kcciol.together.watch import Fails, Watch
from kcciol.values import from_dict, to_dict


class Net(Protocol):
    """The shapes of a member's parameters."""

    @property
    def layout(self) -> Layout: ...
    def init(self, seed: int) -> Tensor: ...


@dataclass(frozen=True)
class Kind:
    """A problem."""

    config: type[MemberConfig]
    net: Callable[[Any], Net]
    step: Callable[[Any, Sequence[Any], int, Tensor, Tensor | None], MemberStep]
    metrics: tuple[str, ...]
    free: tuple[str, ...] = ()
    """Settings in which members may differ, besides seed, mask and the phases' rates, gamma and lambda."""
    lost: Fails = lambda members, values: values[0].isnan()
    """Whether the metrics (metrics, M) of a step, or their mean over some, say that a member learns nothing, (M,)."""


@dataclass
class State:
    """Where a run stands."""

    phase: int
    step: int
    tensors: dict[str, Tensor]  # Theta; while a phase runs also Adam's m and v, and perhaps mask, last, window


@dataclass(frozen=True)
class Run:
    """What all phases have in common."""

    kind: Kind
    members: Sequence[MemberConfig]
    net: Net
    out: Path
    Theta: Tensor  # (M, length), changed in place
    bar: TrainingBar
    stop: StopRequest

    def save(self, path: Path, phase: int, step: int, tensors: dict[str, Tensor]) -> None:
        save(path, [to_dict(m) for m in self.members], State(phase, step, tensors))


@dataclass(frozen=True)
class Fork:
    """Members that are alike until the end of a phase take its steps as one."""

    firsts: list[int]
    """Of those that are alike, the first."""
    places: list[int]
    """Of each member, which of the firsts stands for it."""

    @classmethod
    def of(cls, members: Sequence[MemberConfig], phase: int) -> Fork:
        later = {f"phase{i}" for i in (1, 2, 3) if i > phase}
        if not any(p.lam for m in members for p in m.phases[:phase]):  # nothing was held so far
            later.add("mask")
        until = [{k: v for k, v in to_dict(m).items() if k not in later} for m in members]
        firsts = [i for i, own in enumerate(until) if own not in until[:i]]
        return cls(firsts, [[until[i] for i in firsts].index(own) for own in until])


def train(kind: Kind, members: Sequence[MemberConfig], out: Path, resume: bool = False, quiet: bool = False) -> Tensor:
    """Meta-train the members and leave everything in the folder `out`; Theta (M, length) at the end."""
    check_alike(kind, members)
    if not any(phase.steps for phase in members[0].phases):
        raise UserError("All three phases have 0 steps, so there is nothing to train: give one of them some.")
    if not resume and (out / "members.json").exists():
        raise UserError(f"There is a run in {out} already: resume it, or choose another folder.")
    strange = [n for n in ("config.toml", "checkpoint.safetensors", "phase1.safetensors") if (out / n).exists()]
    if strange and not (out / "members.json").exists():
        raise UserError(f"{out} holds {strange[0]} but no members.json, a run of another kind: choose another folder.")
    if resume and not (out / "members.json").exists():
        raise UserError(f"There is no run in {out} to resume.")
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    with held(out / ".lock") as mine:
        if not mine:
            raise Busy(f"Another process is training in {out}: wait for it, or stop it.")
        return _train(kind, members, out, resume, quiet)


def _train(kind: Kind, members: Sequence[MemberConfig], out: Path, resume: bool, quiet: bool) -> Tensor:
    first = members[0]
    net = kind.net(first)
    device = pick_device(first.engine.device)
    set_precision(first.engine, device)
    if resume:
        found, at = load(kind, out / "checkpoint.safetensors")
        if [_identity(m) for m in found] != [_identity(m) for m in members]:
            raise UserError(f"The run in {out} has other settings: resume it with the same, or choose another folder.")
        rewind(out / "metrics.jsonl", at.phase, at.step)
    else:
        at = State(1, 0, {"Theta": torch.stack([net.init(m.seed) for m in members])})
        save(out / "checkpoint.safetensors", [to_dict(m) for m in members], at)
        write_json(out / "members.json", {"members": [to_dict(m) for m in members], "record": record()})
    Theta = at.tensors["Theta"].to(device)
    with TrainingBar(tuple(p.steps for p in first.phases), quiet) as bar, watch_signals() as stop:
        run = Run(kind, members, net, out, Theta, bar, stop)
        for number in (1, 2, 3):
            if number >= at.phase and first.phases[number - 1].steps:
                _run_phase(run, number, at if at.phase == number and at.step else None)
    return Theta


def _run_phase(run: Run, number: int, resumed: State | None) -> None:
    """Algorithm 2, over and over."""
    done, end = resumed.step if resumed is not None else 0, run.out / f"phase{number}.safetensors"
    if done == run.members[0].phases[number - 1].steps:
        if not end.exists():
            run.save(end, number, done, {"Theta": run.Theta})
        return
    fork = Fork.of(run.members, number)
    members, Theta = [run.members[i] for i in fork.firsts], run.Theta[fork.firsts]
    engine, steps = members[0].engine, members[0].phases[number - 1].steps
    watch, on_gpu = Watch(members, run.kind.lost), Theta.is_cuda
    mask = masks(run.net, Theta, members) if any(m.phases[number - 1].lam for m in members) else None
    step = run.kind.step(run.net, members, number, Theta, mask)
    kept = step.saved | ({} if mask is None else {"mask": mask})
    if resumed is not None:
        for name, tensor in kept.items():
            if name not in resumed.tensors:
                raise UserError(f"The checkpoint in {run.out} holds no {name}, so it cannot be resumed: begin anew.")
            tensor.copy_(resumed.tensors[name][fork.firsts])
    step.step.fill_(done)
    execute = executor(step, step.state, step.counters, on_gpu and engine.graph)
    run.bar.start(number, done)
    window: list[Tensor] = []  # metrics (steps, metrics, M) since the last line
    if resumed is not None and "window" in resumed.tensors:
        window.append(resumed.tensors["window"][fork.firsts].permute(1, 2, 0).cpu())
    while done < steps:
        periods = (BLOCK, engine.checkpoint_every, engine.log_every, 50 if on_gpu else 1)
        n = min(steps, *(done - done % period + period for period in periods)) - done
        for _ in range(n):
            execute()
        slot, done = done % BLOCK, done + n
        window.append(step.metrics[slot : slot + n].cpu())
        watch.see(window[-1], last=done == steps)
        if bool(watch.lost.all()):  # else the others go on, and those lost are found to be so when they are measured
            raise UserError(f"All trajectories of a run diverge in phase {number} near step {done}: lower its rates.")
        run.bar.update(number, done, float(window[-1][:, 0, ~watch.lost].nanmean()))
        if done % engine.log_every == 0 or done == steps:
            _log(run, number, done, torch.cat(window).nanmean(0)[:, fork.places])
            window.clear()
        stopped = run.stop.signal_number
        if done % engine.checkpoint_every == 0 or done == steps or stopped is not None:
            if not bool(Theta.isfinite().all(1).any()):
                raise UserError(f"Theta is no longer finite in phase {number} near step {done}: lower its rates.")
            run.Theta.copy_(Theta[fork.places])
            if done == steps:
                run.save(end, number, done, {"Theta": run.Theta})
            since = {"window": torch.cat(window).permute(2, 0, 1)} if window else {}
            every = {name: tensor[fork.places] for name, tensor in (kept | since).items()}
            run.save(run.out / "checkpoint.safetensors", number, done, every)
        if stopped is not None:
            raise Stopped(stopped, f"Stopped in phase {number} after step {done}, and saved there.")
    for sentence in watch.sentences(number):
        print(f"kcciol: {sentence}", file=sys.stderr)


def masks(net: Net, Theta: Tensor, members: Sequence[MemberConfig]) -> Tensor:
    """Algorithm 3 for each member."""
    return torch.stack([get_mask(net.layout, one, m.mask) for one, m in zip(Theta, members, strict=True)])


def check_alike(kind: Kind, members: Sequence[MemberConfig]) -> None:
    """Refuse members that cannot take their steps together."""
    if not members:
        raise UserError("There is nothing to train: give at least one member.")
    free = ("seed", "mask", *kind.free)

    def shared(config: MemberConfig) -> dict[str, Any]:
        values = {k: v for k, v in to_dict(config).items() if k not in free and not k.startswith("phase")}
        return values | {"steps": [p.steps for p in config.phases]}

    for member in members[1:]:
        if shared(member) != shared(members[0]):
            words = ", ".join(free)
            raise UserError(
                f"Members that train together may differ in {words} and the phases' rates, gamma and lambda only."
            )


def _identity(config: MemberConfig) -> dict[str, Any]:
    """What must be the same to go on: where and how it is computed may change."""
    return {k: v for k, v in to_dict(config).items() if k != "engine"}


def _log(run: Run, phase: int, step: int, values: Tensor) -> None:
    line: dict[str, Any] = {"phase": phase, "step": step}
    for name, numbers in zip(run.kind.metrics, values.tolist(), strict=True):
        line[name] = [number if math.isfinite(number) else None for number in numbers]
    with (run.out / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def save(path: Path, members: list[dict[str, Any]], state: State) -> None:
    """A state of training as one file."""
    write(path, {"members": members, "phase": state.phase, "step": state.step}, state.tensors)


def load(kind: Kind, path: Path) -> tuple[list[Any], State]:
    """Such a file."""
    meta, tensors = read(path)
    try:
        members = [from_dict(kind.config, member) for member in meta["members"]]
        return members, State(meta["phase"], meta["step"], tensors)
    except (TypeError, KeyError) as error:
        raise UserError(f"The checkpoint {path} is of another kind ({error}): use another one.") from None
