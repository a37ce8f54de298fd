"""What is tried when a learner's settings are chosen: for each setting some values, in all combinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Grid = Mapping[str, Sequence[Any]]
RATES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)  # half decades
WHOLE_RATES = RATES[2:11]  # where the whole network is trained


def middle(values: Sequence[Any]) -> Sequence[Any]:
    """Two of them.

    >>> middle((1, 2)), middle((1, 2, 3)), middle((1, 2, 3, 4))
    ((1, 2), (1, 2), (2, 3))
    """
    start = max(0, len(values) // 2 - 1)
    return values[start : start + 2]
