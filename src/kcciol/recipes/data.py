"""The classes that a recipe trains on."""

from __future__ import annotations

import torch

from kcciol.config import DataConfig
from kcciol.data import load
from kcciol.data.classset import ClassSet
from kcciol.errors import UserError
from kcciol.recipes.config import Recipe


def classes_of(recipe: Recipe, base: ClassSet) -> ClassSet:
    """What a recipe trains on: so many images of each base class as it says, and the characters that kcciol draws."""
    size = recipe.net.size
    if recipe.view.kind == "colour" and base.image_shape[1:] != (size, size):
        raise UserError(
            f"The images are {base.image_shape} (channels, height, width), but net.size is {size}: load them by "
            "kcciol.load_data(recipe.data), or set both sizes to theirs."
        )
    if recipe.data.train_samples:
        base = base.first_samples(recipe.data.train_samples)
    return joined(base, drawn(recipe)) if recipe.extra else base


def drawn(recipe: Recipe) -> ClassSet:
    """Characters of our own, as large as the others."""
    size = recipe.data.size
    return load(DataConfig(name="glyphs", size=size, base_classes=recipe.extra, novel_classes=1, seed=recipe.seed)).base


def joined(first: ClassSet, second: ClassSet) -> ClassSet:
    """The classes of both."""
    if first.image_shape != second.image_shape:
        raise UserError(
            f"The images are {first.image_shape} (channels, height, width), but those that kcciol draws "
            f"{second.image_shape}, so they cannot be trained on together: set extra to 0."
        )
    samples = max(first.images.shape[1], second.images.shape[1])
    parts = []
    for one in (first, second):
        images = torch.zeros(len(one), samples, *one.image_shape, dtype=torch.uint8)
        images[:, : one.images.shape[1]] = one.images
        parts.append(images)
    return ClassSet(torch.cat(parts), torch.cat([first.counts, second.counts]), first.names + second.names)
