"""What phases 2 and 3 are tried on once more: encoders that our recipes have trained, made small enough for two cores.

From the weights of one such training everything takes equally many steps of Algorithm 2. What it is held against is the
encoder as it is, and a training by the recipe that has seen as many more images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kcciol.config import Config, EvaluationConfig, preset
from kcciol.paper.consolidation.plan import L1, Condition, EarlyStop, ResetKind, Setting, StreamSize
from kcciol.recipes.config import Recipe, recipe

TRAINED, LONGER = "as trained", "trained longer"
ALONE, MOVING = "neither term", "neither term, batch statistics"
HALF, TOP, BOTH = "l1, half the steps", "lambda, top", "l1, then lambda"
FISHER, SOFT = "lambda, fisher", "lambda, soft"
L1_MOVING = "l1, batch statistics"


@dataclass(frozen=True)
class EncoderCondition(Condition):
    """Trainings from an encoder's weights; with phase 1, the training of the encoder itself."""

    longer: bool = False
    """Phase 1: with as many more images as the others see."""
    moving: bool = False
    """Batch normalisation takes the statistics of each step's images, and its running ones move; else they stay."""


@dataclass(frozen=True)
class EncoderSetting(Setting):
    """A recipe, and how Algorithm 2 goes on from what it gives. The phases of `config` have equally many steps."""

    recipe: Recipe = field(default_factory=Recipe)
    samples: int = 0
    """Images of a class that streams are drawn from; 0: all."""
    length: float = 4.0
    """Of features in Algorithm 2. With class means as W, logits are then about 15 apart, as in our recipes."""

    @property
    def stops(self) -> tuple[EarlyStop, ...]:
        return ()

    def lengths(self) -> dict[int, int]:
        """Classes in a stream: of novel ones, and of classes kept out of training, which may be fewer."""
        return {n: min(n, self.config.data.validation_classes) for n in self.streams.classes}

    def recipe_of(self, condition: EncoderCondition, seed: int) -> Recipe:
        """What an encoder is trained by."""
        rate, trajectory = self.recipe.rate, self.config.trajectory
        images = trajectory.count * (trajectory.classes * (trajectory.support + trajectory.query) + trajectory.remember)
        more = -(-images * self.config.phase2.steps // rate.batch) if condition.longer else 0
        return replace(self.recipe, seed=seed, rate=replace(rate, steps=rate.steps + more))

    def conditions(self, reset: ResetKind) -> tuple[Condition, ...]:
        half = self.config.phase2.steps // 2
        some = self.strengths
        return (
            EncoderCondition(TRAINED, 1, {"": {}}),
            EncoderCondition(LONGER, 1, {"": {}}, longer=True),
            EncoderCondition(ALONE, 2, some[ALONE], TRAINED),
            EncoderCondition(MOVING, 2, some[ALONE], TRAINED, moving=True),
            EncoderCondition(L1, 2, some[L1], TRAINED),
            EncoderCondition(L1_MOVING, 2, {"": {}}, TRAINED, like=L1, moving=True),
            EncoderCondition(TOP, 3, some[TOP], TRAINED),
            EncoderCondition(HALF, 2, {"": {"steps": half}}, TRAINED, like=L1),
            EncoderCondition(BOTH, 3, {"": {"steps": half}}, HALF, like=TOP),
            EncoderCondition(FISHER, 3, {"": {}}, TRAINED, like=TOP, mask={"which": "fisher"}),
            EncoderCondition(SOFT, 3, {"": {}}, TRAINED, like=TOP, mask={"soft": True}),
        )


def strengths(term: str, weak: float, strong: float) -> dict[str, dict[str, Any]]:
    """Of a term, with the rates of the meta-optimiser; a weak one is tried with the higher rate only."""
    pairs = ((weak, 1e-4), (strong, 1e-4), (strong, 1e-5))
    return {f"{term} {weight:g}, beta {beta:g}": {term: weight, "beta": beta} for weight, beta in pairs}


STRENGTHS: dict[str, dict[str, dict[str, Any]]] = {
    ALONE: {f"beta {beta:g}": {"beta": beta} for beta in (1e-4, 1e-5)},
    L1: strengths("gamma", 5e-5, 5e-4),
    TOP: strengths("lam", 5e-4, 5e-2),
}


def setting_of(
    small: Recipe,
    start: Config,
    lengths: tuple[int, ...],
    streams: StreamSize,
    steps: int,
    movements: Mapping[str, Any],
    samples: int = 0,
) -> EncoderSetting:
    """small: the recipe, with the data that it is trained on. start: a preset that trajectories are taken from.
    lengths: in classes; streams: of each class. movements: of images, in each step of Algorithm 2."""
    evaluation = EvaluationConfig(
        classes=lengths,
        trajectories=20,
        train_samples=streams.train_samples,
        test_samples=streams.test_samples,
        redraw=True,
        rates=(1e-1, 3.2e-2, 1e-2, 3.2e-3, 1e-3, 3.2e-4, 1e-4),
        rule="base",
        search_trajectories=2,
        curve_points=1,
    )
    phases = {
        f"phase{number}": replace(phase, steps=count, alpha=0.05, gamma=0.0, lam=0.0, **movements)
        for number, (phase, count) in enumerate(zip(start.phases, (0, steps, steps), strict=True), 1)
    }
    config = replace(
        start,
        data=replace(small.data, size=small.net.size),
        engine=replace(start.engine, precision="float32", checkpoint_every=100, log_every=50),
        evaluation=evaluation,
        **phases,  # type: ignore[arg-type]
    )
    return EncoderSetting(f"encoders-{small.recipe}", config, STRENGTHS, ("zero",), recipe=small, samples=samples)


def smaller(name: str, steps: int, validation: int, net: Mapping[str, Any], base: int = 0) -> Recipe:
    """A recipe with another network and fewer steps, and base classes kept out of training."""
    found = recipe(name)
    return replace(
        found,
        data=replace(found.data, base_classes=base or found.data.base_classes, validation_classes=validation),
        net=replace(found.net, **net),
        rate=replace(found.rate, steps=steps, average=0.99),
        engine=replace(found.engine, precision="bf16", checkpoint_every=250),
    )


CHARACTERS = setting_of(
    replace(smaller("characters-small", 2500, 225, {"size": 32}), recipe="characters"),
    preset("omniglot"),
    (50, 200),
    StreamSize(200, 15, 5),
    300,
    {"shift": 2},
)
SMALL_IMAGES = setting_of(
    smaller("small-images", 3000, 15, {"stem": 32, "stem_stride": 2, "widths": (48, 96, 192), "strides": (2, 1, 2)}),
    preset("cifar100"),
    (30,),
    StreamSize(30, 30, 30),
    300,
    {"shift": 4, "flip": True},
    samples=120,
)
ENCODERS = {setting.name: setting for setting in (CHARACTERS, SMALL_IMAGES)}
