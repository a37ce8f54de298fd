"""From a representation and its data to a result that can be kept: features or images, any learner, the record."""

from __future__ import annotations

import dataclasses
import math
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kcciol.config import EvaluationConfig
from kcciol.data import load as load_data
from kcciol.data.classset import ClassSet, Splits
from kcciol.data.examples import Examples
from kcciol.encoders.run import Representation
from kcciol.encoders.run import load as load_representation
from kcciol.engine.device import pick_device, precision
from kcciol.engine.run_folder import RunFolder
from kcciol.errors import UserError, quoted
from kcciol.evaluation.budget import within_budget
from kcciol.evaluation.choose import candidates, run_grid
from kcciol.evaluation.protocol import HEAD, Scenario, Trained, Which, evaluate_learner
from kcciol.evaluation.results import with_record
from kcciol.evaluation.stream import Order
from kcciol.learners import learner_type
from kcciol.learners.base import check_settings
from kcciol.learners.grid import Grid
from kcciol.learners.model import Head, Model, Network
from kcciol.serialization import from_dict, to_dict


def open_run(
    path: Path, root: str = "", device: str = "auto", untrained: bool = False
) -> tuple[Representation, Splits]:
    """A representation file, or the network that its training began with, and the data set it was trained on."""
    place = pick_device(device)
    representation = load_representation(path, place)
    config = representation.config
    root = root or RunFolder(path.parent).remembered_root()
    if root:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, root=root))
    data = load_data(config.data)
    representation.config = config  # of results, which name the data that they are of
    return (Representation.untrained(config, data.base, place) if untrained else representation), data


def measure(
    representation: Representation,
    data: Splits,
    evaluation: EvaluationConfig,
    split: Which = "novel",
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Algorithm 4 on novel classes, or on base classes kept out of training; JSON-ready, with the record."""
    scenario = scenario_of(representation, data, evaluation, split=split, base=evaluation.rule == "base")
    result = measure_learner(scenario, HEAD, evaluation, progress=progress)
    return with_record({"split": split, **result}, representation)


def scenario_of(
    representation: Representation,
    data: Splits,
    config: EvaluationConfig,
    trains: Trained = "head",
    split: Which = "novel",
    base: bool = True,
) -> Scenario:
    """Classes to learn, and base classes to choose settings on: those kept out of training where there are any, else
    those that theta was trained on. With split "validation" the held-out base classes are what is learned.

    base: whether base classes are needed at all.
    """
    classes = data.novel if split == "novel" else data.validation
    if len(classes) == 0:
        raise UserError(f"There are no {split} classes: train with data.{split}_classes above 0.")
    representation.refuse_known(classes, split)
    kept_out = len(data.validation) > 0 and split == "novel"
    known = data.validation if kept_out else data.base
    short = kept_out and len(known) < max(config.classes) and config.rule == "base" and not config.search_classes
    return Scenario(
        novel=examples(representation, classes, config, trains),
        model=model_of(representation, trains),
        base=examples(representation, known, config, trains) if base else None,
        filler=examples(representation, data.base, config, trains) if base and short else None,
        W=representation.W if trains == "head" else None,
        trains=trains,
        split=split,
        chosen_among="base classes kept out of training" if kept_out else "base classes trained on",
        image_bytes=math.prod(data.base.image_shape),
    )


def examples(representation: Representation, data: ClassSet, config: EvaluationConfig, trains: Trained) -> Examples:
    """Features when theta is frozen, images when all of the network is trained."""
    cut = config.train_samples
    if trains == "head":
        return representation.split_features(data, cut, config.test_samples, config.redraw)
    data.require(cut + config.test_samples, "evaluation (evaluation.train_samples + evaluation.test_samples)")
    count = int(data.counts.min()) if config.redraw else cut + config.test_samples
    images = data.images[:, :count].to(representation.Theta.device)
    return Examples(images[:, :cut], images[:, cut:])


def model_of(representation: Representation, trains: Trained) -> Model:
    """What is trained: a head on features, or the whole network."""
    if trains == "head":
        return Head(representation.problem.encoder.features)
    problem = representation.problem
    if not problem.by_hand:
        raise UserError(
            "Learners that train all of a network know the paper's convolutions only, but this representation has "
            f"net.module {quoted(representation.config.net.module)}: train the head only."
        )
    theta = {name: t.contiguous() for name, t in problem.theta(representation.Theta).items()}
    return Network(representation.config.net, problem.encoder.image_shape, theta)


def measure_learner(
    scenario: Scenario,
    name: str,
    config: EvaluationConfig,
    fixed: Mapping[str, Any] | None = None,
    grid: Grid | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Choose a learner's settings, then let it learn; JSON-ready, without the record.

    fixed: settings that are not chosen; grid: what is tried of the others, by default the learner's own grid. Where
    neither is given, the head of Algorithm 4 has the settings of the config.
    """
    began = time.perf_counter()
    method = learner_type(name)
    as_in_run = name == HEAD and scenario.W is not None and not fixed and grid is None
    if not as_in_run:
        scenario = dataclasses.replace(scenario, W=None)
    if grid is None:
        grid = run_grid(config) if as_in_run else method.grid_for(scenario.trains)
    settings = dict(fixed or {})
    if config.budget_images:
        settings |= within_budget(scenario, name, config, settings)
    if scenario.base is not None:
        settings = method.fit_settings(scenario.base.train) | settings
    order: Order = "shuffled" if method.card.shuffled else config.order
    options = candidates(name, settings, grid)
    clock = time.perf_counter()
    # a head is learned in float32; of a whole network, on a GPU, the products are rounded to TF32
    with precision("float32" if scenario.trains == "head" else "tf32", scenario.novel.train.device):
        measured = evaluate_learner(scenario, method, config, options, progress, order=order)
    result: dict[str, Any] = {
        "learner": name,
        "trains": scenario.trains,
        "chosen_on": scenario.chosen_on(config.rule),
        "order": order,
        "evaluation": to_dict(config),
        **measured.to_dict(),
        "replay": method.card.replay,
        "seconds": time.perf_counter() - clock,
        "total_seconds": time.perf_counter() - began,
    }
    if config.budget_images:
        budget = config.budget_images * scenario.image_bytes
        result |= {"budget_bytes": budget, "within_budget": sum(result["bytes"].values()) <= budget}
    return result


def require_fit(scenario: Scenario, name: str, fixed: Mapping[str, Any]) -> None:
    """Refuse a learner that does not go with what is trained, or settings that cannot be."""
    method = learner_type(name)
    method(scenario.model, candidates(name, fixed, method.grid_for(scenario.trains))[0])


def parse_settings(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Settings of a learner from words like slots=500."""
    kind = learner_type(name).settings_type
    hints = typing.get_type_hints(kind)
    found: dict[str, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise UserError(f"{word!r} is not a setting as name=value.")
        if key in found:
            raise UserError(f"{key} is set twice: once is enough.")
        try:
            found[key] = {int: int, float: float}.get(hints.get(key, str), str)(text)
        except ValueError:
            kind_of = "whole number" if hints.get(key) is int else "number"
            raise UserError(f"{key} is {text!r}, but must be a {kind_of}.") from None
    check_settings(from_dict(kind, found, name))
    return found
