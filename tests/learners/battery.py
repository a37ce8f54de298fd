"""Learners of every kind on inputs small enough to check everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kcciol.config import Config, NetConfig, preset
from kcciol.learners import LEARNERS
from kcciol.learners.learner import Learner
from kcciol.learners.model import Head, Model, Network
from kcciol.nets.encoder import Encoder
from kcciol.representations import with_method

WIDTH = 10
NET = NetConfig(channels=4, strides=(2, 1))
IMAGE = (1, 10, 10)
SMALL: dict[str, Any] = {"rate": 0.1, "reserve": 3, "slots": 7, "replay": 3, "units": 9}
SMALL |= {"proxies": 3, "margin": 0.2, "chunk": 4, "epochs": 5, "draws": 2, "members": 2, "tune_steps": 20}
SMALL |= {"recent": 4, "anchor_steps": 5}


def network(seed: int = 0) -> Network:
    theta = Encoder(NET, IMAGE).init(torch.Generator().manual_seed(seed))
    return Network(NET, IMAGE, theta)


def make(
    name: str,
    model: Model | None = None,
    keys: tuple[int, ...] = (3,),
    device: str = "cpu",
    **settings: Any,
) -> Learner:
    """A small learner of this name."""
    method = LEARNERS[name]
    small = {name: value for name, value in SMALL.items() if name in method.settings_type.__dataclass_fields__}
    return method(model or default_model(name), method.settings_type(**(small | settings)), keys, device)


def kinds() -> list[tuple[str, str]]:
    """(method, model) for every pair that makes sense."""
    both = [(name, kind) for name in LEARNERS for kind in ("head", "network")]
    return [(name, kind) for name, kind in both if sensible(name, kind)]


def sensible(name: str, kind: str) -> bool:
    return {"head": "head", "network": "all"}[kind] in LEARNERS[name].card.trains


def model_of(kind: str) -> Model:
    return Head(WIDTH) if kind == "head" else network()


def default_model(name: str) -> Model:
    """The smallest that the method works with."""
    return model_of("head" if sensible(name, "head") else "network")


def examples(model: Model, count: int, seed: int = 0, classes: int = 4) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """(count, *input_shape) and labels (count,): class after class, each around its own centre."""
    generator = torch.Generator().manual_seed(seed)
    labels = np.arange(count) * classes // count
    if model.input_dtype == torch.uint8:
        centres = torch.randint(0, 256, (classes, *model.input_shape), generator=generator)
        noise = torch.randint(-20, 21, (count, *model.input_shape), generator=generator)
        return (centres[labels] + noise).clamp(0, 255).to(torch.uint8), labels
    centres = 2 * torch.randn(classes, *model.input_shape, generator=generator)
    return (centres[labels] + 0.3 * torch.randn(count, *model.input_shape, generator=generator)).relu(), labels


def feed(learner: Learner, x: Tensor, y: np.ndarray[Any, Any], tasks: bool = True) -> None:
    """A stream to all copies; a task ends where the label changes."""
    for i in range(len(x)):
        if tasks and i and y[i] != y[i - 1]:
            learner.end_task()
        learner.learn(x[i].to(learner.device).expand(learner.copies, *x[i].shape), np.full(learner.copies, y[i]))


def answers(learner: Learner, x: Tensor) -> Tensor:
    """The classes (B, m) that are answered for x (m, ...)."""
    return learner.scores(x.expand(learner.copies, *x.shape)).argmax(-1)


def same(a: Learner, b: Learner) -> bool:
    """Whether two learners know exactly the same."""
    one, two = a.state_dict(), b.state_dict()
    return one.keys() == two.keys() and all(torch.equal(_bits(one[n]), _bits(two[n])) for n in one)


def _bits(t: Tensor) -> Tensor:
    return t.nan_to_num(nan=12345.0) if t.is_floating_point() else t


def tiny(base: int, held_out: int, novel: int, samples: int, channels: int = 4) -> Config:
    """The quickstart, cut down to a second."""
    config = preset("quickstart")
    sizes: dict[str, Any] = {"base_classes": base, "validation_classes": held_out, "novel_classes": novel}
    return replace(
        config,
        data=replace(config.data, **sizes, samples=samples, train_samples=samples),
        net=replace(config.net, channels=channels, strides=(2, 2)),
        trajectory=replace(config.trajectory, classes=2, support=2, remember=4),
    )


def tiny_method(name: str, channels: int = 4, steps: int = 4) -> Config:
    """Such a config to learn theta by a method, in a few steps of each phase."""
    config = with_method(tiny(20, 0, 8, 12, channels), name)
    phases = {f"phase{i}": replace(p, steps=min(p.steps, steps)) for i, p in enumerate(config.phases, 1)}
    return replace(config, **phases)  # type: ignore[arg-type]
