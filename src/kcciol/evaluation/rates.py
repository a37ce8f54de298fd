"""Choosing the rate of the online optimizer. Only the rule "leaky" looks at held-out images of novel classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.errors import UserError
from kcciol.evaluation.features import Features
from kcciol.evaluation.learning import learn_streams
from kcciol.evaluation.metrics import accuracy
from kcciol.evaluation.shown import Images
from kcciol.evaluation.start import Start
from kcciol.evaluation.stream import draw, draw_filled

MARGIN = 2  # rates that must be tried on either side of the best


@dataclass(frozen=True)
class RateChoice:
    """The rate for one number of classes, and why."""

    rule: str
    rate: float
    scores: dict[float, float]  # rate -> accuracy in percent, mean over the search trajectories; ascending rates
    trajectories: int
    at_edge: bool  # the best rate may lie outside the grid
    classes: int  # in each of them

    def to_dict(self) -> dict[str, Any]:
        scores = [{"rate": rate, "score": score} for rate, score in self.scores.items()]
        return {
            "rule": self.rule,
            "chosen": self.rate,
            "scores": scores,
            "trajectories": self.trajectories,
            "at_edge": self.at_edge,
            "classes": self.classes,
        }


def choose_rate(
    novel: Features,
    base: Features | None,
    W: Mapping[str, Tensor],
    config: EvaluationConfig,
    classes: int,
    more: Features | None = None,
    near: float | None = None,
) -> RateChoice:
    """The best rate of the grid for trajectories of so many classes, by the config's rule.

    With one rate only there is nothing to choose, and nothing is run. `more` are further base classes for the rule
    "base": they fill up trajectories longer than there are classes in base, and only those in base are scored.
    near is a rate of the grid that is good for other trajectories: the search begins around it (see `climb`).
    """
    grid = sorted(set(config.rates))
    if len(grid) == 1:
        return RateChoice(config.rule, grid[0], {}, 0, at_edge=False, classes=0)
    classes = search_length(base, config, classes, more)
    features, counted = search_features(novel, base, config, classes, more)
    count, fillers = config.search_trajectories, classes - counted
    if fillers > 0:
        drawn = draw_filled(config.seed, "search", counted, len(features) - counted, fillers, count)
    else:
        drawn = draw(config.seed, "search", counted, classes, count)
    train, test, shown = features.shown(config, drawn.to(features.train.device), "search")
    learned, scored = search_images(train, test, config)
    start = Start(W, config, classes, "search", features.width)

    def score(tried: list[float]) -> list[float]:
        """The mean accuracy with each of these rates: copy i is trajectory i // len(tried) with rate i % len(tried)."""
        rates = torch.tensor(tried, dtype=learned.dtype, device=learned.device).repeat(count)
        trajectories = torch.arange(count).repeat_interleave(len(tried))
        streams, counts = (t.repeat_interleave(len(tried), dim=0) for t in (shown, (drawn < counted).double()))
        counts = counts.to(streams.device)
        results = torch.empty(len(rates), dtype=torch.float64, device=learned.device)
        for copies, seen, head in learn_streams(streams, trajectories, rates, learned, start, config.optimizer):
            if seen == classes:
                right = accuracy(head, scored, streams[copies]) * counts[copies]
                results[copies] = right.sum(-1) / counts[copies].sum(-1)
        return results.view(count, len(tried)).mean(0).tolist()

    return pick(config.rule, grid, climb(grid, score, near), count, classes)


def climb(grid: list[float], score: Callable[[list[float]], list[float]], near: float | None) -> dict[float, float]:
    """The scores of rates of an ascending grid: of all, or of those around `near`, until on either side of the best
    (of equal ones: of all of them) two worse ones have been tried, or the grid ends.

    >>> climb([1, 2, 3, 4, 5, 6, 7, 8], lambda rates: [-abs(rate - 5) for rate in rates], near=4)
    {2: -3, 3: -2, 4: -1, 5: 0, 6: -1, 7: -2}
    """
    if near is None:
        return dict(zip(grid, score(grid), strict=True))
    if near not in grid:
        raise UserError(f"The rate to begin with, {near:g}, is not one of the grid.")
    at = grid.index(near)
    low, high = max(at - MARGIN, 0), min(at + MARGIN + 1, len(grid))
    scores = score(grid[low:high])
    while True:
        best = [low + i for i, value in enumerate(scores) if value == max(scores)]
        first, last = max(best[0] - MARGIN, 0), min(best[-1] + MARGIN + 1, len(grid))
        if first < low:
            scores, low = score(grid[first:low]) + scores, first
        elif last > high:
            scores, high = scores + score(grid[high:last]), last
        else:
            return dict(zip(grid[low:high], scores, strict=True))


def pick(rule: str, grid: list[float], scores: dict[float, float], trajectories: int, classes: int) -> RateChoice:
    """The rate with the best score; of equal ones the smallest. grid and scores are ascending."""
    best = max(scores, key=lambda rate: (scores[rate], -rate))
    return RateChoice(rule, best, scores, trajectories, best in (grid[0], grid[-1]), classes)


def search_length(base: Features | None, config: EvaluationConfig, classes: int, more: Features | None = None) -> int:
    """How many classes the rule's trajectories hold; refuses what the rule cannot do."""
    if config.rule == "holdout":
        holdout_part(config.train_samples)
    if config.rule != "base":
        return classes
    if base is None:
        raise UserError("evaluation.rule is 'base', but no base classes were given: give them, or choose 'holdout'.")
    base.require("base", min(classes, len(base)), config.train_samples, config.test_samples)
    return min(classes, len(base) + (0 if more is None else len(more)))  # fewer than asked for where there are fewer


def search_features(
    novel: Features, base: Features | None, config: EvaluationConfig, classes: int, more: Features | None = None
) -> tuple[Features, int]:
    """The classes that the rule's trajectories are drawn from, and how many of them, the first, are scored."""
    if config.rule != "base" or base is None:
        return novel, len(novel)
    if more is None or classes <= len(base):
        return base, len(base)
    return Features(torch.cat([base.train, more.train]), torch.cat([base.test, more.test])), len(base)


def search_images(train: Images, test: Images, config: EvaluationConfig) -> tuple[Images, Images]:
    """The images to learn and those to score on, by the config's rule, of those to learn and those held out."""
    if config.rule == "stream":
        return train, train
    if config.rule == "holdout":
        part = holdout_part(config.train_samples)
        return Images(train.pool, train.picks[:, :part]), Images(train.pool, train.picks[:, part:])
    return train, test


def holdout_part(samples: int) -> int:
    """How many of a class's training images the rule holdout learns: four fifths, rounded up, but leaving one.

    >>> holdout_part(15), holdout_part(4), holdout_part(2)
    (12, 3, 1)
    """
    if samples < 2:
        raise UserError(
            f"evaluation.train_samples is {samples}, but the rule 'holdout' needs 2 or more: choose the rule 'base'."
        )
    return min(-(-4 * samples // 5), samples - 1)
