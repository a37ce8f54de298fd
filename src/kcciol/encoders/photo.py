"""Photographs -> what most networks take of them: a square of pixels in colour, less a mean, divided by a scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from kcciol.encoders.pictures import Pixels
from kcciol.encoders.preprocessing import settings_of
from kcciol.errors import UserError, quoted

TINY = 24  # pixels of the shorter side; CIFAR's 32 are enough to tell 30 classes apart
LONG = 3  # times as long as wide
EMPTY = 4  # of 255: the standard deviation of brightness that paper, sky or a covered lens stays below
BLURRED = 0.03  # the size of the finest detail beside that of the whole picture; of photographs, none is below 0.04
LOOKED_AT = 256  # pixels a side at which that is measured


@dataclass(frozen=True)
class Photo:
    """A picture is cut to a square in its middle, or squashed into one, and brought to size x size.

    Enlarging and reducing are bicubic, with what is finer than a pixel taken out first. For CIFAR-100's images that is
    one to two points better than bilinear.
    """

    size: int = 224
    """Pixels a side."""
    mean: tuple[float, ...] = (127.0, 127.0, 127.0)
    """What is taken off each channel, of bytes from 0 to 255; one number: the network takes grey images."""
    scale: tuple[float, ...] = (128.0, 128.0, 128.0)
    """What each channel is then divided by."""
    fit: Literal["crop", "squash"] = "crop"
    """What becomes of a picture that is no square."""

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 1 <= self.size <= 4096:
            raise UserError(f"The size of a photo is {quoted(self.size)}, but must be 1 to 4096 pixels a side.")
        if len(self.mean) not in (1, 3) or len(self.scale) != len(self.mean):
            raise UserError(
                f"mean and scale are {quoted(self.mean)} and {quoted(self.scale)}, but must be three numbers each, one "
                "for a channel, or one for grey images."
            )
        if not all(math.isfinite(x) for x in (*self.mean, *self.scale)) or not all(x > 0 for x in self.scale):
            raise UserError(f"scale is {quoted(self.scale)}, but must be finite numbers above 0, as mean finite ones.")

    @property
    def settings(self) -> dict[str, Any]:
        return settings_of("photo", self)

    def __call__(self, pictures: Sequence[Pixels]) -> Tensor:
        channels = len(self.mean)
        pixels = np.empty((len(pictures), self.size, self.size, channels), np.float32)
        for place, picture in zip(pixels, pictures, strict=True):
            place[:] = np.asarray(self._square(picture)).reshape(self.size, self.size, channels)
        pixels -= np.array(self.mean, np.float32)
        pixels /= np.array(self.scale, np.float32)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()

    def _square(self, picture: Pixels) -> Image.Image:
        image = Image.fromarray(np.ascontiguousarray(picture)).convert("L" if len(self.mean) == 1 else "RGB")
        box = (0.0, 0.0, float(image.width), float(image.height))
        if self.fit == "crop":
            side = min(image.size)
            left, top = (image.width - side) / 2, (image.height - side) / 2
            box = (left, top, left + side, top + side)
        if image.size == (self.size, self.size):
            return image
        return image.resize((self.size, self.size), Image.Resampling.BICUBIC, box)

    def remarks(self, picture: Pixels) -> tuple[str, ...]:
        """Tiny, very long, empty or blurred: one sentence each."""
        height, width = picture.shape[:2]
        short, long = sorted((height, width))
        found = []
        if short < TINY:
            found.append(f"The picture is tiny, {width} x {height} pixels: use one of {TINY} or more a side.")
        if long > LONG * short and self.fit == "crop":
            found.append(f"The picture is {width} x {height} pixels, and only the square in its middle is looked at.")
        deviation, detail = _detail(picture)
        if deviation < EMPTY:
            found.append("The picture is empty: all of it has nearly one brightness.")
        elif detail < BLURRED and short >= TINY:
            found.append("The picture is blurred: it has no fine detail.")
        return tuple(found)


def _detail(picture: Pixels) -> tuple[float, float]:
    """The standard deviation of brightness, and that of its finest detail (what a pixel differs by from the mean of its
    neighbours) as a part of it."""
    image = Image.fromarray(np.ascontiguousarray(picture)).convert("L")
    if max(image.size) > LOOKED_AT:  # noise and the grain of a large picture are no detail
        image.thumbnail((LOOKED_AT, LOOKED_AT), Image.Resampling.BOX)
    grey: NDArray[np.float32] = np.asarray(image, np.float32)
    deviation = float(grey.std())
    if min(grey.shape) < 3:
        return deviation, 1.0
    middle = grey[1:-1, 1:-1]
    around = (grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]) / 4
    return deviation, float((middle - around).std()) / max(deviation, 1e-6)
