"""The classes that a recipe trains on."""

from __future__ import annotations

import dataclasses

import torch

from kcciol.config import DataConfig
from kcciol.data import load
from kcciol.data.classset import ClassSet, Splits
from kcciol.errors import UserError
from kcciol.recipes.config import Recipe


def load_data(recipe: Recipe) -> Splits:
    """What the recipe names; `recipe.extra` characters that kcciol draws itself are base classes too."""
    found = load(recipe.data)
    base = found.base.first_samples(recipe.data.train_samples) if recipe.data.train_samples else found.base
    if recipe.extra:
        base = joined(base, drawn(recipe))
    return dataclasses.replace(found, base=base)


def drawn(recipe: Recipe) -> ClassSet:
    """Characters of our own, as large as the others."""
    size = recipe.data.size
    return load(DataConfig(name="glyphs", size=size, base_classes=recipe.extra, novel_classes=1, seed=recipe.seed)).base


def joined(first: ClassSet, second: ClassSet) -> ClassSet:
    """The classes of both."""
    if first.image_shape != second.image_shape:
        raise UserError(f"Images {first.image_shape} and {second.image_shape} cannot be trained on together.")
    samples = max(first.images.shape[1], second.images.shape[1])
    parts = []
    for one in (first, second):
        images = torch.zeros(len(one), samples, *one.image_shape, dtype=torch.uint8)
        images[:, : one.images.shape[1]] = one.images
        parts.append(images)
    return ClassSet(torch.cat(parts), torch.cat([first.counts, second.counts]), first.names + second.names)
