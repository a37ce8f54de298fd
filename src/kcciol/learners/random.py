"""Random numbers without a state: a function of (key, time, place), the same on every machine.

A learner that is saved and restored has no generator to save, and copies that run side by side draw what each would
draw alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# odd numbers without a pattern, so that (key, time, purpose, place) that differ fall on inputs that differ
_STEP, _KEY = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_TIME, _PURPOSE = 0x8CB92BA72F3D8DD7, 0xABC98388FB8FAC03


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64 bits in which every bit of x moves every bit of the result (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(keys: NDArray[np.int64], time: int, purpose: int, count: int) -> NDArray[np.float64]:
    """(B, count) numbers in [0, 1): for each key those of this time and purpose.

    >>> a = uniform(np.array([1, 2]), time=5, purpose=0, count=3)
    >>> b = uniform(np.array([2]), time=5, purpose=0, count=2)
    >>> bool((a[1:, :2] == b).all()), bool((a[0] == a[1]).any())
    (True, False)
    """
    place = np.uint64((time * _TIME + purpose * _PURPOSE + 1) % 2**64)
    start = _mix(keys.astype(np.uint64)[:, None] * _KEY + place)
    x = _mix(start + np.arange(count, dtype=np.uint64) * _STEP)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(keys: NDArray[np.int64], time: int, purpose: int, count: int, size: int) -> NDArray[np.int64]:
    """(B, min(count, size)) different numbers below `size` for each key, all sets equally likely."""
    order = uniform(keys, time, purpose, size).argsort(1)
    return order[:, :count].astype(np.int64)


def integers(keys: NDArray[np.int64], time: int, purpose: int, count: int, size: int) -> NDArray[np.int64]:
    """(B, count) numbers below `size`, drawn independently."""
    return (uniform(keys, time, purpose, count) * size).astype(np.int64)
