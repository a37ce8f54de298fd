"""What is measured: accuracy, forgetting, and how sure we are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.evaluation.online import Head
from kcciol.evaluation.shown import Images

AT_ONCE = 2**24  # numbers, of the images or of what is made of them, that are worked on together


def hits(logits: Tensor, labels: Tensor) -> Tensor:
    """Which rows of logits (..., outputs) are highest at their label (...), among all outputs, seen yet or not.

    A head that has diverged knows nothing: a row with a logit that is not finite is wrong.

    >>> hits(torch.tensor([[1.0, 2.0], [math.nan, 0.0]]), torch.tensor([1, 0])).tolist()
    [True, False]
    """
    return (logits.argmax(-1) == labels) & logits.isfinite().all(-1)


def accuracy(head: Head, images: Tensor | Images, streams: Tensor) -> Tensor:
    """Accuracy (b, k) in percent of each copy's first k classes, on all their images.

    images are (C, m, columns), streams the class ids (b, k), whose positions are the labels.
    """
    (copies, k), m, columns = streams.shape, *images.shape[1:]
    labels = torch.arange(k, device=streams.device)[:, None]
    at_once = max(1, AT_ONCE // (k * m * max(columns, head.widest)))  # all copies' images at once would not fit
    rows = []
    for first in range(0, copies, at_once):
        some = slice(first, min(first + at_once, copies))
        logits = head.scores(some, images[streams[some]].flatten(1, 2))
        rows.append(hits(logits.view(len(logits), k, m, -1), labels).double().mean(-1))
    return 100 * torch.cat(rows)


def accuracy_of_latest(head: Head, images: Tensor | Images, streams: Tensor) -> Tensor:
    """Accuracy (b,) in percent of the last class of streams (b, k), the one that was just learned."""
    logits = head.scores(slice(None), images[streams[:, -1]])
    label = torch.full((), streams.shape[1] - 1, device=streams.device)
    return 100 * hits(logits, label).double().mean(-1)


def forgetting(peak: Tensor, final: Tensor) -> Tensor:
    """Mean forgetting (R,) from the accuracy (R, n) of each class at its best, on the way, and at the end.

    The last class is left out of the mean: nothing came after it, so it could not be forgotten.
    """
    lost = (peak - final)[:, :-1]
    return lost.mean(-1) if lost.shape[1] else lost.new_zeros(len(lost))


def curve_points(classes: int, points: int) -> list[int]:
    """At most `points` evenly spaced numbers of classes seen; the last is all of them.

    >>> curve_points(200, 4), curve_points(3, 10)
    ([50, 100, 150, 200], [1, 2, 3])
    """
    return sorted({max(1, round(classes * (i + 1) / points)) for i in range(points)})


@dataclass(frozen=True)
class Summary:
    """One number measured on n trajectories."""

    mean: float
    std: float  # of a sample: n - 1 in the denominator; 0 when n is 1
    n: int
    ci95: float | None  # the 95 % interval is mean ± ci95; None when n is 1, which tells nothing of the spread

    def to_dict(self) -> dict[str, float | int | None]:
        return {"mean": self.mean, "std": self.std, "n": self.n, "ci95": self.ci95}


def summarize(values: Tensor) -> Summary:
    """Mean, spread and Student's 95 % interval of values (n,).

    >>> summarize(torch.tensor([3.0, 3.0]))
    Summary(mean=3.0, std=0.0, n=2, ci95=0.0)
    """
    values, n = values.double().cpu(), len(values)
    mean = float(values.mean())
    if n == 1:
        return Summary(mean, 0.0, 1, None)
    std = float(values.std())
    return Summary(mean, std, n, t_quantile(n - 1) * std / math.sqrt(n))


def t_quantile(freedom: int, confidence: float = 0.95) -> float:
    """The t with P(|T| < t) = confidence for Student's distribution, by bisection.

    >>> round(t_quantile(9), 4), round(t_quantile(49), 4)
    (2.2622, 2.0096)
    """
    low, high = 0.0, math.pi / 2  # of the angle atan(t / sqrt(freedom))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_probability(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _t_probability(angle: float, freedom: int) -> float:
    """P(|T| < sqrt(freedom) tan(angle)), a finite sum for whole numbers of freedom (Abramowitz and Stegun 26.7.3-4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = cosine**odd, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
