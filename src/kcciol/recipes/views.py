"""Images as they are seen in a step: each time another crop, slant, stroke or light. All of it on the device.

A view is a function of keys (see `kcciol.random`), so that a step on a GPU waits for nobody and a resumed run sees what
it would have seen.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.data import ink
from kcciol.data.classset import ClassSet
from kcciol.encoders.ink import Ink
from kcciol.encoders.photo import Photo
from kcciol.encoders.preprocessing import Preprocessing
from kcciol.nets.pixels import MIDDLE, SCALE, to_normal
from kcciol.random import keyed, keyed_normal, keyed_uniform
from kcciol.recipes.config import Recipe

_WHICH, _VARIANT, _AFFINE, _BEND, _STROKE, _LIGHT, _ERASE, _COARSE, _BOLD = range(9)  # what a key's numbers are for
_POINTS = 4  # of the grid that bends a character, along each side


class Views(ABC):
    """All base images on the device, and how they are seen: by its key alone, whatever other images are beside it."""

    def __init__(self, recipe: Recipe, images: Tensor, labels: Tensor) -> None:
        """images (n, ...) as the kind keeps them, labels (n,) the base class of each."""
        self.recipe, self.config, self.images, self.labels = recipe, recipe.view, images, labels

    def draw(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (b,) -> images (b, c, size, size) float, and the class of each among all that were made (b,)."""
        index = (keyed_uniform(keyed(keys, _WHICH), 1)[:, 0].double() * len(self.images)).long()
        variants = self.config.classes
        variant = (keyed_uniform(keyed(keys, _VARIANT), 1)[:, 0] * variants).long()
        return self.seen(index, variant, keys), self.labels[index] * variants + variant

    @abstractmethod
    def seen(self, index: Tensor, variant: Tensor, keys: Tensor) -> Tensor:
        """The images of these numbers, turned and mirrored as their class's variant is, changed as the keys say."""

    @abstractmethod
    def plain(self, index: Tensor) -> Tensor:
        """The images of these numbers as an encoder sees them."""

    @staticmethod
    @abstractmethod
    def preprocessing(recipe: Recipe) -> Preprocessing:
        """What makes the same of any picture."""

    def _affine(self, variant: Tensor, keys: Tensor) -> Tensor:
        """(b, 2, 3): from places of the view to places of the image, both from -1 to 1."""
        c, u = self.config, keyed_uniform(keyed(keys, _AFFINE), 7) * 2 - 1
        turned = (variant % c.turns) * (2 * math.pi / c.turns) + u[:, 0] * math.radians(c.angle)
        cos, sin = turned.cos(), turned.sin()
        mirror = 1 - 2 * torch.div(variant, c.turns, rounding_mode="floor")
        if c.flips:
            mirror = mirror * (2 * (u[:, 6] >= 0) - 1)
        zoom = (1 + c.zoom) ** u[:, 1:3]
        across, down = zoom[:, 0] * mirror, zoom[:, 1]
        slant, pixel = u[:, 3] * c.shear, 2 / self.recipe.net.size
        shift = u[:, 4:6] * 2 * c.shift
        if c.crop:  # by whole pixels, which blurs nothing
            shift = shift + (u[:, 4:6] * (c.crop + 0.5)).round().clamp(-c.crop, c.crop) * pixel
        # turned and slanted, then made larger or smaller along the image's own sides, and mirrored
        rows = [
            torch.stack([across * cos, across * (slant * cos - sin), shift[:, 0]], 1),
            torch.stack([down * sin, down * (slant * sin + cos), shift[:, 1]], 1),
        ]
        return torch.stack(rows, 1)


