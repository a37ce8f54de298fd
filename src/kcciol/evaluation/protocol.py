"""Algorithm 4, over many trajectories of each length."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.errors import require_kind
from kcciol.evaluation.features import Features
from kcciol.evaluation.learning import learn_streams
from kcciol.evaluation.metrics import Summary, accuracy, accuracy_of_latest, curve_points, forgetting, summarize
from kcciol.evaluation.rates import RateChoice, choose_rate, search_length
from kcciol.evaluation.start import Start
from kcciol.evaluation.stream import draw


@dataclass(frozen=True)
class LengthResult:
    """What was measured on trajectories of one length. Accuracies are in percent, forgetting in percentage points."""

    test: Summary
    train: Summary
    learned: Summary  # held-out accuracy of each class right after it was learned
    forgetting: Summary
    forgetting_by_class: list[Summary]  # for each position in the trajectory
    by_trajectory: list[float]  # test, for each trajectory
    curve: list[tuple[int, Summary]]  # classes seen, held-out accuracy over all of them
    rate: RateChoice
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "test": self.test.to_dict(),
            "train": self.train.to_dict(),
            "learned": self.learned.to_dict(),
            "forgetting": {
                **self.forgetting.to_dict(),
                "by_class": [s.mean for s in self.forgetting_by_class],
                "by_class_ci95": [s.ci95 for s in self.forgetting_by_class],
            },
            "by_trajectory": self.by_trajectory,
            "curve": [{"classes_seen": seen, "mean": s.mean, "ci95": s.ci95} for seen, s in self.curve],
            "rate": self.rate.to_dict(),
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Evaluation:
    """The result for each number of classes."""

    classes: dict[int, LengthResult]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "classes": {str(n): result.to_dict() for n, result in self.classes.items()},
            "images": "held-out images are 'test', learned images are 'train'",
        }


def evaluate(
    novel: Features,
    W: Mapping[str, Tensor],
    config: EvaluationConfig,
    base: Features | None = None,
    progress: Callable[[str], None] | None = None,
    more: Features | None = None,
    near: float | None = None,
) -> Evaluation:
    """Learn novel classes online and measure, for each number of classes in the config.

    W is as meta-learned: weight (outputs, d) and bias (outputs,); with a hidden layer of h units, hidden.weight (h, d)
    and hidden.bias (h,) too, and weight is (outputs, h). base is needed by the rule "base" only; `more` are
    base classes that fill up its longer trajectories. progress is given a line for each number of classes. near is a
    rate to begin each search with (see `choose_rate`); without it every rate is tried.
    """
    require_kind(config, EvaluationConfig, "config", "config.evaluation")
    for n in config.classes:  # all mistakes at once, before hours of work
        novel.require("novel", n, config.train_samples, config.test_samples)
        Start(W, config, n, "report", novel.width).check()
        search_length(base, config, n, more)
    results = {}
    choices: dict[int, RateChoice] = {}  # by the classes they were made on: base classes may be fewer than asked for
    with torch.no_grad():
        for n in config.classes:
            began = time.perf_counter()
            length = search_length(base, config, n, more)
            if length not in choices:
                choices[length] = choose_rate(novel, base, W, config, n, more, near)
            result = evaluate_length(novel, W, config, choices[length], n)
            results[n] = result = replace(result, seconds=time.perf_counter() - began)
            if progress is not None:
                progress(describe(n, result))
    return Evaluation(results)


def evaluate_length(
    novel: Features, W: Mapping[str, Tensor], config: EvaluationConfig, choice: RateChoice, n: int
) -> LengthResult:
    """The trajectories that are reported, all of n classes."""
    began = time.perf_counter()
    count, device = config.trajectories, novel.train.device
    streams = draw(config.seed, "report", len(novel), n, count).to(device)  # Algorithm 4, line 2
    start = Start(W, config, n, "report", novel.width)  # line 1
    train, test, streams = novel.shown(config, streams, "report")  # line 3
    rates = torch.full((count,), choice.rate, dtype=train.dtype, device=device)

    learned, final = torch.empty(2, count, n, dtype=torch.float64, device=device).unbind()
    peak = torch.zeros_like(final)
    curve = {k: torch.empty(count, dtype=torch.float64, device=device) for k in curve_points(n, config.curve_points)}
    on_train = torch.empty(count, dtype=torch.float64, device=device)
    for copies, seen, head in learn_streams(streams, torch.arange(count), rates, train, start, config.optimizer):
        so_far = streams[copies, :seen]
        learned[copies, seen - 1] = peak[copies, seen - 1] = accuracy_of_latest(head, test, so_far)
        if seen in curve:
            by_class = accuracy(head, test, so_far)
            if seen < n:  # the end is what the best before it is compared with
                peak[copies, :seen] = torch.maximum(peak[copies, :seen], by_class)
            curve[seen][copies] = by_class.mean(-1)
        if seen == n:  # which is the last point of the curve
            final[copies] = by_class  # line 7
            on_train[copies] = accuracy(head, train, so_far).mean(-1)
    return LengthResult(
        test=summarize(final.mean(-1)),
        train=summarize(on_train),
        learned=summarize(learned.mean(-1)),
        forgetting=summarize(forgetting(peak, final)),
        forgetting_by_class=[summarize(lost) for lost in (peak - final).unbind(1)],
        by_trajectory=final.mean(-1).tolist(),
        curve=[(seen, summarize(values)) for seen, values in curve.items()],
        rate=choice,
        seconds=time.perf_counter() - began,
    )


def describe(n: int, result: LengthResult) -> str:
    """One line for people."""
    test, rate = result.test, result.rate
    spread = "" if test.ci95 is None else f" ± {test.ci95:.1f}"
    edge = ", at the edge of the grid" if rate.at_edge else ""
    return (
        f"{n} classes: {test.mean:.1f}{spread} % of held-out images, {result.train.mean:.1f} % of learned images "
        f"(rate {rate.rate:g} by {rate.rule}{edge}), {result.seconds:.1f} s"
    )
