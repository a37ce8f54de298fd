"""Image files, or pixels -> a ClassSet: decoding, in threads, to one size and one number of channels."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from kcciol.data.classset import ClassSet
from kcciol.data.files import ClassFiles, ImageFile
from kcciol.errors import UserError

Mode = Literal["L", "RGB"]

GREY = frozenset({"1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "I;16N"})  # Pillow's modes without colour

TINY = 4096  # bytes


def read_classes(classes: Sequence[ClassFiles], size: int, mode: Mode) -> ClassSet:
    """All images of the classes, in their order, brought to size x size; short classes are padded with zeros."""
    counts = [len(c.files) for c in classes]
    channels = len(mode)  # L: one, RGB: three
    images = np.zeros((len(classes), max(counts, default=0), channels, size, size), np.uint8)

    def fill(i: int) -> None:
        for k, file in enumerate(classes[i].files):
            images[i, k] = decode(file, size, mode)

    with ThreadPoolExecutor(_workers(classes)) as pool:
        try:
            for done in [pool.submit(fill, i) for i in range(len(classes))]:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # else the error waits for all other classes
            raise
    return ClassSet(torch.from_numpy(images), torch.tensor(counts, dtype=torch.int64), tuple(c.name for c in classes))


def from_pixels(names: Sequence[str], classes: Sequence[npt.NDArray[np.uint8]], size: int) -> ClassSet:
    """The same from images that are decoded already: one array (sample, height, width, channel) for each class."""
    counts = [len(pixels) for pixels in classes]
    images = np.zeros((len(classes), max(counts, default=0), classes[0].shape[3], size, size), np.uint8)
    for i, pixels in enumerate(classes):
        images[i, : len(pixels)] = _resized(pixels, size).transpose(0, 3, 1, 2)
    return ClassSet(torch.from_numpy(images), torch.tensor(counts, dtype=torch.int64), tuple(names))


def _resized(pixels: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """(sample, height, width, channel) -> (sample, size, size, channel), resampled as `decode` does."""
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
    tiny = not classes or len(classes[0].files[0].read()) < TINY
    return 1 if tiny else min(8, os.cpu_count() or 1)


def decode(file: ImageFile, size: int, mode: Mode) -> npt.NDArray[np.uint8]:
    """One image as (channel, size, size); transparent parts are white, as paper is."""
    data = file.read()
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            pixels = np.asarray(_flat(image, mode).resize((size, size), Image.Resampling.BILINEAR))
    except MemoryError:
        raise
    except Exception as error:  # Pillow's plugins raise what they like: OSError, SyntaxError, struct.error, ...
        raise UserError(_undecodable(file, error)) from None
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)


def is_grey(file: ImageFile) -> bool:
    """Whether the image has no colour channels, judged by its header."""
    data = file.read()
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.mode in GREY
    except Exception as error:
        raise UserError(_undecodable(file, error)) from None


def _flat(image: Image.Image, mode: Mode) -> Image.Image:
    """The image upright, opaque, eight bits a channel, in the mode."""
    if image.format != "PNG":  # cameras write their orientation beside the pixels
        image = ImageOps.exif_transpose(image)
    if image.mode == "I" or image.mode.startswith("I;16"):  # Pillow's own conversion would cut, not scale
        deep = np.asarray(image).astype(np.int64)
        return Image.fromarray((deep // 256).clip(0, 255).astype(np.uint8)).convert(mode)
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, of which nobody knows what is white")
    if image.mode in {"LA", "PA", "RGBA"} or "transparency" in image.info:
        clear = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    return image.convert(mode)


def _undecodable(file: ImageFile, error: Exception) -> str:
    # Pillow's message for "no image at all" names an object in memory, which helps nobody.
    reason = "no image format that Pillow knows" if isinstance(error, UnidentifiedImageError) else str(error)
    return f"The file {file.label} does not decode as an image ({reason}): replace or remove it."
