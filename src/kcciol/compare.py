"""Any pair of representation and learner: from images to a result that can be kept."""

from __future__ import annotations

import dataclasses
import math
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from kcciol.config import EngineConfig
from kcciol.data.classset import ClassSet, Splits
from kcciol.engine.execute import set_precision
from kcciol.engine.record import record
from kcciol.errors import UserError
from kcciol.evaluation.choose import Examples, candidates, choose, grid_of, run_copies
from kcciol.evaluation.continual import Course, Order, Plan
from kcciol.evaluation.metrics import summarize
from kcciol.learners import learner_type
from kcciol.learners.gaussian import fit_prior
from kcciol.learners.learner import Settings, check_settings
from kcciol.learners.model import Head, Model, Network
from kcciol.representation import Representation
from kcciol.values import from_dict, to_dict

Trained = Literal["head", "all"]
Split = Literal["novel", "validation"]


@dataclass(frozen=True)
class StreamConfig:
    """What a learner is put through."""

    classes: tuple[int, ...] = (10, 50, 100, 200)
    """Measure after so many classes; the last is the length of the stream."""
    task_classes: int = 1
    """Classes in a task."""
    order: Order = "class"
    """class: class after class; task: the examples of a task in random order; shuffled: all of them."""
    train_samples: int = 15
    """Examples of each class that are learned, each once."""
    test_samples: int = 5
    """Held-out examples of each class."""
    trajectories: int = 50
    """Streams that are reported."""
    search_trajectories: int = 5
    """Streams of base classes that settings are chosen on."""
    search_classes: int = 100
    """Classes in them (fewer when there are fewer)."""
    redraw: bool = False
    """Draw these examples of each class anew for each stream, out of all that the class has; else they are the same
    for all streams."""
    budget_images: int = 0
    """If above 0: replay learners keep as many examples as fit into the bytes of so many images."""
    seed: int = 0
    """Draws the streams."""

    def __post_init__(self) -> None:
        for name in ("task_classes", "train_samples", "test_samples", "trajectories", "search_trajectories"):
            if not 1 <= getattr(self, name) < 2**31:
                raise UserError(f"{name} is {getattr(self, name)}, but must be at least 1 (and below 2^31).")
        for n in self.classes:
            if n < 1 or n % self.task_classes:
                raise UserError(
                    f"{n} classes are no whole number of tasks of {self.task_classes} classes: choose others."
                )
        if not 0 <= self.budget_images < 2**31:
            raise UserError(f"budget_images is {self.budget_images}, but must be 0 or more (and below 2^31).")

    def plan(self, classes: int, order: Order) -> Plan:
        return Plan(
            classes, self.train_samples, self.task_classes, order, self.seed, self.test_samples if self.redraw else 0
        )


def examples(representation: Representation, data: ClassSet, config: StreamConfig, trains: Trained) -> Examples:
    """Features when theta is frozen, images when all of the network is trained."""
    cut = config.train_samples
    if trains == "head":
        features = representation.split_features(data, cut, config.test_samples, config.redraw)
        return Examples(features.train, features.test)
    data.require(cut + config.test_samples, "evaluation (train_samples + test_samples)")
    count = int(data.counts.min()) if config.redraw else cut + config.test_samples
    images = data.images[:, :count].to(representation.Theta.device)
    return Examples(images[:, :cut], images[:, cut:])


def model_of(representation: Representation, trains: Trained) -> Model:
    if trains == "head":
        return Head(representation.problem.encoder.features)
    problem = representation.problem
    theta = {name: t.contiguous() for name, t in problem.theta(representation.Theta).items()}
    return Network(representation.config.net, problem.encoder.image_shape, theta)


@dataclass(frozen=True)
class World:
    """What learners of one kind are measured on, made once for all of them."""

    novel: Examples
    base: Examples
    model: Model
    trains: Trained
    chosen_on: str
    image_bytes: int  # of one image, which budgets are counted in


