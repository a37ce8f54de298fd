"""Dark squares: a class is a place and a size, an image one hand's noise."""

from __future__ import annotations

import numpy as np

from kcciol.config import DataConfig
from kcciol.data import ClassSet, DataSet

PLACES = [(y, x, side) for side in (0.2, 0.35, 0.5) for y in (0.1, 0.45) for x in (0.1, 0.45)]


def load(config: DataConfig) -> tuple[ClassSet, ClassSet]:
    """The squares of the first two sizes, and those of the third."""
    return _class_set(PLACES[:8], config), _class_set(PLACES[8:], config)


def _class_set(places: list[tuple[float, float, float]], config: DataConfig) -> ClassSet:
    size = config.size
    images = np.full((len(places), 20, 1, size, size), 255, dtype=np.uint8)
    for own, corner in zip(images, places, strict=True):
        y, x, side = (round(size * part) for part in corner)
        own[..., y : y + side, x : x + side] = 0
    noise = np.random.default_rng(config.seed).integers(0, 60, images.shape, dtype=np.uint8)
    return ClassSet.of(np.where(images, images - noise, noise), [20] * len(places), [f"square {p}" for p in places])


DATASET = DataSet(
    defaults=DataConfig(name="squares", size=16, base_classes=0),
    description="dark squares: 8 base and 4 novel classes, 20 images each",
    layout="nothing: no files are needed",
    load=load,
    polarity="dark on light",
    channels=1,
    base=8,
    novel=4,
    images=20,
)
