"""Two columns on the same streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcciol.paper.report.read import LARGEST

SEEDS = 3  # with fewer, their spread says next to nothing


@dataclass(frozen=True)
class Gap:
    """How far one column lies above another, on the streams of the seeds that both have."""

    mean: float
    half: float | None
    """Of the 95 % interval: over the seeds where there are three, else over the streams; of a single one none."""
    by_seed: list[float]

    @property
    def sign(self) -> int:
        """1 or -1 where it can be told from zero, and all seeds agree; else 0."""
        sign = 1 if self.mean > 0 else -1
        told = self.half is not None and abs(self.mean) > self.half
        return sign if told and all(sign * gap > 0 for gap in self.by_seed) else 0


def gap(a: Mapping[str, Any], b: Mapping[str, Any]) -> Gap | None:
    """a - b, of cells that have `by_trajectory`, the streams of one of their `seeds` after those of another; none where
    they share no seed.

    >>> two = {"seeds": [0, 1], "by_trajectory": [3.0, 5.0, 9.0, 9.0]}
    >>> gap(two, {"seeds": [0], "by_trajectory": [1.0, 2.0]}).by_seed
    [2.5]
    """
    import torch

    from kcciol.evaluation.metrics import summarize

    ours, theirs = streams(a), streams(b)
    seeds = [seed for seed in ours if seed in theirs and len(ours[seed]) == len(theirs[seed])]
    if not seeds:
        return None
    high, low = (torch.tensor([part[s] for s in seeds], dtype=torch.float64) for part in (ours, theirs))
    each = (high - low).mean(1)
    found = summarize(each if len(seeds) >= SEEDS else (high - low).flatten())
    return Gap(float(each.mean()), found.ci95, each.tolist())


def streams(cell: Mapping[str, Any]) -> dict[str, list[float]]:
    """What each seed gave, by its name; nothing where that cannot be told."""
    seeds, flat = cell.get("seeds"), cell.get("by_trajectory")
    if not isinstance(seeds, list) or not isinstance(flat, list) or not (seeds and flat) or len(flat) % len(seeds):
        return {}
    if cell.get("diverged"):  # runs are missing, and of which seed cannot be told
        return {}
    if not all(isinstance(value, int | float) and abs(value) < LARGEST for value in flat):
        return {}
    size = len(flat) // len(seeds)
    return {str(seed): flat[i * size : (i + 1) * size] for i, seed in enumerate(seeds)}
