"""Everything that goes on from one phase 1: trained, measured and kept, each part once.

A family is a setting, a reset and a seed. What is there is not made again, so that it may be cut at any time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from kcciol.config import Config
from kcciol.data.classset import Splits
from kcciol.encoders.run import Representation
from kcciol.encoders.run import load as load_representation
from kcciol.engine.device import pick_device
from kcciol.engine.record import record
from kcciol.engine.run_folder import RunFolder
from kcciol.errors import UserError
from kcciol.files import read_json, write_json
from kcciol.meta.phases import train
from kcciol.paper.consolidation.heads import HEADS, Measurer, Measures
from kcciol.paper.consolidation.plan import Condition, EarlyStop, ResetKind, Setting, config_of
from kcciol.paper.consolidation.sets import load_sets
from kcciol.paper.progress import say
from kcciol.paper.representations import plain
from kcciol.serialization import to_dict

RESULT = "families/*/result.json"  # in the folder of all families


@dataclass(frozen=True)
class Candidate:
    """A point of a training that may be chosen."""

    condition: str
    option: str
    step: int
    path: Path

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.condition, self.option, f"step {self.step}")))


@dataclass(frozen=True)
class Family:
    """What goes on from one phase 1, in the folder `out`."""

    setting: Setting
    reset: ResetKind
    seed: int
    out: Path
    device: str = "auto"
    root: str = ""

    def __str__(self) -> str:
        return f"{self.setting.name}, reset {self.reset}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return self.out / "families" / f"{self.setting.name}-{self.reset}-seed{self.seed}"

    @property
    def result(self) -> Path:
        return self.folder / Path(RESULT).name

    @functools.cached_property
    def conditions(self) -> dict[str, Condition]:
        return {condition.name: condition for condition in self.setting.conditions(self.reset)}

    @functools.cached_property
    def data(self) -> Splits:
        return self.load()

    def load(self) -> Splits:
        """The images, of which no more are kept than are looked at."""
        return load_sets(self.setting, self.root)

    def require_images(self) -> None:
        """Refuse at once where there are none; those of a data set with a cache are then in it."""
        self.load()

    @property
    def heads(self) -> tuple[str, ...]:
        """By whose names accuracies are kept."""
        return tuple(HEADS)

    @property
    def leader(self) -> str:
        """The head by which the training is chosen that a later phase goes on from: the paper's."""
        return "adam"

    @property
    def part(self) -> str:
        """Of the file of results; empty: the main one."""
        return ""

    def make(self) -> None:
        """Train and measure what is not there yet, and write down the whole."""
        rows: dict[str, Any] = {}
        curves: dict[str, Any] = {}
        for name, condition in self.conditions.items():
            rows[name] = self._row(list(self.ends(name)))
            if condition.stops:
                curves[name] = self._curve(name)
            self._write(rows, curves)
        for stop in self.setting.stops:
            rows[stop.name] = self._row(list(self.points(stop)))
        self._write(rows, curves)
        say(f"{self}: done")

    def _write(self, rows: dict[str, Any], curves: dict[str, Any]) -> None:
        """Write down what is known so far."""
        about = {"setting": self.setting.name, "reset": self.reset, "seed": self.seed, "images": self._images}
        about |= {"part": self.part} if self.part else {}
        config = to_dict(replace(self.setting.config, seed=self.seed))
        write_json(self.result, {**about, "rows": rows, "curves": curves, "config": config, "record": self._record})

    @property
    def found(self) -> dict[str, Any]:
        """What is written down."""
        return read_result(self.result)

    @property
    def complete(self) -> bool:
        """Whether all of it is."""
        wanted = {*self.conditions, *(stop.name for stop in self.setting.stops)}
        return self.result.exists() and wanted <= set(self.found["rows"])

    @functools.cached_property
    def _images(self) -> str:
        return self.data.identity

    @functools.cached_property
    def _record(self) -> dict[str, Any]:
        return record()

    # --- training -----------------------------------------------------------------------------------------------------

    def ends(self, name: str) -> Iterator[Candidate]:
        """The ends of a condition's trainings, which are made if they are not there."""
        condition = self.conditions[name]
        before = self._settings_like(condition)
        for option in condition.options:
            config = config_of(self.setting, self.reset, self.seed, condition, option, before)
            folder = self._train(condition, option, config)
            steps = config.phases[condition.phase - 1].steps
            yield Candidate(name, option, steps, folder.phase(condition.phase))

    def _settings_like(self, condition: Condition) -> Mapping[str, Any]:
        """Of the training that a condition is like."""
        if not condition.like:
            return {}
        found = self.chosen(condition.like, self.leader)
        return self.conditions[found.condition].options[found.option]

    def points(self, stop: EarlyStop) -> Iterator[Candidate]:
        """What was learned on the way, of a condition with several trainings on the way through the chosen one."""
        for name in stop.of:
            yield from self._along(self.chosen(name, self.leader))

    def chosen(self, name: str, head: str) -> Candidate:
        """The best training of a condition, on base classes kept out of training."""
        return self._best(list(self.ends(name)), head)

    def _along(self, end: Candidate) -> list[Candidate]:
        """The points of a training that were kept, and its end."""
        condition = self.conditions[end.condition]
        folder, every = RunFolder(end.path.parent), self.setting.config.engine.checkpoint_every
        kept = range(every, end.step, every)
        return [replace(end, step=step, path=folder.kept(condition.phase, step)) for step in kept] + [end]

    def _train(self, condition: Condition, option: str, config: Config) -> RunFolder:
        folder = self._run(condition, option)
        if folder.phase(condition.phase).exists():
            return folder
        start = self.chosen(condition.after, self.leader).path if condition.after else None
        resume = folder.config.exists()
        engine = replace(config.engine, keep=condition.stops, device=self.device)  # type: ignore[arg-type]
        config = replace(config, engine=engine, data=replace(config.data, root=self.root))
        train(
            config,
            self.data.base,
            folder.path,
            resume,
            None if resume else start,
            quiet=True,
            last=condition.phase,
            module=self.module(condition),
        )
        say(f"{self}: {condition.name} {option}: trained")
        return folder

    def _run(self, condition: Condition, option: str) -> RunFolder:
        return RunFolder(self.folder / "runs" / plain(f"{condition.name} {option}"))

    def module(self, condition: Condition) -> nn.Module | None:
        """A network of one's own, where one is trained."""
        return self.setting.module

    # --- measuring ----------------------------------------------------------------------------------------------------

    def _row(self, candidates: list[Candidate]) -> dict[str, Any]:
        """By head: the best of the candidates on base classes kept out, and what it is worth on novel classes."""
        return {head: self._cell(candidates, head) for head in self.heads}

    def _cell(self, candidates: list[Candidate], head: str) -> dict[str, Any]:
        best = self._best(candidates, head)
        kept_out = self.kept_out(best)
        about = {"option": best.option, "condition": best.condition, "step": best.step, **kept_out["heads"][head]}
        return about | {"seen": kept_out["seen"], **self._novel(best, head, about["settings"])}

    def _best(self, candidates: list[Candidate], head: str) -> Candidate:
        """The first of those with the highest score."""
        return max(candidates, key=lambda candidate: float(self.kept_out(candidate)["heads"][head]["score"]))

    def kept_out(self, candidate: Candidate) -> dict[str, Any]:
        """See `Measurer.kept_out`."""
        path = self.folder / "kept-out" / f"{plain(candidate.name)}.json"
        if not path.exists():
            self._keep(path, self._measurer.kept_out(self._load(candidate)))
        return read_result(path)

    def _novel(self, candidate: Candidate, head: str, settings: dict[str, Any]) -> dict[str, Any]:
        path = self.folder / "novel" / f"{plain(candidate.name)}-{plain(head)}.json"
        if not path.exists():
            self._keep(path, self._measurer.novel(self._load(candidate), head, settings))
        return read_result(path)

    def _load(self, candidate: Candidate) -> Representation:
        module = self.module(self.conditions[candidate.condition])
        return load_representation(candidate.path, pick_device(self.device), module)

    def _curve(self, name: str) -> list[dict[str, Any]]:
        """Along the chosen training: what classes trained on and classes kept out say."""
        points = ((point, self.kept_out(point)) for point in self._along(self.chosen(name, self.leader)))
        return [
            {"step": point.step, "seen": found["seen"], **{h: found["heads"][h]["score"] for h in self.heads}}
            for point, found in points
        ]

    @functools.cached_property
    def _measurer(self) -> Measures:
        return Measurer(self.setting, self.data, self.seed)

    @staticmethod
    def _keep(path: Path, value: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, value)


def read_result(path: Path) -> dict[str, Any]:
    """A measurement, or those of a family."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise UserError(f"{path} is no measurement: remove it, and it is made again.")
    return found
