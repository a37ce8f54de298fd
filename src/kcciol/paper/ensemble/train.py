"""Algorithm 1 for members: three phases of all of them together, in one folder that can be resumed.

members.json             the members' configs
metrics.jsonl            a line every engine.log_every steps, a number for each member
checkpoint.safetensors   where to resume
phase1.safetensors ...   Theta (M, length) after each phase
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from kcciol.engine.device import pick_device
from kcciol.engine.loop import Diverged, run_phases
from kcciol.engine.record import record
from kcciol.engine.run_folder import RESUMED, RunFolder, resumed
from kcciol.errors import UserError, quoted
from kcciol.files.tensors import Format, Tensors, add_nothing, read_tensors, write_tensors
from kcciol.meta.mask import get_mask
from kcciol.nets.layout import Layout
from kcciol.paper.ensemble.settings import Fork, MemberConfig
from kcciol.paper.ensemble.step import MemberStep, Watch
from kcciol.paper.formats import MEMBERS
from kcciol.paper.progress import warn
from kcciol.serialization import from_dict, to_dict

FORMAT = Format("ensemble", (add_nothing,), early=lambda header: 1 if "members" in header else None, sums_since=2)


class MemberNet(Protocol):
    """The shapes of a member's parameters."""

    @property
    def layout(self) -> Layout: ...
    def init(self, seed: int) -> Tensor: ...


@dataclass(frozen=True)
class Kind:
    """A problem."""

    config: type[MemberConfig]
    net: Callable[[Any], MemberNet]
    step: Callable[[Any, Sequence[Any], int, Tensor, Tensor | None], MemberStep]
    metrics: tuple[str, ...]
    free: tuple[str, ...] = ()
    """Settings in which members may differ, besides seed, mask and the phases' rates, gamma and lambda."""
    lost: Callable[[Tensor], Tensor] = lambda values: values[0].isnan()
    """Whether the metrics (metrics, M) of a step, or their mean over some, say that a member learns nothing, (M,)."""


@dataclass
class State:
    """Where a run stands."""

    phase: int
    step: int
    tensors: dict[str, Tensor]  # Theta; while a phase runs also Adam's m and v, and perhaps mask, last, window


@dataclass(frozen=True)
class Ensemble:
    """What all phases have in common: a `Training` of the loop."""

    kind: Kind
    members: Sequence[MemberConfig]
    net: MemberNet
    folder: RunFolder
    at: State
    Theta: Tensor  # (M, length), changed in place

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(phase.steps for phase in self.members[0].phases)

    def phase(self, number: int, resumes: bool) -> EnsemblePhase:
        return EnsemblePhase(self, number, self.at if resumes else None)

    def save_phase(self, number: int) -> None:
        self.save(self.folder.phase(number), number, self.steps[number - 1], {"Theta": self.Theta})

    def save(self, path: Path, phase: int, step: int, tensors: dict[str, Tensor]) -> None:
        save_state(path, [to_dict(m) for m in self.members], State(phase, step, tensors))


def train_members(
    kind: Kind, members: Sequence[MemberConfig], out: Path, resume: bool = False, quiet: bool = False
) -> Tensor:
    """Meta-train the members and leave everything in the folder `out`; Theta (M, length) at the end."""
    check_alike(kind, members)
    if not any(phase.steps for phase in members[0].phases):
        raise UserError("All three phases have 0 steps, so there is nothing to train: give one of them some.")
    engine, folder = members[0].engine, RunFolder(out)
    device = pick_device(engine.device)
    _require_run(out, resume)
    with folder.locked() if resume else folder.begun(lambda: _require_run(out, resume)):
        at = _begin(kind, members, folder, resume)
        ensemble = Ensemble(kind, members, kind.net(members[0]), folder, at, at.tensors["Theta"].to(device))
        run_phases(ensemble, (at.phase, at.step), engine, device, quiet)
    return ensemble.Theta


def _require_run(out: Path, resume: bool) -> None:
    """A run to resume, or none."""
    there = (out / "members.json").exists()
    strange = [n for n in ("config.toml", "checkpoint.safetensors", "phase1.safetensors") if (out / n).exists()]
    if there and not resume:
        raise UserError(f"There is a run in {out} already: resume it, or choose another folder.")
    if strange and not there:
        raise UserError(f"{out} holds {strange[0]} but no members.json, a run of another kind: choose another folder.")
    if resume and not there:
        raise UserError(f"There is no run in {out} to resume.")


def _begin(kind: Kind, members: Sequence[MemberConfig], folder: RunFolder, resume: bool) -> State:
    """Where the run stands; a new one is written down."""
    configs, path = [to_dict(m) for m in members], folder.path / "members.json"
    if not resume:
        net = kind.net(members[0])
        at = State(1, 0, {"Theta": torch.stack([net.init(m.seed) for m in members])})
        save_state(folder.checkpoint, configs, at)
        MEMBERS.write(path, {"members": configs, "record": record() | {RESUMED: []}})
        return at
    found, at = load_state(kind, folder.checkpoint)
    if [_identity(m) for m in found] != [_identity(m) for m in members]:
        raise UserError(
            f"The run in {folder.path} has other settings: resume it with the same, or choose another folder."
        )
    if (at.phase, at.step) < (3, members[0].phases[2].steps):
        about = MEMBERS.read(path)
        MEMBERS.write(path, about | {"record": resumed(about.get("record"), at)})
    folder.rewind_metrics(at.phase, at.step)
    return at


