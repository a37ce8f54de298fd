"""Characters as people may draw or photograph them: other colours, pens, sizes, places and canvases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Pixels = NDArray[np.uint8]


def inverted(image: Pixels) -> Pixels:
    return 255 - image


def thick(image: Pixels) -> Pixels:
    """Strokes of Omniglot, two to three pixels wide, made twice as wide."""
    doubled = Image.fromarray(image).resize((2 * image.shape[1], 2 * image.shape[0]), Image.Resampling.BICUBIC)
    wide = doubled.filter(ImageFilter.MinFilter(5))  # two pixels more at each side of the double size
    return np.asarray(wide.resize(image.shape[::-1], Image.Resampling.BOX))


def half_size(image: Pixels) -> Pixels:
    """Half as large, on a canvas as large as before."""
    height, width = image.shape
    small = np.asarray(Image.fromarray(image).resize((width // 2, height // 2), Image.Resampling.BOX))
    canvas = np.full_like(image, 255)
    canvas[height // 4 : height // 4 + small.shape[0], width // 4 : width // 4 + small.shape[1]] = small
    return canvas


def off_centre(image: Pixels) -> Pixels:
    """Moved into a corner, as far as the ink can go."""
    rows, columns = np.flatnonzero((image < 128).any(1)), np.flatnonzero((image < 128).any(0))
    canvas = np.full_like(image, 255)
    part = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    canvas[-part.shape[0] :, -part.shape[1] :] = part
    return canvas


def canvas_of(image: Pixels, side: int) -> Pixels:
    """The whole picture at another size."""
    filter_ = Image.Resampling.BOX if side < image.shape[0] else Image.Resampling.BICUBIC
    return np.asarray(Image.fromarray(image).resize((side, side), filter_))


def on_a_large_sheet(image: Pixels) -> Pixels:
    """As large as it is, somewhere on a sheet of 1,000 pixels."""
    sheet = np.full((1000, 1000), 255, np.uint8)
    sheet[600 : 600 + image.shape[0], 150 : 150 + image.shape[1]] = image
    return sheet


VARIANTS: dict[str, Callable[[Pixels], Pixels]] = {
    "inverted": inverted,
    "twice as thick": thick,
    "half the size": half_size,
    "off centre": off_centre,
    **{f"canvas of {side} pixels": partial(canvas_of, side=side) for side in (28, 50, 210, 500, 1000)},
    "on a sheet of 1000 pixels": on_a_large_sheet,
}