def world(
    representation: Representation, data: Splits, config: StreamConfig, trains: Trained = "head", split: Split = "novel"
) -> World:
    """Examples to learn, and base classes to choose settings on: those kept out of training where there are any, else
    those that theta was trained on. With split "validation" the held-out base classes are what is learned."""
    _set_precision(trains, representation.Theta.device)
    classes = data.novel if split == "novel" else data.validation
    if len(classes) == 0:
        raise UserError(f"There are no {split} classes: train with data.{split}_classes above 0.")
    if max(config.classes) > len(classes):
        raise UserError(
            f"The stream has {max(config.classes)} classes, but there are {len(classes)} {split} ones: ask for fewer."
        )
    representation.refuse_known(classes, split)
    held_out = len(data.validation) and split == "novel"
    novel = examples(representation, classes, config, trains)
    base = examples(representation, data.validation if held_out else data.base, config, trains)
    chosen_on = "base classes kept out of training" if held_out else "base classes trained on"
    return World(novel, base, model_of(representation, trains), trains, chosen_on, math.prod(data.base.image_shape))


def _set_precision(trains: Trained, device: torch.device) -> None:
    """A head is learned in float32; of a whole network, on a GPU, the products are rounded to TF32."""
    set_precision(EngineConfig(precision="float32" if trains == "head" else "tf32"), device)


