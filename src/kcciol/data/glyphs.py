"""Characters of invented alphabets, drawn by kcciol itself: nothing to download, and as many classes as one likes.

A class is two to four curved strokes; a sample is that class in a new hand. An image is a pure function of (class,
sample, seed, size). Only the four basic operations and square roots are used, on numbers taken from Philox's raw bits,
so that all platforms draw the same pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kcciol.config import DataConfig
from kcciol.data.classset import ClassSet
from kcciol.data.dataset import DataSet
from kcciol.errors import UserError

Floats = npt.NDArray[np.float32]

NOVEL = 1_000_000  # ids of novel classes start here, so that they do not depend on the number of base classes
STROKES = 4  # at most; a class with fewer repeats its first, in the same place
SEGMENTS = 16  # straight pieces that a stroke is drawn with
EXTENT = 0.62  # half the larger side of a character, where 1 is half the image
CHUNK = 64  # images drawn at a time: small enough for the processor's cache

# How much hands differ. Tuned so that raw pixels are about as telling as Omniglot's (see tests/data/test_glyphs.py).
JITTER = 0.15  # of each control point
DRIFT = 0.06  # of each stroke as a whole
SLANT = 0.28
TURN = 0.11  # tangent of half the angle
STRETCH = 0.18
SHIFT = 0.18
PEN = (0.018, 0.030)  # half the width of the line, as a share of the image

_DRAWS = STROKES * 4 * 2 + STROKES * 2 + 7  # random numbers that a hand takes


def load(config: DataConfig) -> tuple[ClassSet, ClassSet]:
    """Base and novel classes, as many as the config says."""
    for key, value in (("base_classes", config.base_classes), ("novel_classes", config.novel_classes)):
        if value == 0:
            raise UserError(f"data.{key} is 0, but glyphs has no end of classes: say how many to draw, such as 100.")
        if value > NOVEL:
            raise UserError(f"data.{key} is {value}, but glyphs draws at most {NOVEL}: lower it.")
    return (
        _classset(range(config.base_classes), config),
        _classset(range(NOVEL, NOVEL + config.novel_classes), config),
    )


def _classset(ids: range, config: DataConfig) -> ClassSet:
    images = glyphs(ids, range(config.samples), config.size, config.seed)[:, :, None]
    return ClassSet.of(images, [config.samples] * len(ids), [f"glyph {i}" for i in ids])


def glyphs(classes: Sequence[int], samples: Sequence[int], size: int, seed: int) -> npt.NDArray[np.uint8]:
    """Images (class, sample, size, size), white 255, ink 0; each hangs on its own class and sample alone.

    >>> glyphs([3], [0, 1], size=28, seed=0).shape
    (1, 2, 28, 28)
    """
    images = np.empty((len(classes) * len(samples), size, size), np.uint8)
    shapes = np.stack([_shape(c, seed) for c in classes])
    which = [(i, s) for i in range(len(classes)) for s in samples]
    for start in range(0, len(which), CHUNK):
        part = which[start : start + CHUNK]
        hands = np.stack([_uniform(seed, classes[i], s + 1, _DRAWS) for i, s in part])
        strokes, pens = _write(shapes[[i for i, _ in part]], hands)
        images[start : start + CHUNK] = _ink(_curves(strokes), pens, size)
    return images.reshape(len(classes), len(samples), size, size)


def _uniform(seed: int, class_id: int, stream: int, count: int) -> Floats:
    """Numbers in [0, 1) that belong to (seed, class, stream): stream 0 is the class's shape, s + 1 its sample s."""
    from kcciol.random import philox  # here, because it needs torch, which a list of data sets need not wait for

    raw = philox([seed % 2**64, class_id], [0, stream, 0, 0]).random_raw(count)
    return ((raw >> np.uint64(40)) * 2.0**-24).astype(np.float32)


# --- a class: control points ----------------------------------------------------------------------------------------


def _shape(class_id: int, seed: int) -> Floats:
    """A class's strokes as cubic Bezier curves: control points (STROKES, 4, 2) in a box around 0."""
    numbers = iter(_uniform(seed, class_id, 0, 128).tolist())
    grid = [
        (0.7 * column + 0.36 * (next(numbers) - 0.5), 0.7 * row + 0.36 * (next(numbers) - 0.5))
        for row in (-1, 0, 1)
        for column in (-1, 0, 1)
    ]
    count = 2 + int(3 * next(numbers))
    strokes: list[Floats] = []
    anchors: list[tuple[float, float]] = []  # where a later stroke may join
    for _ in range(count):
        joins, choice, bent = next(numbers), next(numbers), next(numbers)
        places = anchors if anchors and joins < 0.65 else grid
        start = places[int(choice * len(places))]
        free = [p for p in grid if p not in anchors and p != start]
        far = [p for p in free if (p[0] - start[0]) ** 2 + (p[1] - start[1]) ** 2 > 0.45] or free
        end = far[int(next(numbers) * len(far))]
        bends = (next(numbers) - 0.5, next(numbers) - 0.5)
        stroke = _stroke(start, end, bends if bent < 0.7 else (0.0, 0.0))
        strokes.append(stroke)
        middle = (stroke[0] + 3 * stroke[1] + 3 * stroke[2] + stroke[3]) / 8
        anchors += [start, end, (float(middle[0]), float(middle[1]))]
    strokes += strokes[:1] * (STROKES - count)
    return _centred(np.stack(strokes))


