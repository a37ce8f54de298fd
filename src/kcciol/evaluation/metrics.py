"""What is measured: accuracy, and how sure we are of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kcciol.evaluation.selection import Selection
from kcciol.learners.base import Learner
from kcciol.numbers import half_width

SAME = 1e-9  # accuracies in percent that differ by less are equal


def class_accuracy(learner: Learner, images: Tensor | Selection, classes: Tensor, first: int = 0) -> Tensor:
    """Accuracy (B, k) in percent of each copy on the images of each class; images (C, m, ...), classes (B, k) with the
    labels first, first + 1, ... The answer is the highest score among the classes seen; a learner that has diverged,
    so that its highest score is not finite, is wrong."""
    at_once = max(1, learner.model.at_once // (len(classes) * images.shape[1]))  # classes whose images fit into memory
    parts = []
    for start in range(0, classes.shape[1], at_once):
        asked = classes[:, start : start + at_once]
        best, answers = learner.unchecked_scores(images[asked].flatten(1, 2)).max(-1)
        labels = torch.arange(asked.shape[1], device=answers.device)[:, None] + first + start
        right = (answers.view(*asked.shape, -1) == labels) & best.view(*asked.shape, -1).isfinite()
        parts.append(right.double().mean(-1))
    return 100 * torch.cat(parts, 1)


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
    ci95: float | None  # the 95 % interval is mean ± ci95; None where it cannot be measured
    images: int | None = None  # where the interval is not of the trajectories: of so many different images

    def to_dict(self) -> dict[str, Any]:
        found = {"mean": self.mean, "std": self.std, "n": self.n, "ci95": self.ci95}
        return found if self.images is None else found | {"ci95_of_images": self.images}

    def __str__(self) -> str:
        return with_interval(self.to_dict())


def with_interval(cell: Mapping[str, Any]) -> str:
    """A summary in words, of its plain values; a star where the interval is of images, not of trajectories.

    >>> with_interval({"mean": 30.0, "ci95": 18.41, "ci95_of_images": 20}), with_interval({"mean": 30.0, "ci95": None})
    ('30.0 ± 18.4*', '30.0')
    """
    return f"{cell['mean']:.1f}{half_width(cell['ci95'])}" + ("*" if "ci95_of_images" in cell else "")


# what the star says
STAR = "* All streams ask the same images, so the interval is over these images, not over streams."


@dataclass(frozen=True)
class ImagesAsked:
    """How many different images the trajectories are asked between them, and how many each of them is."""

    different: int
    each: int


def summarize(values: Tensor, asked: ImagesAsked | None = None) -> Summary:
    """Mean, spread and Student's 95 % interval of the values (n,) of as many trajectories.

    That interval is of what differs between trajectories. Where all their values are equal it would be 0, which says
    nothing; where all are asked the same images, it leaves out that these are few. There, if the values are shares
    (in percent) of images asked, the interval is at least Wilson's for so many images; else, if the values are equal,
    it cannot be measured.

    >>> summarize(torch.tensor([30.0, 30.0])), summarize(torch.tensor([30.0, 30.0]), ImagesAsked(20, 20)).images
    (Summary(mean=30.0, std=0.0, n=2, ci95=None, images=None), 20)
    """
    values, n = values.double().cpu(), len(values)
    mean = float(values.mean())
    if n == 1:
        return Summary(mean, 0.0, 1, None)
    equal = float(values.max() - values.min()) < SAME
    std = 0.0 if equal else float(values.std())
    student = student_reach(std, n)
    if asked is None or not (equal or asked.different == asked.each):
        return Summary(mean, std, n, None if equal else student)
    wilson = 100 * wilson_reach(mean / 100, asked.different)
    return Summary(mean, std, n, student) if student > wilson else Summary(mean, std, n, wilson, asked.different)


def wilson_reach(share: float, count: int, z: float = 1.959964) -> float:
    """How far Wilson's 95 % interval of a share that was seen in so many cases reaches from it, on the longer side.

    >>> round(wilson_reach(0.3, 20), 3), round(wilson_reach(1.0, 20), 3)
    (0.219, 0.161)
    """
    share = min(max(share, 0.0), 1.0)
    weight = z * z / count
    half = z / math.sqrt(count) * math.sqrt(share * (1 - share) + weight / 4)
    return (half + weight * abs(0.5 - share)) / (1 + weight)


def student_reach(std: float, n: int) -> float:
    """How far Student's 95 % interval of a mean of n values (two or more) reaches from it."""
    return t_quantile(n - 1) * std / math.sqrt(n)


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
