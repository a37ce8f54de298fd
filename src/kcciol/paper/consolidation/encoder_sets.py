"""The images of a recipe as its network sees them, for Algorithm 2, which knows nothing of recipes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol.data import load
from kcciol.data.classset import ClassSet, Splits
from kcciol.nets.pixels import to_normal
from kcciol.nets.residual import Residual
from kcciol.paper.consolidation.encoder_plan import EncoderSetting
from kcciol.recipes.config import Recipe
from kcciol.recipes.views import KINDS


@dataclass(frozen=True)
class ImageKind:
    """How a recipe's images become bytes, and these what its network takes."""

    as_bytes: Callable[[Recipe, ClassSet], ClassSet]
    from_unit: Callable[[Tensor], Tensor]
    """Of numbers from 0 to 1."""


def _drawn(recipe: Recipe, classes: ClassSet) -> ClassSet:
    """Characters as they are drawn for the network: from 0, paper, to 1, ink."""
    preprocessing = KINDS[recipe.view.kind].preprocessing(recipe)
    rows = [preprocessing([picture.numpy() for picture in images[:, 0]]) for images in classes.images]
    return ClassSet(torch.stack(rows).mul(255).round().byte(), classes.counts, classes.names)


SEEN = {
    "ink": ImageKind(_drawn, lambda x: x),
    "colour": ImageKind(lambda recipe, classes: classes, lambda x: to_normal(x * 255)),
}


class Seen(nn.Module):
    """A recipe's network, of images as Algorithm 2 gives them: from 0 to 1."""

    def __init__(self, recipe: Recipe, length: float = 0.0, moving: bool = False) -> None:
        """length: that features are brought to; 0: as the network gives them.
        moving: in training, batch normalisation is in training mode, too; else it is as in evaluation."""
        super().__init__()
        self.network, self.length, self.moving = Residual(recipe.net), length, moving
        self.from_unit = SEEN[recipe.view.kind].from_unit

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(self.from_unit(x))
        return self.length * F.normalize(found, dim=-1) if self.length else found

    def train(self, mode: bool = True) -> Seen:
        return super().train(mode and self.moving)


def load_raw(setting: EncoderSetting, root: str = "") -> Splits:
    """The images as the recipe reads them."""
    return load(replace(setting.recipe.data, root=root))


def load_seen(setting: EncoderSetting, root: str = "") -> Splits:
    """The images as the network sees them. Base classes that the recipe makes by turning are classes here too."""
    raw, as_bytes = load_raw(setting, root), SEEN[setting.recipe.view.kind].as_bytes
    asked = (raw.validation, raw.novel)
    few = [part.first_samples(setting.samples) if setting.samples else part for part in asked]
    validation, novel = (as_bytes(setting.recipe, part) for part in few)
    return Splits(turned(setting.recipe, as_bytes(setting.recipe, raw.base)), validation, novel)


def turned(recipe: Recipe, classes: ClassSet) -> ClassSet:
    """The classes, and then all of them again in each of their variants."""
    view, images, names = recipe.view, list[Tensor](), list[str]()
    for variant in range(view.classes):
        mirrored, quarters = divmod(variant, view.turns)
        found = classes.images.flip(-1) if mirrored else classes.images
        images.append(torch.rot90(found, quarters * (4 // view.turns), (-2, -1)))
        names += [f"{name}, variant {variant}" if variant else name for name in classes.names]
    return ClassSet(torch.cat(images), classes.counts.repeat(view.classes), tuple(names))
