"""Anything that an image can be -> `Pixels`; one of them, or several.

One picture is a path, what is in a file (bytes, or a file open for reading them), an image of Pillow's, or an array or
tensor: (h, w), (h, w, 1), (h, w, 3), (h, w, 4), (1, h, w) or (3, h, w), of bytes, of truths, or of numbers from 0 to 1.

Several are a list, a tuple or an iterator of such, or an array with more axes:

- Of four axes and more, the last three are one picture, and must have an axis of channels, as above.
- Of three axes, an array is one picture where it has an axis of channels; otherwise it is several grey ones,
  (n, h, w). One grey picture, three or four of them in an array would be taken for channels: give (n, 1, h, w), or a
  list.
- Where both the first and the last axis of a picture could be its channels, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from kcciol.data.images import max_bytes, read_picture
from kcciol.errors import UserError, quoted

Pixels = NDArray[np.uint8]
"""(h, w) without colours, or (h, w, 3); upright, opaque, from 0, black, to 255."""

AnyImage = str | Path | bytes | bytearray | memoryview | IO[bytes] | Image.Image | NDArray[Any] | Tensor
FIRST, LAST = (1, 3), (1, 3, 4)  # how many channels there may be before the places, and after them

WANTED = (
    "a path, the bytes of a file, an image of Pillow's, or an array or tensor (h, w), (h, w, channels) or "
    "(channels, h, w)"
)


@dataclass(frozen=True)
class Several:
    """Pictures that are yet to be read, and how they were arranged: () is one, (n,) are n."""

    sources: list[Any]
    shape: tuple[int, ...]

    def read(self, first: int, count: int) -> list[Pixels]:
        """Some of them."""
        return [self._read(number) for number in range(first, min(first + count, len(self.sources)))]

    def _read(self, number: int) -> Pixels:
        try:
            return picture_of(self.sources[number])
        except UserError as error:
            if not self.shape:
                raise
            raise UserError(f"The image of index {number} cannot be used: {error}") from None


def several_of(images: object) -> Several:
    """One picture or many, unread; the rule is above."""
    if isinstance(images, (Tensor, np.ndarray)):
        pixels = whole_array(images)
        if pixels.ndim < 3 or (pixels.ndim == 3 and _channels_axis(pixels.shape) is not None):
            return Several([pixels], ())
        inner = 2 if pixels.ndim == 3 else 3
        if inner == 3:
            _require_channels(pixels.shape[-3:])
        shape = pixels.shape[:-inner]
        return Several(list(pixels.reshape(-1, *pixels.shape[-inner:])), shape)
    if isinstance(images, (list, tuple, Iterator)) and not hasattr(images, "read"):
        found = list(images)
        return Several(found, (len(found),))
    return Several([images], ())


def picture_of(source: object) -> Pixels:
    """One picture."""
    if isinstance(source, (Tensor, np.ndarray)):
        return _of_pixels(whole_array(source))
    if isinstance(source, (str, Path, Image.Image)):
        return read_picture(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return read_picture(bytes(source))
    if callable(read := getattr(source, "read", None)):
        return read_picture(_bytes_of(read(max_bytes() + 1)))
    if isinstance(source, (list, tuple, set, Mapping)):
        raise UserError(f"An image must be {WANTED}, not a {type(source).__name__}: make an array of its numbers.")
    raise UserError(f"An image must be {WANTED}, not {quoted(source)}.")


def whole_array(pixels: Tensor | NDArray[Any]) -> NDArray[Any]:
    """The numbers of an array or tensor; one that holds none, or only some of them, is refused."""
    if isinstance(pixels, Tensor):
        if pixels.is_meta or pixels.layout != torch.strided:
            raise UserError(NOT_WHOLE)
        pixels = pixels.detach().cpu()
        found: NDArray[Any] = (pixels.float() if pixels.dtype == torch.bfloat16 else pixels).numpy()
        return found
    if np.ma.is_masked(pixels):
        raise UserError(NOT_WHOLE)
    return np.asarray(pixels)


NOT_WHOLE = "Images must be whole: masked and sparse ones, and tensors that hold nothing, are refused."


def _of_pixels(pixels: NDArray[Any]) -> Pixels:
    shape = pixels.shape
    if pixels.ndim == 3:
        _require_channels(shape)
        if _channels_axis(shape) == 0:
            pixels = pixels.transpose(1, 2, 0)
    elif pixels.ndim != 2:
        raise UserError(f"An array of the shape {shape} is no image: an image is {WANTED}.")
    if not pixels.size:
        raise UserError(f"An image of the shape {shape} has no pixels.")
    found = _eight_bits(pixels)
    if found.ndim == 3 and found.shape[2] == 1:
        found = found[:, :, 0]
    if found.ndim == 3 and found.shape[2] == 4:  # the last says how opaque a pixel is
        return read_picture(Image.fromarray(np.ascontiguousarray(found)))
    return found


def _eight_bits(pixels: NDArray[Any]) -> Pixels:
    """From 0 to 255."""
    kind = pixels.dtype.kind
    if pixels.dtype == np.uint8:
        return pixels
    if kind == "b":
        return pixels.astype(np.uint8) * np.uint8(255)
    if kind != "f":
        raise UserError(
            f"An image of {pixels.dtype} does not say how bright its numbers are: make it bytes from 0 to 255 (uint8), "
            "or numbers from 0 to 1."
        )
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= 1):  # NaN is neither
        odd = "NaN" if np.isnan(low) else f"{low if low < 0 else high:g}"
        raise UserError(
            f"An image of floating-point numbers must have them from 0, black, to 1, white, and one is {odd}: scale "
            "them, or give bytes from 0 to 255 (uint8)."
        )
    return np.rint(pixels.astype(np.float32) * 255).astype(np.uint8)


def _channels_axis(shape: tuple[int, ...]) -> int | None:
    """Which of three axes is that of channels."""
    first, last = shape[0] in FIRST, shape[2] in LAST
    if first and last:
        raise UserError(
            f"An image of the shape {shape} could have its channels first or last: give an image of Pillow's, or other "
            "numbers of pixels."
        )
    return 0 if first else 2 if last else None


def _require_channels(shape: tuple[int, ...]) -> None:
    if _channels_axis(shape) is None:
        raise UserError(
            f"An image of the shape {shape} has no axis of channels: the first must have 1 or 3 places, or the last 1, "
            "3 or 4."
        )


def _bytes_of(data: object) -> bytes:
    """What a file has given."""
    if not isinstance(data, bytes):
        raise UserError(f"An image must be read from a file of bytes, but this one gives a {type(data).__name__}.")
    if len(data) > max_bytes():
        raise UserError(f"The image has more than {max_bytes():,} bytes, so it is not read: make it smaller.")
    return data