def measure_learner(
    where: World,
    name: str,
    config: StreamConfig,
    fixed: Mapping[str, Any] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Choose the learner's settings on base classes, then let it learn novel ones; JSON-ready, without the record."""
    began = time.perf_counter()
    _set_precision(where.trains, where.novel.train.device)
    order: Order = "shuffled" if name == "approx-iid" else config.order
    grid = grid_of(name, where.trains) if grid is None else grid
    settings, length = dict(fixed or {}), max(config.classes)
    if config.budget_images:
        settings |= within_budget(where, name, config, settings)
    if name == "gaussian":
        alpha, beta = fit_prior(where.base.train)
        settings = {"alpha": alpha, "beta": beta} | settings
    search = config.plan(min(config.search_classes, length) // config.task_classes * config.task_classes, order)
    choice = choose(name, where.model, candidates(name, settings, grid), where.base, search, config.search_trajectories)
    if say is not None and choice.scores:
        say(f"{name}: chose {describe(choice.settings)} in {choice.seconds:.1f} s")
    clock = time.perf_counter()
    rows, course = _report(where, name, choice.settings, config, order)
    seconds = time.perf_counter() - clock
    if say is not None:
        say(f"{name}: {rows[str(length)]['mean']:.1f} % after {length} classes, {seconds:.1f} s")
    result: dict[str, Any] = {
        "learner": name,
        "trains": where.trains,
        "chosen_on": where.chosen_on,
        "order": order,
        "stream": to_dict(config),
        "classes": rows,
        "summary": {k: v.to_dict() for k, v in course.summary().items()},
        "choice": choice.to_dict(),
        "replay": learner_type(name).card.replay,
        "bytes": dict(course.memory),
        "seconds": seconds,
        "total_seconds": time.perf_counter() - began,
    }
    if "forgetting" in result["summary"]:
        result["forgetting_by_task"] = course.forgetting().mean(0).tolist()
    if config.budget_images:
        budget = config.budget_images * where.image_bytes
        result |= {"budget_bytes": budget, "within_budget": sum(course.memory.values()) <= budget}
    return result


def _report(
    where: World, name: str, settings: Settings, config: StreamConfig, order: Order
) -> tuple[dict[str, Any], Course]:
    """The streams that are reported: a cell for each number of classes, and the course of the longest."""
    rows: dict[str, Any] = {}
    shuffled = order == "shuffled"
    # a shuffled stream has no prefixes: each length is a stream of its own
    for n in sorted(config.classes) if shuffled else [max(config.classes)]:
        asked = [k // config.task_classes for k in ([n] if shuffled else sorted(config.classes))]
        points = set() if shuffled else set(asked)
        if points and not learner_type(name).card.solves:  # and on the way, for the accuracy at any time
            tasks = n // config.task_classes
            points |= {max(1, tasks * i // 10) for i in range(1, 11)}
        copies, numbers = [settings] * config.trajectories, range(config.trajectories)
        course = run_copies(
            name, where.model, copies, numbers, where.novel, config.plan(n, order), "report", sorted(points), asked
        )
        for k in asked:
            values = course.at(k)
            cell = {**summarize(values).to_dict(), "by_trajectory": values.tolist()}
            rows[str(k * config.task_classes)] = cell | {"train": summarize(course.train[k]).to_dict()}
    return rows, course


def check_learner(where: World, name: str, fixed: Mapping[str, Any]) -> None:
    """Refuse a learner that does not go with what is trained, or settings that cannot be."""
    learner_type(name)(where.model, candidates(name, fixed, grid_of(name, where.trains))[0])


def within_budget(where: World, name: str, config: StreamConfig, fixed: Mapping[str, Any]) -> dict[str, int]:
    """The number of examples that a replay learner may keep in the bytes of `budget_images` images, all else that it
    keeps counted, but at least one; where all else alone takes more, as many as if it were nothing. For learners that
    keep none, nothing."""
    method = learner_type(name)
    kind = method.settings_type
    unit = next((n for n in ("slots", "ring") if n in {f.name for f in dataclasses.fields(kind)}), None)
    if unit is None or unit in fixed:
        return {}
    classes, budget = max(config.classes), config.budget_images * where.image_bytes
    costly = ("replay", "tune_steps", "tune_passes", "anchor_steps", "epochs")  # and without effect on what is kept
    quick: dict[str, Any] = {n: 0 for n in costly if n in kind.__dataclass_fields__}

    def kept(count: int) -> int:
        """The most bytes that a learner keeps on its way through all tasks, once filled with so many examples."""
        values: dict[str, Any] = {**fixed, **quick}
        example = where.novel.train[:1, 0]
        learner = method(where.model, kind(**values, **{unit: count}), (0,), example.device)
        total, most, before = count * classes if unit == "ring" else count, 0, 0
        for i in range(total):
            label = i * classes // total  # class after class, as they come
            if label // config.task_classes != before:
                learner.end_task()
                before = label // config.task_classes
            learner.observe(example, np.array([label]))
            most = max(most, sum(learner.memory().values())) if label == classes - 1 else most
        learner.end_task()
        return max(most, sum(learner.memory().values()))

    few, more = (1, 2) if unit == "ring" else (classes, 2 * classes)
    first = kept(few)
    each = (kept(more) - first) // (more - few)
    wait = max(0, settings_default(kind, fixed, "recent") - 1)  # examples that wait beside the memory
    besides = first - few * each
    return {unit: max(1, (budget - (besides if besides < budget else 0)) // each - wait)}


def settings_default(kind: type[Settings], fixed: Mapping[str, Any], name: str) -> int:
    """A setting as it will be; 0 where there is none of this name."""
    return int(fixed.get(name, getattr(kind(), name, 0)))


def parse_settings(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Settings of a learner from words like slots=500."""
    kind = learner_type(name).settings_type
    hints = typing.get_type_hints(kind)
    found: dict[str, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign:
            raise UserError(f"{word!r} is not a setting as name=value.")
        try:
            found[key] = {int: int, float: float}.get(hints.get(key, str), str)(text)
        except ValueError:
            kind_of = "whole number" if hints.get(key) is int else "number"
            raise UserError(f"{key} is {text!r}, but must be a {kind_of}.") from None
    check_settings(from_dict(kind, found, name))
    return found


def describe(settings: Any) -> str:
    """Settings in one line."""
    return ", ".join(
        f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in dataclasses.asdict(settings).items()
    )


def with_record(result: dict[str, Any], representation: Representation) -> dict[str, Any]:
    """The result with all that is needed to believe it."""
    return result | {"config": to_dict(representation.config), "record": record()}
