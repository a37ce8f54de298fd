"""Which few of many vectors point in the most different directions: a binary quadratic program."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Indices = NDArray[np.int64]
_BETTER = 1e-10  # rounding must not send the search round in circles


def objective(gram: Matrix, chosen: Indices) -> float:
    """The sum of gram over all pairs of the chosen, each with itself too."""
    return float(gram[np.ix_(chosen, chosen)].sum())


def descend(gram: Matrix, start: Indices) -> Indices:
    """Exchange one chosen for one other, always the best exchange, until none lowers the objective."""
    inside = np.zeros(len(gram), dtype=bool)
    inside[start] = True
    sums, own = gram[:, inside].sum(1), gram.diagonal()
    while True:
        chosen, others = np.flatnonzero(inside), np.flatnonzero(~inside)
        if not len(chosen) or not len(others):
            return chosen
        leaves, enters = own[chosen] - 2 * sums[chosen], own[others] + 2 * sums[others]
        change = leaves[:, None] + enters[None] - 2 * gram[np.ix_(chosen, others)]
        out, into = np.unravel_index(change.argmin(), change.shape)
        if change[out, into] >= -_BETTER:
            return chosen
        i, j = chosen[out], others[into]
        inside[i], inside[j] = False, True
        sums += gram[:, j] - gram[:, i]


def most_diverse(gram: Matrix, starts: Iterable[Indices]) -> Indices:
    """The best end of the searches from these starts, sorted; the first of them when others are no better."""
    best: Indices | None = None
    for start in starts:
        end = descend(gram, start)
        if best is None or objective(gram, end) < objective(gram, best) - _BETTER:
            best = end
    assert best is not None
    return best
