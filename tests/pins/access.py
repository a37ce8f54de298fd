"""Where the pins reach into the package: the one place to touch when modules move. No number is decided here.

Functions only. What can go through the names of `kcciol` itself or the command line goes through them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

Numbers = NDArray[Any]


def command(*words: str | Path) -> None:
    """`kcciol WORDS` in this process: a new one would wait for torch each time."""
    from kcciol.cli import main

    asked = [str(word) for word in words]
    # when the pins were made, learners did not have these settings from the run's config, but always these values
    then = {"--lengths": "prefixes", "--rule": "base", "--search-trajectories": "5", "--search-classes": "100"}
    then["--curve-points"] = "10"
    if "--learner" in asked:
        asked += [word for pair in then.items() for word in pair]
    assert main(asked) == 0


def learner_names(trains: str) -> list[str]:
    """The learners for a head ("head") or the whole network ("all")."""
    from kcciol.learners import fitting

    return fitting(trains)


def learner_settings(name: str) -> set[str]:
    """The names of all settings of a learner."""
    from kcciol.learners import learner_type

    return set(learner_type(name).settings_type.__dataclass_fields__)


def representation_names() -> list[str]:
    from kcciol.meta.methods import REPRESENTATIONS

    return list(REPRESENTATIONS)


def config_of(path: Path) -> Any:
    """The config of a run folder."""
    from kcciol.config import read

    return read(path / "config.toml")


def tensors_of(path: Path) -> dict[str, Tensor]:
    """All that a file of training holds."""
    return load_file(path)


# --- what a file of results says --------------------------------------------------------------------------------------


def learner_results(path: Path) -> dict[str, dict[str, Any]]:
    """What `kcciol evaluate RUN --learner` has written, by learner."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["learners"]
    for result in found.values():  # when the pins were made a zero was said that no learner can change
        assert result["summary"].setdefault("forward_transfer", {"mean": 0.0})["mean"] == 0
    return found


def algorithm4_results(path: Path) -> dict[str, dict[str, Any]]:
    """What `kcciol evaluate RUN` has written, by the number of classes."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["classes"]
    return found


def sine_results(path: Path) -> list[dict[str, Any]]:
    """What `kcciol evaluate RUN` has written of sine functions, by member."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["results"]
    return found


def chosen_rate(length: Any) -> dict[str, Any]:
    """The rate of one result of Algorithm 4 with the scores of all that were tried."""
    found: dict[str, Any] = length["choice"]
    scores = {one["settings"]["rate"]: one["score"] for one in found["scores"]}
    return {"chosen": found["settings"]["rate"], "scores": {f"{rate:g}": scores[rate] for rate in sorted(scores)}}


# --- problems whose members train together ----------------------------------------------------------------------------


def train_sine(values: Sequence[dict[str, Any]], out: Path) -> Tensor:
    """Theta (M, length) of members of the regression with these settings."""
    from kcciol.paper.sine.settings import RegressionConfig
    from kcciol.paper.sine.train import train_sine as train
    from kcciol.serialization import from_dict

    return train([from_dict(RegressionConfig, one) for one in values], out, quiet=True)


def train_digits(values: Sequence[dict[str, Any]], images: Tensor, labels: Sequence[int], out: Path) -> Tensor:
    """Theta (M, length) of members of the generation on images (C, S, 1, h, w) of these labels."""
    from kcciol.paper.gan.settings import GenerationConfig
    from kcciol.paper.gan.train import train_digits as train
    from kcciol.serialization import from_dict

    return train([from_dict(GenerationConfig, one) for one in values], _class_set(images), labels, out, quiet=True)


