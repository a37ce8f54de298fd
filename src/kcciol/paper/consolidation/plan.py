"""What is trained: two data sets, two resets, and from one phase 1 on everything that phases 2 and 3 are compared with.

A `Condition` is one or more trainings that differ in a strength; of these the one counts that does best on base classes
kept out of training. What follows it goes on from that one. All conditions of a phase take equally many steps.

Another network joins as a `Setting` with a module; encoders that are trained already, by our recipes, have a plan of
their own (`encoder_plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import nn

from kcciol.config import Config, EvaluationConfig, preset

ResetKind = Literal["zero", "none"]
PHASE1, PLAIN, NOTHING, L1 = "phase 1", "plain", "nothing", "l1"
KCCIOL, CONTROL = "lambda 0.0005, top", "control"
STRONG = (5e-4, 5e-2)  # lambdas: the paper's, and one that can be felt
HELD = {  # of what share the mask is, and which
    "top": (0.5, "top"),
    "random": (0.5, "random"),
    "bottom": (0.5, "bottom"),
    "all": (1.0, "top"),
}


@dataclass(frozen=True)
class Condition:
    """Trainings of one phase that differ in a strength."""

    name: str
    phase: int
    options: Mapping[str, Mapping[str, Any]]
    """By a name: settings of the phase."""
    after: str = ""
    """The condition whose best training they go on from."""
    like: str = ""
    """The condition whose best training's settings they have, too."""
    mask: Mapping[str, Any] = field(default_factory=dict)
    stops: bool = False
    """What was learned on the way is kept, so that one may stop early."""


@dataclass(frozen=True)
class EarlyStop:
    """Not trained: the best point on the way through these conditions."""

    name: str
    of: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A data set, a network, the number of steps, and how streams are drawn."""

    name: str
    config: Config
    strengths: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """By regulariser: the strengths that compete."""
    resets: tuple[ResetKind, ...] = ("zero", "none")
    module: nn.Module | None = None
    """A network of one's own, with the weights that phase 1 begins with."""

    @property
    def streams(self) -> EvaluationConfig:
        return self.config.evaluation

    @property
    def stops(self) -> tuple[EarlyStop, ...]:
        """What is measured besides what is trained."""
        return STOPS

    @property
    def classes(self) -> int:
        """In a stream."""
        return self.streams.classes[0]

    def conditions(self, reset: ResetKind) -> tuple[Condition, ...]:
        """In the order in which they can be trained. What phase 3 should hold is asked with the first reset only."""
        one = self.config.phase1
        longer = {"alpha": one.alpha, "beta": one.beta, "steps": self.config.total_steps - one.steps}
        found = [
            Condition(PHASE1, 1, {"": {}}, stops=True),
            Condition(PLAIN, 2, {"": longer}, PHASE1, stops=True),
            Condition(NOTHING, 2, {"": {}}, PHASE1, stops=True),
        ]
        found += [Condition(name, 2, some, PHASE1, stops=name == L1) for name, some in self.strengths.items()]
        found += [
            Condition(CONTROL, 3, {"": {}}, NOTHING, stops=True),
            Condition(KCCIOL, 3, {"": {"lam": STRONG[0]}}, L1, stops=True),
            Condition("lambda 0", 3, {"": {}}, L1),
        ]
        if reset == self.resets[0]:
            found.append(Condition("l1 continued", 3, {"": {}}, L1, like=L1))
            for lam in STRONG:
                for held, (delta, which) in HELD.items():
                    name = f"lambda {lam:g}, {held}"
                    if name != KCCIOL:
                        mask = {"delta": delta, "which": which}
                        found.append(Condition(name, 3, {"": {"lam": lam}}, L1, mask=mask))
        return tuple(found)


STOPS = (
    EarlyStop("plain, stopped early", (PHASE1, PLAIN)),
    EarlyStop("control, stopped early", (PHASE1, NOTHING, CONTROL)),
    EarlyStop("kcciol, stopped early", (PHASE1, L1, KCCIOL)),
)


