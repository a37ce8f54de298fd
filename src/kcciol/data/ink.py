"""Drawn characters whatever drew them: ink is found, cropped, brought to one size and one width of stroke.

A character is kept as a *field*: for each place of a grid the distance to the edge of the ink, negative within it. From
a field the character is drawn at any size, turned, sheared and with thicker or thinner strokes, without ever blurring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

GRID = 64  # places of a field in height and in width
BOX = 52  # of those, what the longer side of the ink is brought to
REACH = 8  # distances are known up to so many places
STROKE = 3.0  # the width that strokes are brought to, in places
_STEPS = 127 / REACH  # of a byte in one place: a field fits into bytes

_LEAST_CONTRAST = 24  # grey levels between ink and paper
_LARGEST = 512  # a picture is not looked at more closely than in so many pixels
_TINY = 10  # pixels of the longer side of the ink
_SOFT, _BLURRED = 3, 0.05  # pixels from paper to ink, and the share of the ink's longer side that these are

Grey = NDArray[np.uint8]


@dataclass(frozen=True)
class FoundInk:
    """What was found in a picture."""

    darkness: NDArray[np.float32]
    """(h, w), the part of the picture that holds ink: 0 is paper, 1 is ink. Of no ink: one place of paper."""
    light_on_dark: bool
    pixels: int
    """The longer side of the ink, in pixels of the picture; 0 where there is none."""
    blur: float
    """The share of the longer side that it takes from paper to ink; 0 where that is as few pixels as can be."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is odd about the picture, in sentences."""
        if not self.pixels:
            return ("There is no ink in this picture: it is empty, or nearly of one colour.",)
        found = []
        if self.light_on_dark:
            found.append("The ink is lighter than the paper: it is read as ink all the same.")
        if self.pixels < _TINY:
            found.append(f"The ink is only {self.pixels} pixels large: draw or photograph it larger.")
        elif self.blur > _BLURRED:
            found.append("The strokes are blurred: a sharper picture is recognised better.")
        return tuple(found)


def grey(picture: NDArray[np.uint8]) -> Grey:
    """A picture (h, w) or (h, w, 3) as greys (h, w)."""
    if picture.ndim == 2:
        return picture
    return np.asarray(Image.fromarray(picture).convert("L"))


def find_ink(picture: NDArray[np.uint8]) -> FoundInk:
    """The ink of a picture (h, w) or (h, w, 3): what differs from the paper, which is what most of the border is."""
    pixels = grey(picture)
    reduction = 1.0
    if max(pixels.shape) > _LARGEST:
        pixels, reduction = _reduced(pixels)
    ink, paper, full = _divided(pixels)
    if not ink.any():
        return FoundInk(np.zeros((1, 1), np.float32), False, 0, 0.0)
    darkness = _darkness(pixels[_box(ink, 1)], paper, full)
    side, soft = max(ink[_box(ink)].shape), _edge(darkness)
    return FoundInk(darkness, full > paper, round(side * reduction), soft / side if soft > _SOFT else 0.0)


def _edge(darkness: NDArray[np.float32]) -> float:
    """How many pixels it takes from paper to ink, on average; 0 where that is not seen."""
    between = (darkness > 0.2) & (darkness < 0.8)
    if min(darkness.shape) < 2 or not between.any():
        return 0.0
    down, across = np.gradient(darkness)
    return float(1 / max(1e-3, np.hypot(down, across)[between].mean()))


def _divided(pixels: Grey) -> tuple[NDArray[np.bool_], float, float]:
    """Which pixels are ink, none where all are nearly alike; and the mean grey of paper and of ink."""
    threshold, low, high = _two_levels(pixels)
    dark = pixels <= threshold
    border = np.concatenate([dark[0], dark[-1], dark[:, 0], dark[:, -1]])
    ink, paper, full = (~dark, low, high) if border.mean() > 0.5 else (dark, high, low)
    return ink & (high - low >= _LEAST_CONTRAST), paper, full


def _darkness(pixels: Grey, paper: float, full: float) -> NDArray[np.float32]:
    """Greys as numbers from 0, paper, to 1, ink."""
    found: NDArray[np.float32] = ((pixels.astype(np.float32) - paper) / (full - paper)).clip(0, 1)
    return found


def _box(ink: NDArray[np.bool_], margin: int = 0) -> tuple[slice, slice]:
    """The rows and columns that hold ink, and as many beside them as the margin has."""
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    down, across = (slice(max(at[0] - margin, 0), at[-1] + margin + 1) for at in (rows, columns))
    return down, across


def _reduced(pixels: Grey) -> tuple[Grey, float]:
    """A large picture at fewer pixels; first the paper around the ink is cut away, so that thin strokes stay."""
    ink, _, _ = _divided(pixels)
    if ink.any():
        pixels = pixels[_box(ink, 2 + (max(ink[_box(ink)].shape) - 1) // 16)]
    reduction = max(pixels.shape) / _LARGEST
    if reduction <= 1:
        return pixels, 1.0
    height, width = (max(1, round(side / reduction)) for side in pixels.shape)
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX)), reduction


