"""What an experiment declares, and the representation under measurement that its cells are given."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F

from kcciol.config import Config, EvaluationConfig, preset
from kcciol.data import load as load_data
from kcciol.data.classset import ClassSet, Splits
from kcciol.encoders.run import Representation
from kcciol.encoders.run import load as load_representation
from kcciol.engine.checkpoint import Unusable
from kcciol.engine.device import pick_device, precision
from kcciol.errors import UserError
from kcciol.evaluation import Examples, evaluate
from kcciol.evaluation.choose import MARGIN
from kcciol.evaluation.measure import scenario_of
from kcciol.evaluation.protocol import Scenario, Trained
from kcciol.files import read_json, write_json
from kcciol.learners.grid import RATES
from kcciol.learners.model import Head
from kcciol.meta.methods import representation, with_method
from kcciol.meta.phases import train
from kcciol.nets.pixels import to_unit
from kcciol.paper.plot import Plot
from kcciol.paper.progress import say
from kcciol.serialization import to_dict

CHOSEN_ON = "base classes kept out of training"
Part = Literal["novel", "validation", "base"]


@dataclass(frozen=True)
class Column:
    """How a representation is trained; perhaps from the end of a phase of another column's run on."""

    preset: str
    method: str
    change: Callable[[Config], Config] = lambda config: config
    after: tuple[str, int] | None = None
    phase: int = 0
    """Measure the end of this phase; 0: the last."""

    @property
    def untrained(self) -> bool:
        """Whether its network is as random as it was drawn."""
        return not representation(self.method).trains


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    classes: tuple[int, ...]
    """Lengths of the streams of the data set's own table."""
    train_samples: int
    test_samples: int
    held_out: int
    """Base classes, the last, that are kept out of training: rates and settings are chosen on them."""
    redraw: bool = False
    """Draw the images of each class anew for each stream."""
    trajectories: int = 50


@dataclass(frozen=True)
class Cell:
    """One thing to measure on a representation."""

    spec: Callable[[Subject], dict[str, Any]]
    """What is measured and how, settings and grids included: a result of another spec is not this cell's."""
    run: Callable[[Subject], dict[str, Any]]
    key: Mapping[str, str] = field(default_factory=dict)
    """What tells it from the others of its part, where that is more than its name; it stands in its file."""


@dataclass(frozen=True)
class Study:
    """All that is made of one data set."""

    name: str
    sizes: Sizes
    columns: Mapping[str, Column]
    parts: Mapping[str, Callable[[str], Mapping[str, Cell]]]
    """By table: the cells of a column."""
    only: Mapping[str, tuple[str, ...]]
    """Parts that only these columns have."""
    tables: Callable[[Mapping[str, Any]], dict[str, Any]]
    """From all cells that are there (part -> column -> cell -> a result of each seed) to tables."""
    seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The only seeds of a part; where none are named, of a part in `only` the first, of another all."""
    longest: tuple[str, ...] = ()
    """Columns to begin with, when several are made at once."""
    draw: Callable[[Mapping[str, Any]], list[Plot]] = lambda found: []
    """From the same to pictures in a folder."""

    def has(self, part: str, column: str, seed: int) -> bool:
        """Whether a part is made of this column and seed."""
        if part in self.only and column not in self.only[part]:
            return False
        seeds = self.seeds.get(part, (0,) if part in self.only else None)
        return seeds is None or seed in seeds

    def key(self, part: str, column: str, name: str, cell: Cell) -> dict[str, str]:
        """Which cell of the study this is, as it stands in its file."""
        return {"study": self.name, "part": part, "column": column, "name": name, **cell.key}

    def root(self, column: str) -> str:
        """The column whose training this one's goes on from, through others if need be."""
        after = self.columns[column].after
        return column if after is None else self.root(after[0])


@dataclass(frozen=True)
class Workspace:
    """The folders that a reproduction works in."""

    root: str = ""
    runs: Path = Path("runs/reproduce")
    tiny: bool = False
    """A rehearsal on drawn characters: a small net, few steps; its numbers mean nothing."""