def _stroke(start: tuple[float, float], end: tuple[float, float], bends: tuple[float, float]) -> Floats:
    """A curve that leaves the straight line from start to end sideways, by `bends` at a third and two thirds."""
    a, b = np.array(start, np.float32), np.array(end, np.float32)
    along = b - a
    across = np.array([-along[1], along[0]], np.float32)
    first = a + along / 3 + across * np.float32(2 * bends[0])
    second = b - along / 3 + across * np.float32(2 * bends[1])
    return np.stack([a, first, second, b])


def _centred(strokes: Floats) -> Floats:
    """The strokes moved and scaled so that their larger side is 2 * EXTENT."""
    points = _curves(strokes[None])[0].reshape(-1, 2)
    low, high = points.min(axis=0), points.max(axis=0)
    centred: Floats = (strokes - (low + high) / 2) * (np.float32(2 * EXTENT) / (high - low).max())
    return centred


# --- a sample: a hand writes the class ------------------------------------------------------------------------------


def _write(shapes: Floats, hands: Floats) -> tuple[Floats, Floats]:
    """Each shape (batch, STROKES, 4, 2) in the hand given by random numbers (batch, _DRAWS): strokes, pen widths."""
    batch = len(shapes)
    signed = 2 * hands - 1
    jitter, drift, rest = np.split(signed, [STROKES * 8, STROKES * 10], axis=1)
    moves = JITTER * jitter.reshape(batch, STROKES, 4, 2) + DRIFT * drift.reshape(batch, STROKES, 1, 2)
    repeats = (shapes == shapes[:, :1]).all(axis=(2, 3), keepdims=True)
    points = shapes + np.where(repeats, moves[:, :1], moves)
    slant, turn, wide, high, right, down, pen = rest.T
    x, y = points[..., 0], points[..., 1]
    x, y = x * _each(1 + STRETCH * wide), y * _each(1 + STRETCH * high)
    x = x + _each(SLANT * slant) * y
    tangent = np.float32(TURN) * turn  # of half the angle: sine and cosine without trigonometry
    cosine, sine = _each((1 - tangent**2) / (1 + tangent**2)), _each(2 * tangent / (1 + tangent**2))
    x, y = cosine * x - sine * y + _each(SHIFT * right), sine * x + cosine * y + _each(SHIFT * down)
    pens = PEN[0] + (PEN[1] - PEN[0]) * (pen + 1) / 2
    return np.stack([x, y], axis=-1).astype(np.float32), pens.astype(np.float32)


def _each(values: Floats) -> Floats:
    """One number for each image, shaped to go with (batch, STROKES, 4)."""
    return values.astype(np.float32)[:, None, None]


def _curves(strokes: Floats) -> Floats:
    """Points along Bezier curves: (batch, strokes, 4, 2) -> (batch, strokes, SEGMENTS + 1, 2)."""
    t = np.linspace(0, 1, SEGMENTS + 1, dtype=np.float32)[:, None]
    a, b, c, d = (strokes[:, :, None, k] for k in range(4))
    u = 1 - t
    points: Floats = u * u * u * a + 3 * u * u * t * b + 3 * u * t * t * c + t * t * t * d
    return points


def _ink(curves: Floats, pens: Floats, size: int) -> npt.NDArray[np.uint8]:
    """Images (batch, size, size) of polylines (batch, strokes, SEGMENTS + 1, 2) in the box from -1 to 1."""
    pixels = (curves + 1) * np.float32(size / 2)
    starts = pixels[:, :, :-1].reshape(len(pixels), -1, 2)
    ends = pixels[:, :, 1:].reshape(len(pixels), -1, 2)
    centres = np.arange(size, dtype=np.float32) + np.float32(0.5)
    nearest = np.full((len(pixels), size, size), np.inf, np.float32)
    for k in range(starts.shape[1]):
        np.minimum(nearest, _squared_distance(starts[:, k], ends[:, k], centres), out=nearest)
    # A pixel is inked by the part of it that the pen covers: from none to all within one pixel of the pen's edge.
    cover = np.clip(np.float32(size) * pens[:, None, None] + np.float32(0.5) - np.sqrt(nearest), 0, 1)
    images: npt.NDArray[np.uint8] = np.rint(255 * (1 - cover)).astype(np.uint8)
    return images


def _squared_distance(start: Floats, end: Floats, centres: Floats) -> Floats:
    """From each pixel to a segment: start and end (batch, 2) -> (batch, size, size)."""
    along = end - start
    unit = along / np.maximum((along * along).sum(axis=1, keepdims=True), np.float32(1e-12))
    x = (centres - start[:, :1])[:, None, :]
    y = (centres - start[:, 1:])[:, :, None]
    share = np.clip(x * unit[:, 0, None, None] + y * unit[:, 1, None, None], 0, 1)
    across = x - share * along[:, 0, None, None]
    down = y - share * along[:, 1, None, None]
    across *= across
    down *= down
    across += down
    squared: Floats = across
    return squared


DATASET = DataSet(
    defaults=DataConfig(name="glyphs", size=28, base_classes=300, novel_classes=100),
    description="invented characters that kcciol draws itself, any number of classes",
    layout="nothing: no files are needed",
    load=load,
    polarity="dark on light",
    channels=1,
    base=None,
    novel=None,
    images=None,
)