def generate(values: dict[str, Any], Theta: Tensor, novel: Tensor, labels: Sequence[int], rate: float) -> list[Tensor]:
    """What one member makes of novel classes once it has learned them all: images (n, pixels) of each."""
    from kcciol.paper.gan.digits import evaluate
    from kcciol.paper.gan.network import Networks
    from kcciol.paper.gan.settings import GenerationConfig
    from kcciol.serialization import from_dict

    config = from_dict(GenerationConfig, values)
    nets = Networks(config.gan, novel[0, 0].numel())
    data = _class_set(novel)
    return evaluate(nets, Theta, data, list(labels), config.seed, rate, batches=2, batch=3, shown=4)[-1]


def _class_set(images: Tensor) -> Any:
    from kcciol.data.classset import ClassSet

    names = tuple(str(number) for number in range(len(images)))
    return ClassSet(images, torch.full((len(images),), images.shape[1]), names)


# --- random numbers ---------------------------------------------------------------------------------------------------


def learner_uniform(keys: Sequence[int], time: int, purpose: int, count: int) -> Numbers:
    from kcciol.random import uniform

    return uniform(np.array(keys), time, purpose, count)


def learner_sample(keys: Sequence[int], time: int, purpose: int, count: int, size: int) -> Numbers:
    from kcciol.random import sample

    return sample(np.array(keys), time, purpose, count, size)


def learner_integers(keys: Sequence[int], time: int, purpose: int, count: int, size: int) -> Numbers:
    from kcciol.random import integers

    return integers(np.array(keys), time, purpose, count, size)


def noise_keys(*numbers: int) -> Numbers:
    from kcciol.random import keyed

    return keyed(torch.arange(5), *numbers).numpy()


def noise_uniform(count: int, *numbers: int) -> Numbers:
    from kcciol.random import keyed, keyed_uniform

    return keyed_uniform(keyed(torch.arange(5), *numbers), count).numpy()


def drawn_streams(seed: int, purpose: str, available: int, classes: int, count: int) -> Numbers:
    """Which classes come in which order."""
    from kcciol.evaluation.stream import draw

    return draw(seed, purpose, available, classes, count).numpy()  # type: ignore[arg-type]


def drawn_filled(seed: int, purpose: str, first: int, others: int, fillers: int, count: int) -> Numbers:
    """The same with all of the first classes."""
    from kcciol.evaluation.stream import draw_filled

    return draw_filled(seed, purpose, first, others, fillers, count).numpy()  # type: ignore[arg-type]


def drawn_images(seed: int, purpose: str, classes: int, samples: int, sizes: tuple[int, int]) -> list[Numbers]:
    """Which images (number in the class, class) three trajectories learn and are asked of three classes each."""
    from kcciol.evaluation.selection import redrawn

    images = torch.arange(classes * samples).view(classes, samples, 1)
    streams = torch.arange(9).view(3, 3) % classes
    learned, asked, ids = redrawn(images, streams, [0, 1, 5], sizes, seed, purpose)  # type: ignore[arg-type]
    return [learned[ids].numpy(), asked[ids].numpy()]


def drawn_trajectories(
    seed: int, phase: int, block: int, settings: dict[str, int], counts: Sequence[int]
) -> list[Numbers]:
    """The images and classes of a block of meta-training's steps, of classes with so many images."""
    from kcciol.config import TrajectoryConfig
    from kcciol.data.classset import ClassSet
    from kcciol.meta.trajectory import Sampler

    images = torch.zeros(len(counts), max(counts), 1, 1, 1, dtype=torch.uint8)
    data = ClassSet(images, torch.tensor(counts), tuple(str(number) for number in range(len(counts))))
    table = Sampler(data, TrajectoryConfig(**settings)).draw(seed, phase, block)
    return [table.images.numpy(), table.classes.numpy()]


def planned(order: str, seed: int, trajectory: int) -> Numbers:
    """Which class and which of its examples comes when."""
    from kcciol.evaluation.stream import Schedule

    plan = Schedule(classes=6, samples=4, task_classes=2, order=order, seed=seed)  # type: ignore[arg-type]
    return plan.positions(trajectory)
