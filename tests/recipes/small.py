"""Recipes that take a fraction of a second, and what they are trained on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from kcciol.config import DataConfig, EngineConfig
from kcciol.data import load
from kcciol.data.classset import ClassSet
from kcciol.nets.residual import ResidualConfig
from kcciol.recipes.config import LossConfig, OutputConfig, RateConfig, Recipe, ViewConfig
from kcciol.recipes.step import RecipeStep
from kcciol.recipes.views import views_of

CPU = torch.device("cpu")
DATA = DataConfig(name="glyphs", size=24, base_classes=5, novel_classes=3, samples=4, train_samples=0)
NET = ResidualConfig(channels=1, size=16, stem=4, widths=(4, 6), strides=(1, 2), features=6, places=2)
INK = Recipe(
    data=DATA,
    net=NET,
    view=ViewConfig(turns=4, mirrored=True, bend=0.05, stroke=0.5, evened=0.5),
    rate=RateConfig(steps=12, batch=8, rate=0.01),
    output=OutputConfig(shrinkage=0.3),
    engine=EngineConfig(device="cpu", checkpoint_every=5, log_every=4),
)
COLOUR = Recipe(
    recipe="small-images",
    data=replace(DATA, size=16),
    net=replace(NET, channels=3, features=0),
    view=ViewConfig(kind="colour", turns=1, shift=0, crop=2, flips=True, erase=0.3),
    loss=LossConfig(scale=0, margin=0, smoothing=0.1, turned=0.5),
    rate=RateConfig(steps=12, batch=8, optimizer="sgd", rate=0.05, decay=5e-4),
    engine=EngineConfig(device="cpu", checkpoint_every=5, log_every=4),
)
RECIPES = {"ink": INK, "colour": COLOUR}


@cache
def glyphs(size: int = 24) -> ClassSet:
    """A few drawn characters; the last class has an image less."""
    base = load(replace(DATA, size=size)).base
    counts = base.counts.clone()
    counts[-1] -= 1
    return ClassSet(base.images, counts, base.names)


@cache
def patches() -> ClassSet:
    """Noise in colour of 16 x 16, smooth enough that moving it a little changes little."""
    noise = torch.rand(5, 4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(noise.flatten(0, 1), size=16, mode="bilinear").view(5, 4, 3, 16, 16)
    return ClassSet((255 * smooth).to(torch.uint8), torch.full((5,), 4), tuple("abcde"))


def classes_for(recipe: Recipe) -> ClassSet:
    """What a recipe of these is trained on."""
    return glyphs() if recipe.view.kind == "ink" else patches()


def step_of(recipe: Recipe) -> RecipeStep:
    """Its step, before the first."""
    classes = classes_for(recipe)
    return RecipeStep(recipe, views_of(recipe, classes, CPU), len(classes), CPU)


def changed(recipe: Recipe, **changes: Any) -> Recipe:
    """A recipe with other settings: rate__steps=5 is rate.steps."""
    for name, value in changes.items():
        section, _, key = name.rpartition("__")
        recipe = replace(
            recipe, **({section: replace(getattr(recipe, section), **{key: value})} if section else {key: value})
        )
    return recipe
