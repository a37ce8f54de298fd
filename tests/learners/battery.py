"""Our learners under test, with settings small enough to check everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from kcciol.config import Config, EvaluationConfig, preset
from kcciol.learners import LEARNERS
from kcciol.learners.base import Learner
from kcciol.learners.knowledge import KIND
from kcciol.learners.model import Head, Model
from kcciol.meta.methods import with_method
from kcciol.testing.case import IMAGE, NET, WIDTH, Case, answers, case_of, examples, feed, network, same

__all__ = ["IMAGE", "NET", "WIDTH", "answers", "examples", "feed", "network", "same"]
SMALL: dict[str, Any] = {"rate": 0.1, "reserve": 3, "slots": 7, "replay": 3, "units": 9}
SMALL |= {"proxies": 3, "margin": 0.2, "chunk": 4, "epochs": 5, "draws": 2, "members": 2, "tune_steps": 20}
SMALL |= {"recent": 4, "anchor_steps": 5}

STREAMS = EvaluationConfig(
    classes=(3, 6), lengths="prefixes", rule="base", train_samples=5, test_samples=3, trajectories=3,
    search_trajectories=2,
)  # fmt: skip


def small(name: str, **settings: Any) -> dict[str, Any]:
    """Settings of this learner that make it quick, and these."""
    known = LEARNERS[name].settings_type.__dataclass_fields__
    return {key: value for key, value in SMALL.items() if key in known} | settings


def case(name: str, kind: str) -> Case:
    return case_of(name, {"head": "head", "network": "all"}[kind], small(name))


def make(
    name: str,
    model: Model | None = None,
    keys: tuple[int, ...] = (3,),
    device: str = "cpu",
    **settings: Any,
) -> Learner:
    """A small learner of this name."""
    method = LEARNERS[name]
    return method(model or default_model(name), method.settings_type(**small(name, **settings)), keys, device)


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


def knowledge(learner: Learner) -> dict[str, Tensor]:
    """What a learner knows, whatever its kind."""
    return {name: tensor for name, tensor in learner.state_dict().items() if name != KIND}


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
