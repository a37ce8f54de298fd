"""The one place where images, bytes from 0 (black) to 255 (white), become the numbers that networks take, and back."""

from __future__ import annotations

import torch
from torch import Tensor


def to_unit(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as numbers of this type from 0 to 1; what is no bytes has been scaled and stays as it is.

    >>> to_unit(torch.tensor([0, 51, 255], dtype=torch.uint8), torch.float64).tolist()
    [0.0, 0.2, 1.0]
    """
    return images.to(dtype).div_(255) if images.dtype == torch.uint8 else images


MIDDLE, SCALE = 127.5, 64.0  # of bytes


def to_normal(images: Tensor) -> Tensor:
    """Bytes, or numbers between them, as float32 around 0: less MIDDLE, divided by SCALE."""
    return (images.float() - MIDDLE) / SCALE


def to_signed(images: Tensor) -> Tensor:
    """Bytes as float32 from -1 to 1, the range of tanh."""
    return images.float() / 127.5 - 1


def from_signed(images: Tensor) -> Tensor:
    """The nearest bytes of numbers from -1 to 1.

    >>> from_signed(to_signed(torch.tensor([0, 100, 255], dtype=torch.uint8))).tolist()
    [0, 100, 255]
    """
    return ((images + 1) * 127.5).round().clamp(0, 255).byte()
