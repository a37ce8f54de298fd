"""Image files, or pixels -> a ClassSet: decoding, in threads, to one size and one number of channels."""

from __future__ import annotations

import functools
import io
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from kcciol.data.classset import ClassSet
from kcciol.data.files import ClassFiles, DiskFile, ImageFile
from kcciol.errors import UserError, quoted

Mode = Literal["L", "RGB"]
MODES = get_args(Mode)

GREY = frozenset({"1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "I;16N"})  # Pillow's modes without colour

FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PCX", "PNG", "PPM", "TGA", "TIFF", "WEBP")
"""Those that decode within their size. Others start programs (EPS) or hold images of another size (ICO, ICNS)."""

MAX_PIXELS = 50_000_000
MOST_PIXELS = 178_000_000  # Pillow's own limit, whatever is set

TINY = 4096  # bytes


def max_pixels() -> int:
    """Pixels that an image may have: what the environment variable KCCIOL_MAX_PIXELS says, else 50 million."""
    said = os.environ.get("KCCIOL_MAX_PIXELS") or str(MAX_PIXELS)
    if not (said.isascii() and said.isdigit() and 1 <= len(said) < 10 and 1 <= int(said) <= MOST_PIXELS):
        raise UserError(f"KCCIOL_MAX_PIXELS is {said!r}, but must be a number between 1 and {MOST_PIXELS}.")
    return int(said)


def max_bytes() -> int:
    """Bytes that a file may have, so that it is not read for nothing: what the pixels take, and as much beside them."""
    return 8 * max_pixels() + 2**20


def read_classes(classes: Sequence[ClassFiles], size: int, mode: Mode) -> ClassSet:
    """All images of the classes, in their order, brought to size x size; short classes are padded with zeros."""
    counts = [len(c.files) for c in classes]
    channels = len(mode)  # L: one, RGB: three
    images = np.zeros((len(classes), max(counts, default=0), channels, size, size), np.uint8)

    def fill(i: int) -> None:
        for k, file in enumerate(classes[i].files):
            images[i, k] = read_image(file, mode, size)

    with ThreadPoolExecutor(_workers(classes)) as pool:
        try:
            for done in [pool.submit(fill, i) for i in range(len(classes))]:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # else the error waits for all other classes
            raise
    return ClassSet.of(images, counts, [c.name for c in classes])


def from_pixels(names: Sequence[str], classes: Sequence[npt.NDArray[np.uint8]], size: int) -> ClassSet:
    """The same from images that are decoded already: one array (sample, height, width, channel) for each class."""
    counts = [len(pixels) for pixels in classes]
    images = np.zeros((len(classes), max(counts, default=0), classes[0].shape[3], size, size), np.uint8)
    for i, pixels in enumerate(classes):
        images[i, : len(pixels)] = _resized(pixels, size).transpose(0, 3, 1, 2)
    return ClassSet.of(images, counts, names)


def _resized(pixels: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """(sample, height, width, channel) -> (sample, size, size, channel), resampled as `read_image` does."""
    if pixels.shape[1:3] == (size, size):
        return pixels  # Pillow would copy each and change nothing
    out = np.empty((len(pixels), size, size, pixels.shape[3]), np.uint8)
    for k, image in enumerate(pixels):
        picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
        resized = np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR))
        out[k] = resized.reshape(out.shape[1:])
    return out


def _workers(classes: Sequence[ClassFiles]) -> int:
    """Threads to decode with: Pillow lets go of the interpreter lock while it works.

    On tiny images that work is so short that passing the lock around costs more than it gains (measured on Omniglot).
    """
    tiny = not classes or len(classes[0].files[0].read(max_bytes())) < TINY
    return 1 if tiny else min(8, os.cpu_count() or 1)


def read_image(
    source: ImageFile | Path | str | bytes | Image.Image, mode: Mode, size: int | None = None
) -> npt.NDArray[np.uint8]:
    """One image as (channel, height, width), upright, eight bits a channel; transparent parts are white, as paper is.

    source: a path, what is in a file, or an image of Pillow's. size: the side that it is brought to; None leaves it as
    large as it is. Of many frames, the first.
    """
    most = max_pixels()
    _require_source(source)
    _require_request(mode, size, most)
    return _decoded(source, most, lambda image: _pixels(image, mode, size))


def read_picture(source: ImageFile | Path | str | bytes | Image.Image) -> npt.NDArray[np.uint8]:
    """The same as it is, neither made grey nor resized: (height, width) without colours, else (height, width, 3)."""
    _require_source(source)
    return _decoded(source, max_pixels(), lambda image: np.asarray(_flat(image, "L" if image.mode in GREY else "RGB")))


def _decoded(
    source: ImageFile | Path | str | bytes | Image.Image,
    most: int,
    take: Callable[[Image.Image], npt.NDArray[np.uint8]],
) -> npt.NDArray[np.uint8]:
    """What is taken of an image, once it is decoded and found to have no more pixels than it may."""
    label, data = ("the image", b"") if isinstance(source, Image.Image) else _contents(source)
    try:
        with nullcontext(source) if isinstance(source, Image.Image) else _opened(data) as image:
            _require_few(image, most)
            with _room.of(image.width * image.height, most):
                image.load()
                return take(image)
    except (Image.DecompressionBombError, TooLarge) as error:
        found = f"{error}, which is " if isinstance(error, TooLarge) else ""  # Pillow's own does not tell the size
        raise UserError(
            f"{_capital(label)} has {found}more than {most:,} pixels: make it smaller, or set the environment variable "
            "KCCIOL_MAX_PIXELS to a larger number."
        ) from None
    except MemoryError:
        raise UserError(f"There is not enough memory for {label}: use a smaller one.") from None
    except Exception as error:  # Pillow's plugins raise what they like: OSError, SyntaxError, struct.error, ...
        raise UserError(_undecodable(label, error)) from None


def _require_source(source: object) -> None:
    """Refuse, as the caller's mistake and not the file's, what no image can be made of."""
    if not (isinstance(source, (bytes, str, Path, Image.Image)) or hasattr(source, "label")):
        raise UserError(f"An image must be a path, the bytes of a file or an image of Pillow's, not {quoted(source)}.")


def _require_request(mode: object, size: object, most: int) -> None:
    """Refuse what no image can be brought to."""
    if mode not in MODES:
        raise UserError(f"mode is {quoted(mode)}, but must be 'L' (grey) or 'RGB' (colours).")
    if size is not None and (type(size) is not int or not 1 <= size <= math.isqrt(most)):
        raise UserError(f"size is {quoted(size)}, but must be a side of 1 to {math.isqrt(most)} pixels, or None.")


class TooLarge(Exception):
    """An image of more pixels than may be decoded."""


class Room:
    """What all threads decode at once is bounded: decoded, an image takes many times its file. First come, first
    served: else small ones would keep a large one waiting."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._pixels = 0  # that are being decoded
        self._in_line: list[object] = []  # in the order in which they came

    @property
    def waiting(self) -> int:
        """How many threads wait for room."""
        return len(self._in_line)

    @contextmanager
    def of(self, pixels: int, most: int) -> Iterator[None]:
        """Wait until these pixels and all others are `most` together, or there are no others."""
        me = object()
        with self.changed:
            self._in_line.append(me)
            try:
                self.changed.wait_for(
                    lambda: self._in_line[0] is me and (not self._pixels or self._pixels + pixels <= most)
                )
            finally:  # one who is interrupted does not keep the others waiting
                self._in_line.remove(me)
                self.changed.notify_all()
            self._pixels += pixels
        try:
            yield
        finally:
            with self.changed:
                self._pixels -= pixels
                self.changed.notify_all()


_room = Room()


def _opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data), formats=_formats())


def is_grey(file: ImageFile) -> bool:
    """Whether the image has no colour channels, judged by its header."""
    label, data = _contents(file)
    try:
        with _opened(data) as image:
            return image.mode in GREY
    except Exception as error:
        raise UserError(_undecodable(label, error)) from None


def _contents(source: ImageFile | Path | str | bytes) -> tuple[str, bytes]:
    """What to call it in messages, and its bytes."""
    if isinstance(source, bytes):
        return "the image", source
    file = DiskFile(str(source)) if isinstance(source, (Path, str)) else source
    return f"the file {file.label}", file.read(max_bytes())


@functools.cache
def _formats() -> list[str]:
    """Pillow refuses to be asked for a format that it was built without."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _require_few(image: Image.Image, most: int) -> None:
    if image.width * image.height > most:
        raise TooLarge(f"{image.width} x {image.height}")


def _pixels(image: Image.Image, mode: Mode, size: int | None) -> npt.NDArray[np.uint8]:
    flat = _flat(image, mode)
    pixels = np.asarray(flat if size is None else flat.resize((size, size), Image.Resampling.BILINEAR))
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)


def _flat(image: Image.Image, mode: Mode) -> Image.Image:
    """The image upright, opaque, eight bits a channel, in the mode."""
    if image.format != "PNG":  # cameras write their orientation beside the pixels
        image = ImageOps.exif_transpose(image)
    if image.mode == "I" or image.mode.startswith("I;16"):  # Pillow's own conversion would cut, not scale
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8)).convert(mode)
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, which do not say what is white")
    if image.mode in {"LA", "PA", "RGBA"} or "transparency" in image.info:
        clear = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    return image.convert(mode)


def _undecodable(label: str, error: Exception) -> str:
    # Pillow's message for "no image at all" names an object in memory, which helps nobody.
    known = f"no image of a format that kcciol reads: {', '.join(_formats())}"
    reason = known if isinstance(error, UnidentifiedImageError) else str(error)
    return f"{_capital(label)} does not decode as an image ({reason}): replace or remove it."


def _capital(label: str) -> str:
    return label[0].upper() + label[1:]