class EnsemblePhase:
    """One phase of all members: a `Phase` of the loop. Members that are alike so far take their steps as one."""

    keeps_window = True

    def __init__(self, ensemble: Ensemble, number: int, resumed: State | None) -> None:
        self.ensemble, self.number, self.window = ensemble, number, list[Tensor]()
        self.fork = Fork.of(ensemble.members, number)
        firsts, self.Theta = self.fork.firsts, ensemble.Theta[self.fork.firsts]
        members = [ensemble.members[i] for i in firsts]
        phases = [m.phases[number - 1] for m in members]
        self.steps, self.watched = phases[0].steps, Watch(members, ensemble.kind.lost)
        mask = masks(ensemble.net, self.Theta, members) if any(p.lam for p in phases) else None
        self.step = ensemble.kind.step(ensemble.net, members, number, self.Theta, mask)
        self.state = self.step.saved | ({} if mask is None else {"mask": mask})
        if resumed is None:
            return
        for name, tensor in self.state.items():
            if name not in resumed.tensors:
                path = ensemble.folder.path
                raise UserError(f"The checkpoint in {path} holds no {name}, so it cannot be resumed: begin anew.")
            tensor.copy_(resumed.tensors[name][firsts])
        if "window" in resumed.tensors:
            self.window.append(resumed.tensors["window"][firsts].permute(1, 2, 0).cpu())

    def watch(self, metrics: Tensor, done: int) -> float:
        self.watched.see(metrics, last=done == self.steps)
        going = ~self.watched.lost
        if not bool(going.any()):  # else the others go on, and those lost are found to be so when they are measured
            what = "All trajectories of a run diverge"
            raise Diverged(f"{what} in phase {self.number} near step {done}: lower its rates.")
        return float(metrics[:, 0, going].nanmean())

    def log(self, done: int, metrics: Tensor, speed: float) -> None:
        line: dict[str, Any] = {"phase": self.number, "step": done}
        means = metrics.nanmean(0)[:, self.fork.places].tolist()
        for name, numbers in zip(self.ensemble.kind.metrics, means, strict=True):
            line[name] = [number if math.isfinite(number) else None for number in numbers]
        self.ensemble.folder.add_metrics(line)

    def save(self, done: int) -> None:
        if not bool(self.Theta.isfinite().all(1).any()):
            raise Diverged(f"Theta is no longer finite in phase {self.number} near step {done}: lower its rates.")
        ensemble, places = self.ensemble, self.fork.places
        ensemble.Theta.copy_(self.Theta[places])
        if done == self.steps:
            ensemble.save_phase(self.number)
        since = {"window": torch.cat(self.window).permute(2, 0, 1)} if self.window else {}
        every = {name: tensor[places] for name, tensor in (self.state | since).items()}
        ensemble.save(ensemble.folder.checkpoint, self.number, done, every)
        for sentence in self.watched.sentences(self.number) if done == self.steps else ():
            warn(f"kcciol: {sentence}")


def masks(net: MemberNet, Theta: Tensor, members: Sequence[MemberConfig]) -> Tensor:
    """Algorithm 3 for each member."""
    return torch.stack([get_mask(net.layout, one, m.mask, m.seed) for one, m in zip(Theta, members, strict=True)])


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


def save_state(path: Path, members: list[dict[str, Any]], state: State) -> None:
    """A state of training as one file."""
    write_tensors(path, FORMAT, {"members": members, "phase": state.phase, "step": state.step}, state.tensors)


def load_state(kind: Kind, path: Path) -> tuple[list[Any], State]:
    """Such a file."""
    header, tensors = read_tensors(path, FORMAT)
    try:
        if not isinstance(header["members"], list) or not header["members"]:
            raise ValueError("it has no members")
        members = [from_dict(kind.config, member) for member in header["members"]]
        for name, low, high in (("phase", 1, 3), ("step", 0, 10**9)):
            if type(header[name]) is not int or not low <= header[name] <= high:
                raise ValueError(f"its {name} is {quoted(header[name])}")
        check_alike(kind, members)
        _check_tensors(tensors, len(members), kind.net(members[0]).layout.length)
    except UserError as error:
        raise UserError(f"The checkpoint {path} cannot be used: {error}") from None
    except (ValueError, KeyError) as error:
        raise UserError(f"The checkpoint {path} is of another kind ({error}): use another one.") from None
    return members, State(header["phase"], header["step"], tensors)


def _check_tensors(tensors: Tensors, members: int, length: int) -> None:
    """Each has a row for each member, and those that go with Theta are as long as it is."""
    for name in {"Theta", *tensors}:
        shape, dtype = tuple(tensors[name].shape), tensors[name].dtype
        fits = shape == (members, length) if name in ("Theta", "m", "v", "last", "mask") else shape[:1] == (members,)
        if not fits or not dtype.is_floating_point:
            raise ValueError(f"{name} is {shape} of {dtype}")