def config_of(
    setting: Setting,
    reset: ResetKind,
    seed: int,
    condition: Condition,
    option: str,
    before: Mapping[str, Any] | None = None,
) -> Config:
    """What a training of a condition is made with: its phase alone has steps. before: the settings of the training that
    it is like."""
    config = replace(setting.config, seed=seed, meta=replace(setting.config.meta, reset=reset))
    phases: dict[str, Any] = {}
    for number, phase in enumerate(config.phases, 1):
        own = {**(before or {}), **condition.options[option]}
        phases[f"phase{number}"] = replace(phase, **(own if number == condition.phase else {"steps": 0}))
    return replace(config, mask=replace(config.mask, **condition.mask), **phases)


# --- the two data sets ------------------------------------------------------------------------------------------------

Steps = tuple[int, int, int]
RATES = (1e-3, 3e-4, 3e-4)  # beta of each phase


@dataclass(frozen=True)
class StreamSize:
    """How many classes a stream has, and of each how many images are learned and asked."""

    classes: int
    train_samples: int
    test_samples: int


def setting_of(
    start: Config,
    data: Mapping[str, Any],
    streams: StreamSize,
    steps: Steps,
    every: int,
    strengths: Mapping[str, Mapping[str, Mapping[str, Any]]],
    channels: int,
) -> Setting:
    """A small version of a preset: fewer channels and steps, and less to train on. every: steps between the points at
    which training may stop early."""
    evaluation = EvaluationConfig(
        classes=(streams.classes,),
        trajectories=20,
        train_samples=streams.train_samples,
        test_samples=streams.test_samples,
        rates=(1e-1, 3.2e-2, 1e-2, 3.2e-3, 1e-3, 3.2e-4, 1e-4),
        rule="base",
        search_trajectories=3,
        curve_points=1,
    )
    phases = {
        f"phase{number}": replace(phase, steps=count, alpha=0.01, beta=beta, gamma=0.0, lam=0.0)
        for number, (phase, count, beta) in enumerate(zip(start.phases, steps, RATES, strict=True), 1)
    }
    config = replace(
        start,
        data=replace(start.data, **data),
        net=replace(start.net, channels=channels, strides=(2, 1, 2, 1)),
        engine=replace(start.engine, precision="float32", checkpoint_every=every, log_every=every),
        evaluation=evaluation,
        **phases,  # type: ignore[arg-type]
    )
    return Setting(start.data.name, config, strengths)


USUAL: dict[str, dict[str, dict[str, Any]]] = {
    L1: {f"{gamma:g}": {"gamma": gamma} for gamma in (1e-5, 5e-5, 2e-4)},
    "decay": {f"{decay:g}": {"decay": decay} for decay in (0.1, 1.0, 5.0)},
    "dropout": {f"{share:g}": {"dropout": share} for share in (0.1, 0.3, 0.5)},
}
PHOTOS = {f"flips, shift {shift}": {"flip": True, "shift": shift} for shift in (1, 2, 4)}
CHARACTERS = {
    f"shift {shift}, turn {turn}": {"shift": shift, "turn": float(turn)} for shift, turn in ((1, 0), (1, 8), (2, 15))
}
OMNIGLOT = setting_of(  # 200 of its base classes: with all 863 so short a training does not overfit
    preset("omniglot"),
    {"size": 28, "base_classes": 300, "validation_classes": 100},
    StreamSize(50, 15, 5),
    (4000, 2000, 2000),
    1000,
    {**USUAL, "augment": CHARACTERS},
    channels=32,
)
CIFAR100 = setting_of(  # 50 base classes, a sixth of their images
    preset("cifar100"),
    {"train_samples": 100, "validation_classes": 20},
    StreamSize(20, 30, 30),
    (3000, 1500, 1500),
    500,
    {**USUAL, "augment": PHOTOS},
    channels=32,
)
SETTINGS = {setting.name: setting for setting in (OMNIGLOT, CIFAR100)}