class InkViews(Views):
    """Characters, kept as fields of their ink (see `kcciol.data.ink`)."""

    coarse: Tensor | None = None
    """The same images as they are on a small canvas."""

    @staticmethod
    def of(recipe: Recipe, classes: ClassSet, device: torch.device) -> InkViews:
        c, fields, coarse = recipe.view, list[Tensor](), list[Tensor]()
        for images, count in zip(classes.images, classes.counts, strict=True):
            rows = images[:count].permute(0, 2, 3, 1).numpy()  # (n, h, w, channels)
            pictures = [row if row.shape[-1] == 3 else row[..., 0] for row in rows]
            fields.append(ink.fields(pictures, c.whole, c.evened))
            if c.coarse:
                coarse.append(ink.fields([ink.coarse(picture) for picture in pictures], c.whole, c.evened))
        found = InkViews(recipe, torch.cat(fields).to(device), labels_of(classes).to(device))
        found.coarse = torch.cat(coarse).to(device) if coarse else None
        return found

    def seen(self, index: Tensor, variant: Tensor, keys: Tensor) -> Tensor:
        c, size = self.config, self.recipe.net.size
        grid = F.affine_grid(self._affine(variant, keys), [len(index), 1, size, size], align_corners=False)
        if c.bend:
            moved = keyed_normal(keyed(keys, _BEND), 2 * _POINTS**2).view(-1, 2, _POINTS, _POINTS) * (2 * c.bend)
            moved = F.interpolate(moved, size=(size, size), mode="bicubic", align_corners=True)
            grid = grid + moved.permute(0, 2, 3, 1)
        thicker = keyed_normal(keyed(keys, _STROKE), 1)[:, 0] * c.stroke
        if c.bold:
            thicker = thicker + ink.STROKE * (keyed_uniform(keyed(keys, _BOLD), 1)[:, 0] < c.bold)
        return ink.draw_at(self._fields(index, keys), grid, thicker)

    def _fields(self, index: Tensor, keys: Tensor) -> Tensor:
        if self.coarse is None:
            return self.images[index]
        chosen = keyed_uniform(keyed(keys, _COARSE), 1)[:, 0] < self.config.coarse
        return torch.where(chosen[:, None, None], self.coarse[index], self.images[index])

    def plain(self, index: Tensor) -> Tensor:
        return ink.draw(self.images[index], self.recipe.net.size)

    @staticmethod
    def preprocessing(recipe: Recipe) -> Preprocessing:
        return Ink(recipe.net.size, recipe.view.evened, recipe.view.whole)


class ColourViews(Views):
    """Small photographs, as bytes."""

    @staticmethod
    def of(recipe: Recipe, classes: ClassSet, device: torch.device) -> ColourViews:
        rows = [images[:count] for images, count in zip(classes.images, classes.counts, strict=True)]
        images = torch.cat(rows).expand(-1, 3, -1, -1)  # grey ones too, as the preprocessing takes them
        return ColourViews(recipe, images.to(device), labels_of(classes).to(device))

    def seen(self, index: Tensor, variant: Tensor, keys: Tensor) -> Tensor:
        size = self.recipe.net.size
        grid = F.affine_grid(self._affine(variant, keys), [len(index), 3, size, size], align_corners=False)
        x = F.grid_sample(self.images[index].float(), grid, padding_mode="reflection", align_corners=False)
        return to_normal(self._erased(self._lit(x, keys), keys))

    def _lit(self, x: Tensor, keys: Tensor) -> Tensor:
        u = (keyed_uniform(keyed(keys, _LIGHT), 3) * 2 - 1) * self.config.light + 1
        brightness, contrast, saturation = (u[:, i, None, None, None] for i in range(3))
        x = x * brightness
        x = (x - x.mean((1, 2, 3), True)) * contrast + x.mean((1, 2, 3), True)
        grey = x.mean(1, True)
        return ((x - grey) * saturation + grey).clamp(0, 255)

    def _erased(self, x: Tensor, keys: Tensor) -> Tensor:
        if not self.config.erase:
            return x
        u = keyed_uniform(keyed(keys, _ERASE), 5)
        size = x.shape[-1]
        at = torch.arange(size, device=x.device)
        half = (0.1 + 0.15 * u[:, :2]) * size
        middle = u[:, 2:4] * size
        inside = (at - middle[:, :, None]).abs() < half[:, :, None]  # (b, 2, size)
        gone = inside[:, 0, :, None] & inside[:, 1, None, :] & (u[:, 4] < self.config.erase)[:, None, None]
        return torch.where(gone[:, None], torch.full_like(x, MIDDLE), x)

    def plain(self, index: Tensor) -> Tensor:
        return to_normal(self.images[index])

    @staticmethod
    def preprocessing(recipe: Recipe) -> Preprocessing:
        return Photo(recipe.net.size, (MIDDLE,) * 3, (SCALE,) * 3)


def labels_of(classes: ClassSet) -> Tensor:
    """The class of each image, (n,)."""
    return torch.arange(len(classes)).repeat_interleave(classes.counts)


KINDS: dict[str, type[InkViews] | type[ColourViews]] = {"ink": InkViews, "colour": ColourViews}


def views_of(recipe: Recipe, classes: ClassSet, device: torch.device) -> Views:
    """The views that a recipe names."""
    return KINDS[recipe.view.kind].of(recipe, classes, device)
