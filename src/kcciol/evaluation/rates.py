"""Choosing the rate of the online optimizer. Only the rule "leaky" looks at held-out images of novel classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.errors import UserError
from kcciol.evaluation.features import Features, with_one
from kcciol.evaluation.learning import learn_streams
from kcciol.evaluation.metrics import accuracy
from kcciol.evaluation.start import Start
from kcciol.evaluation.stream import draw, draw_filled


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
) -> RateChoice:
    """The best rate of the grid for trajectories of so many classes, by the config's rule.

    With one rate only there is nothing to choose, and nothing is run. `more` are further base classes for the rule
    "base": they fill up trajectories longer than there are classes in base, and only those in base are scored.
    """
    grid = sorted(set(config.rates))
    if len(grid) == 1:
        return RateChoice(config.rule, grid[0], {}, 0, at_edge=False, classes=0)
    learned, scored = search_images(novel, base, config, classes)
    counted, fillers = len(learned), 0
    if config.rule == "base" and more is not None and classes > counted:
        learned = torch.cat([learned, more.train[:, : config.train_samples]])
        scored = torch.cat([scored, more.test[:, : config.test_samples]])
        fillers = min(classes, len(learned)) - counted
    classes = min(classes, len(learned))  # base classes may be fewer: then as many as there are
    count = config.search_trajectories
    if fillers:
        streams = draw_filled(config.seed, "search", counted, len(learned) - counted, fillers, count)
    else:
        streams = draw(config.seed, "search", len(learned), classes, count)
    streams = streams.to(learned.device)
    start = Start(W, config, classes, "search", learned.shape[2])
    learned, scored = with_one(learned), with_one(scored)

    # Copy i is trajectory i // len(grid) with rate i % len(grid).
    rates = torch.tensor(grid, dtype=learned.dtype, device=learned.device).repeat(count)
    trajectories = torch.arange(count).repeat_interleave(len(grid))
    streams = streams.repeat_interleave(len(grid), dim=0)
    results = torch.empty(len(rates), dtype=torch.float64, device=learned.device)
    for copies, seen, head in learn_streams(streams, trajectories, rates, learned, start, config.optimizer):
        if seen == classes:
            counts = (streams[copies] < counted).double()
            results[copies] = (accuracy(head, scored, streams[copies]) * counts).sum(-1) / counts.sum(-1)
    return pick(config.rule, grid, results.view(count, len(grid)).mean(0).tolist(), count, classes)


def pick(rule: str, grid: list[float], scores: list[float], trajectories: int, classes: int) -> RateChoice:
    """The rate with the best score; of equal ones the smallest. grid is ascending."""
    best = scores.index(max(scores))  # index finds the first, hence the smallest
    edge = best in (0, len(grid) - 1)
    return RateChoice(rule, grid[best], dict(zip(grid, scores, strict=True)), trajectories, edge, classes)


def search_images(
    novel: Features, base: Features | None, config: EvaluationConfig, classes: int
) -> tuple[Tensor, Tensor]:
    """The images (C, S, d) to learn from and those to score on, by the config's rule."""
    train = novel.train[:, : config.train_samples]
    if config.rule == "holdout":
        part = holdout_part(config.train_samples)
        return train[:, :part], train[:, part:]
    if config.rule == "stream":
        return train, train
    if config.rule == "leaky":
        return train, novel.test[:, : config.test_samples]
    if base is None:
        raise UserError("evaluation.rule is 'base', but no base classes were given: give them, or choose 'holdout'.")
    base.require("base", min(classes, len(base)), config.train_samples, config.test_samples)
    return base.train[:, : config.train_samples], base.test[:, : config.test_samples]


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
