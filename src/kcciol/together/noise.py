"""Random numbers without a state, on any device: a function of whole numbers, the same everywhere.

A step that is one CUDA graph draws its own data by them, from a counter on the device; a resumed run draws what it
would have drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

# odd numbers without a pattern, as 64-bit integers with a sign
_PLACE, _KEY = 0x9E3779B97F4A7C15 - 2**64, 0xD1B54A32D192ED03 - 2**64
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def _mix(x: Tensor) -> Tensor:
    """A bijection of 64 bits in which every bit of x moves every bit of the result (the finaliser of splitmix64)."""
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, by: int) -> Tensor:
    """To the right, filled with zeros: torch's own shift copies the sign."""
    return torch.bitwise_right_shift(x, by).bitwise_and(2 ** (64 - by) - 1)


def keyed(*numbers: Tensor | int) -> Tensor:
    """One key for each place of the numbers, which are broadcast against each other; one of them at least is a tensor.

    >>> bool(keyed(torch.tensor(1), 2) == keyed(torch.tensor(2), 1))
    False
    """
    device = next(number.device for number in numbers if isinstance(number, Tensor))
    key = torch.zeros((), dtype=torch.int64, device=device)  # there from the start: a graph cannot copy from the host
    for number in numbers:
        key = _mix(key * _KEY + number + 1)
    return key


def uniform(keys: Tensor, count: int) -> Tensor:
    """(..., count) float32 numbers in [0, 1) for keys (...).

    >>> a = uniform(keyed(torch.arange(2), 7), 5)
    >>> b = uniform(keyed(torch.tensor(1), 7), 3)
    >>> bool((a[1, :3] == b).all())
    True
    """
    x = _mix(keys[..., None] + torch.arange(count, device=keys.device) * _PLACE)
    return _shift(x, 40).to(torch.float32) * 2.0**-24