def _two_levels(pixels: Grey) -> tuple[int, float, float]:
    """Otsu's threshold, and the means of what is up to it and above it."""
    counts = np.bincount(pixels.ravel(), minlength=256).astype(np.float64)
    levels = np.arange(256)
    below, sums = counts.cumsum(), (counts * levels).cumsum()
    above = below[-1] - below
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = sums / below, (sums[-1] - sums) / above
        between = np.nan_to_num(below * above * (high - low) ** 2)
    best = np.flatnonzero(between == between.max())
    threshold = int(best[len(best) // 2])
    if not between[threshold]:
        return 255, float(pixels.mean()), float(pixels.mean())
    return threshold, float(low[threshold]), float(high[threshold])


def coarse(picture: NDArray[np.uint8], side: int = 28) -> NDArray[np.uint8]:
    """A picture as it is on a canvas whose longer side has so few pixels."""
    image = Image.fromarray(picture)
    scale = side / max(image.size)
    width, height = (max(1, round(length * scale)) for length in image.size)
    return np.asarray(image.resize((width, height), Image.Resampling.BOX))


# --- fields -----------------------------------------------------------------------------------------------------------


def placed(darkness: NDArray[np.float32], whole: bool = False) -> NDArray[np.float32]:
    """Ink (h, w) brought to the middle of the grid, its longer side BOX places long (whole: GRID)."""
    height, width = darkness.shape
    scale = (GRID if whole else BOX) / max(height, width)
    size = max(1, round(height * scale)), max(1, round(width * scale))
    image = Image.fromarray(darkness, "F").resize(size[::-1], Image.Resampling.BICUBIC)
    grid = np.zeros((GRID, GRID), np.float32)
    top, left = (GRID - size[0]) // 2, (GRID - size[1]) // 2
    grid[top : top + size[0], left : left + size[1]] = np.asarray(image).clip(0, 1)
    return grid


def fields(pictures: Sequence[NDArray[np.uint8]], whole: bool = False, evened: float = 1.0) -> Tensor:
    """Pictures -> fields (n, GRID, GRID), bytes: see `distances`.

    whole: the canvas is brought to the grid as it is. evened: how far strokes are brought to one width, from 0, as wide
    as they are beside the size of the character, to 1, all alike; between them on a scale of ratios.
    """
    grids = []
    for picture in pictures:
        darkness = _darkness(grey(picture), 255, 0) if whole else find_ink(picture).darkness
        grids.append(placed(darkness, whole))
    if not grids:
        return torch.zeros(0, GRID, GRID, dtype=torch.uint8)
    ink = torch.from_numpy(np.stack(grids))
    found, width = signed_distance(ink), stroke_width(ink)
    found = found + (width - width * (STROKE / width) ** evened)[:, None, None] / 2
    return (found.clamp(-REACH, REACH) * _STEPS + 128).round().to(torch.uint8)


def distances(fields: Tensor) -> Tensor:
    """What fields of bytes say: places to the edge of the ink, float32."""
    return (fields.float() - 128) / _STEPS


def stroke_width(darkness: Tensor) -> Tensor:
    """The mean width of the strokes of ink (n, h, w), in places: twice their area for the length of their edge."""
    a, b = darkness[:, 1:, 1:] - darkness[:, :-1, :-1], darkness[:, 1:, :-1] - darkness[:, :-1, 1:]
    edge = ((a**2 + b**2) / 2).sqrt().sum((1, 2))
    return (2 * darkness.sum((1, 2)) / edge.clamp_min(1e-6)).clamp(1, 2 * REACH)


def signed_distance(darkness: Tensor) -> Tensor:
    """Places to the edge of the ink (n, h, w), up to REACH, negative within it; greys tell where in a place it is."""
    ink = darkness > 0.5
    out, within = _distance(ink), _distance(~ink)
    found = torch.where(ink, 0.5 - within, out - 0.5)
    return torch.where((out == 1) | (within == 1), 0.5 - darkness, found).clamp(-REACH, REACH)


def _distance(mask: Tensor) -> Tensor:
    """From each place to the nearest one of the mask, up to REACH + 1: first along rows, then along columns."""
    squares = torch.where(mask, 0.0, float((REACH + 1) ** 2))
    for dim in (-1, -2):
        best = squares.clone()
        size = squares.shape[dim]
        for k in range(1, REACH + 1):
            near, far = (squares.narrow(dim, start, size - k) + k * k for start in (0, k))
            later, earlier = best.narrow(dim, k, size - k), best.narrow(dim, 0, size - k)
            later.copy_(torch.minimum(later, near))
            earlier.copy_(torch.minimum(earlier, far))
        squares = best
    return squares.sqrt()


def draw(fields: Tensor, size: int, affine: Tensor | None = None, thicker: Tensor | None = None) -> Tensor:
    """Fields (n, GRID, GRID) -> images (n, 1, size, size), ink 1 on 0.

    Args:
        fields: as `fields` gives them.
        size: of the images, in pixels.
        affine: (n, 2, 3), from places of the image to places of the field, both from -1 to 1; none: as it is.
        thicker: (n,), how much wider strokes become, in places of the grid.
    """
    if affine is None:
        affine = torch.eye(2, 3, device=fields.device).expand(len(fields), 2, 3)
    return draw_at(fields, F.affine_grid(affine, [len(fields), 1, size, size], align_corners=False), thicker)


def draw_at(fields: Tensor, grid: Tensor, thicker: Tensor | None = None) -> Tensor:
    """The same for a grid of places (n, size, size, 2)."""
    found = F.grid_sample(distances(fields)[:, None], grid, padding_mode="border", align_corners=False)
    # how many places of the field a pixel is wide here, which is what the edge of the ink is drawn over
    side = grid.shape[1]
    wide = _spacing(grid) * (GRID / 2)
    if thicker is not None:
        found = found - thicker[:, None, None, None] / 2 * (wide * side / GRID)
    return (0.5 - found / wide).clamp(0, 1)


def _spacing(grid: Tensor) -> Tensor:
    """The mean distance of neighbours in a grid, (n, 1, 1, 1)."""
    across, down = grid[:, :, -1] - grid[:, :, 0], grid[:, -1] - grid[:, 0]
    area = across.norm(dim=-1).mean(1) * down.norm(dim=-1).mean(1)
    found: Tensor = area.sqrt()[:, None, None, None] / (grid.shape[1] - 1)
    return found