def masked(delta: float) -> Callable[[Config], Config]:
    """A column's change: phase 3 holds this share of the parameters."""
    return lambda config: replace(config, mask=replace(config.mask, delta=delta))


def tiny_sizes(sizes: Sizes) -> Sizes:
    return replace(sizes, classes=(3, 6), train_samples=5, test_samples=3, held_out=8, trajectories=2)


def tiny_config(config: Config) -> Config:
    data = replace(preset("quickstart").data, size=28, base_classes=24, novel_classes=12, samples=20, train_samples=0)
    data = replace(data, validation_classes=8, seed=config.data.seed)
    phases = {f"phase{i}": replace(p, steps=min(p.steps, 3)) for i, p in enumerate(config.phases, 1)}
    net = replace(
        config.net,
        channels=4,
        strides=(2, 2, 2),
        gate=min(config.net.gate, 2),
        hidden=min(config.net.hidden, 8),
        outputs=0,
    )
    trajectory = replace(config.trajectory, remember=min(config.trajectory.remember, 32))
    return replace(config, data=data, net=net, trajectory=trajectory, **phases)  # type: ignore[arg-type]


class Subject:
    """One representation, and what is needed to measure on it, made when it is first asked for."""

    def __init__(self, study: Study, column: str, seed: int, workspace: Workspace) -> None:
        self.study, self.column, self.seed, self.workspace = study, column, seed, workspace
        self.sizes = tiny_sizes(study.sizes) if workspace.tiny else study.sizes
        self.config = config_of(study, column, seed, workspace)
        self._features: dict[Part, Examples] = {}
        self._scenarios: dict[Trained, Scenario] = {}

    @functools.cached_property
    def data(self) -> Splits:
        return _data(self.config.data)

    @functools.cached_property
    def representation(self) -> Representation:
        return trained(self.study, self.column, self.seed, self.workspace, self.data)

    def after_phase(self, number: int) -> Representation:
        """The representation at the end of an earlier phase, which may be another column's."""
        path = end_of(self.study, self.column, number, self.seed, self.workspace, self.data)
        return load_representation(path, pick_device("auto"))

    def stream(self, **sizes: Any) -> EvaluationConfig:
        """Streams of this data set's sizes, but for those given, that are measured at prefixes."""
        s = self.sizes
        usual: dict[str, Any] = {"classes": s.classes, "trajectories": s.trajectories, "seed": self.seed}
        usual |= {"train_samples": s.train_samples, "test_samples": s.test_samples, "redraw": s.redraw}
        usual |= {"lengths": "prefixes", "rule": "base", "search_trajectories": 5, "search_classes": 100}
        config = EvaluationConfig(**(usual | sizes))
        if not self.workspace.tiny:
            return config
        small = s.classes if config.task_classes == 1 else (config.task_classes, 2 * config.task_classes)
        return replace(config, classes=small, trajectories=2, search_trajectories=2, search_classes=5)

    def features(self, part: Part) -> Examples:
        """Of novel classes, of those that settings are chosen on, or of those trained on."""
        if part not in self._features:
            self.representation.refuse_known(self.data.novel, "novel")
            self._features[part] = self._features_of(self.representation, part)
        return self._features[part]

    def _features_of(self, representation: Representation, part: Part) -> Examples:
        s = self.sizes
        data = {"novel": self.data.novel, "validation": self.data.validation, "base": self.data.base}[part]
        if part == "base":  # they only fill up streams: twice as many as that can take
            data = data.classes(0, min(len(data), 2 * max(0, max(s.classes) - len(self.data.validation)) or 1))
        return representation.split_features(data, s.train_samples, s.test_samples, s.redraw)

    def scenario(self, trains: Trained) -> Scenario:
        """What a learner of the head, or of the whole network, is measured on."""
        if trains not in self._scenarios:
            self._scenarios[trains] = self._scenario(trains)
        return self._scenarios[trains]

    def _scenario(self, trains: Trained) -> Scenario:
        if trains == "all":
            return scenario_of(self.representation, self.data, self.stream(), trains)
        novel, base = self.features("novel"), self.features("validation")
        size = math.prod(self.data.base.image_shape)
        return Scenario(novel, Head(novel.width), base, trains=trains, chosen_among=CHOSEN_ON, image_bytes=size)

    @functools.cached_property
    def pixels(self) -> Scenario:
        """Images of 28x28 as features."""
        novel, base = (self._pixels(part) for part in (self.data.novel, self.data.validation))
        return replace(self.scenario("head"), novel=novel, base=base, model=Head(novel.width))

    def _pixels(self, data: ClassSet) -> Examples:
        s = self.sizes
        count = int(data.counts.min()) if s.redraw else s.train_samples + s.test_samples
        images = data.images[:, :count].to(pick_device("auto"))
        small = [F.interpolate(to_unit(some, torch.float32), (28, 28), mode="area").flatten(1) for some in images]
        return Examples(torch.stack(small)[:, : s.train_samples], torch.stack(small)[:, s.train_samples :])

    def evaluations(self, classes: tuple[int, ...], optimizer: Any) -> list[EvaluationConfig]:
        """Algorithm 4 for each number of classes: W from zero, the rate chosen on the more streams the shorter they
        are."""
        s = self.sizes
        config = EvaluationConfig(
            rule="base",
            optimizer=optimizer,
            seed=self.seed,
            train_samples=s.train_samples,
            test_samples=s.test_samples,
            redraw=s.redraw,
            trajectories=s.trajectories,
        )
        lower = (1.8e-5, 1e-5, 5.6e-6, 3.2e-6, 1e-6)  # supervised features are large
        config = replace(config, rates=RATES if optimizer == "sgd" else (*config.rates, *lower))
        if self.workspace.tiny:
            return [replace(config, classes=(n,), search_trajectories=2) for n in s.classes]
        return [replace(config, classes=(n,), search_trajectories=max(4, 2000 // n)) for n in classes]

    def algorithm4(self, configs: list[EvaluationConfig], representation: Representation | None = None) -> Any:
        """Algorithm 4 on this representation, or another. All rates are tried for the first config, that of the
        shortest streams; for the others those around the last choice."""
        r = representation or self.representation
        parts: tuple[Part, ...] = ("novel", "validation", "base")
        f = {p: self.features(p) if representation is None else self._features_of(representation, p) for p in parts}
        found: dict[str, Any] = {}
        near: float | None = None
        for config in configs:
            with precision("float32", r.Theta.device):
                measured = evaluate(f["novel"], r.W, config, f["validation"], more=f["base"], near=near)
            found |= measured.to_dict()["classes"]
            (n,) = config.classes
            near = measured.classes[n].choice.rate
        return {"classes": found}


# What a cell's specification says of its streams: of all learners, and of the head of Algorithm 4
STREAM = ("classes", "train_samples", "test_samples", "redraw", "trajectories", "search_trajectories", "seed")
OF_LEARNERS = (*STREAM, "task_classes", "order", "search_classes", "budget_images")
OF_HEAD = (*STREAM, "optimizer", "rates", "rule", "start", "reinit", "outputs", "curve_points")


def stream_spec(config: EvaluationConfig, names: Sequence[str] = OF_LEARNERS) -> dict[str, Any]:
    return {name: value for name, value in to_dict(config).items() if name in names}


def search_spec(configs: list[EvaluationConfig]) -> dict[str, Any]:
    """What `algorithm4` does with these."""
    return {
        "algorithm 4": [stream_spec(config, OF_HEAD) for config in configs],
        "rates tried": f"all, then around the last, margin {MARGIN}",
    }


_data = functools.cache(load_data)


def config_of(study: Study, column: str, seed: int, workspace: Workspace) -> Config:
    """The settings that a column is trained with."""
    made = study.columns[column]
    start = preset(made.preset)
    data = replace(start.data, root=workspace.root, validation_classes=study.sizes.held_out)
    config = made.change(with_method(replace(start, seed=seed, data=data), made.method))
    return tiny_config(config) if workspace.tiny else config


SPENT = "seconds.json"  # how long the training in a folder has taken


def folder_of(study: Study, column: str, seed: int, workspace: Workspace) -> Path:
    return workspace.runs / study.name / f"{column}-seed{seed}"


def trained(study: Study, column: str, seed: int, workspace: Workspace, data: Splits) -> Representation:
    """The representation, trained if it is not there yet."""
    path = end_of(study, column, study.columns[column].phase, seed, workspace, data)
    return load_representation(path, pick_device("auto"))


def is_trained(study: Study, column: str, seed: int, workspace: Workspace) -> bool:
    """Whether a column can be measured without more training."""
    phase = study.columns[column].phase
    holder = _holder(study, column, phase)
    return _end(folder_of(study, holder, seed, workspace), config_of(study, holder, seed, workspace), phase).exists()


def end_of(study: Study, column: str, phase: int, seed: int, workspace: Workspace, data: Splits) -> Path:
    """The file of a column's representation at the end of a phase (0: the last), which may lie in the run of a column
    that it goes on from; trained as far as that, and no further, if it is not there yet."""
    column = _holder(study, column, phase)
    folder, config = folder_of(study, column, seed, workspace), config_of(study, column, seed, workspace)
    after = study.columns[column].after
    resume, path = (folder / "config.toml").exists(), _end(folder, config, phase)
    start = None
    if not path.exists() and after is not None and not resume:
        start = end_of(study, *after, seed, workspace, data)
    try:
        if not path.exists():
            _train(study, folder, config, data, resume, start, phase)
        found = load_representation(path, "cpu")
    except Unusable as error:
        raise UserError(f"{error} (Remove {folder} to train it again.)") from None
    if what_matters(to_dict(found.config)) != what_matters(to_dict(config)):
        raise UserError(f"The run in {folder} was trained with other settings: move it away, or use other --runs.")
    return path


def _holder(study: Study, column: str, phase: int) -> str:
    """The column in whose run the end of this phase lies."""
    after = study.columns[column].after
    return _holder(study, after[0], phase) if after is not None and 0 < phase <= after[1] else column


def _end(folder: Path, config: Config, phase: int) -> Path:
    """The file at the end of a phase. 0: of the last that has steps; without any the first, at whose end a random
    network is saved."""
    last = max((i for i, phase in enumerate(config.phases, 1) if phase.steps), default=1)
    return folder / f"phase{phase or last}.safetensors"


def _train(
    study: Study, folder: Path, config: Config, data: Splits, resume: bool, start: Path | None, phase: int
) -> None:
    """To the end of a phase, or of all (0), noting how long it took."""
    before, began = _seconds(folder), time.monotonic()
    try:
        train(config, data.base, folder, resume, start, quiet=True, last=phase or 3)
    finally:
        seconds = before + time.monotonic() - began
        with contextlib.suppress(OSError):  # what went wrong, if anything, is of more interest
            write_json(folder / SPENT, seconds)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    say(f"{study.name}, {folder.name}: trained {f'to phase {phase} ' if phase else ''}in {seconds:.1f} s")


def what_matters(config: dict[str, Any]) -> dict[str, Any]:
    """A config without what changes nothing in a representation."""
    data = {k: v for k, v in config["data"].items() if k != "root"}
    return {k: v for k, v in config.items() if k not in ("engine", "evaluation", "data")} | {"data": data}


def trained_seconds(study: Study, column: str, seed: int, workspace: Workspace) -> float:
    """How long that took, without the phases of another column that it began after; 0 where it is not known, which is
    no reason to stop."""
    return _seconds(folder_of(study, column, seed, workspace))


def _seconds(folder: Path) -> float:
    try:
        return float(read_json(folder / SPENT))
    except (UserError, ValueError, TypeError, OverflowError):
        return 0.0
