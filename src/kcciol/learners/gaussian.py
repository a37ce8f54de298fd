"""A Gaussian for each class with a prior on its variances (Banayeeanzade et al. 2021, GeMCL)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.learner import Card, Labels, Settings
from kcciol.learners.statistics import COUNT, ClassMeans

SQUARE = "square.sum"
_CHUNK = 2**26  # numbers that are worked on at once


@dataclass(frozen=True)
class GaussianSettings(Settings):
    alpha: float = 100.0
    """Shape of the prior on the precision of a feature within a class."""
    beta: float = 10.0
    """Its rate: beta / alpha is about the variance that is expected; `fit_prior` finds both on base classes."""
    form: Literal["exact", "map"] = "exact"
    """exact: the posterior's predictive density, a Student t; map: a Gaussian at the posterior's mode."""


class Gaussian(ClassMeans):
    """For each class and feature: mean m, S = sum (z - m)^2 over its n examples, a' = alpha + n/2, b' = beta + S/2.

    exact: Student t with 2a' degrees of freedom around m, squared scale v = b'/a' (1 + 1/n). map: Gaussian around m
    with the variance v = b' / (a' - 1/2). Scores are the sums of log densities.
    """

    card = Card(
        "a Bayesian Gaussian for each class", "Banayeeanzade et al. 2021 (GeMCL)", order_free=True, trains=("head",)
    )
    settings_type = GaussianSettings

    def _setup(self) -> None:
        super()._setup()
        self.alpha, self.beta = self.column("alpha").double(), self.column("beta").double()
        if not bool(((self.alpha > 0.5) & (self.beta > 0)).all()):
            raise UserError("alpha must be above 0.5 and beta above 0.")
        self.add_rows(SQUARE, self.model.width, dtype=torch.float64)

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        label = self.label(y)
        self.add_class(x, label)
        self.add_to(SQUARE, x.double().square(), label)

    def posterior(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """n (B, classes, 1), the means (B, classes, d), a' (B, classes, 1) and b' (B, classes, d)."""
        n, means = self.rows[COUNT][:, : self.classes, None], self.means()
        spread = (self.rows[SQUARE][:, : self.classes] - n * means.square()).clamp_min(0)
        return n, means, self.alpha[:, None, None] + n / 2, self.beta[:, None, None] + spread / 2

    def _scores(self, x: Tensor) -> Tensor:
        n, means, a, b = self.posterior()
        if self.choice("form") == "map":
            v, z = b / (a - 0.5), x.double()
            constant = -(means.square() / v + v.log()).sum(-1) / 2
            return z @ (means / v).mT - z.square() @ (0.5 / v).mT + constant[:, None]
        v = b / a * (1 + 1 / n.clamp_min(1))
        constant = x.shape[2] * (torch.lgamma(a + 0.5) - torch.lgamma(a) - 0.5 * torch.log(2 * math.pi * a))[..., 0]
        constant = constant - v.log().sum(-1) / 2
        # sum_d log(1 + (z - m)^2 / (2 a' v)), a few classes at a time: all at once would not fit
        scale, z, parts = (2 * a * v).rsqrt(), x.double(), []
        step = max(1, _CHUNK // max(1, x.shape[0] * x.shape[1] * x.shape[2]))
        for first in range(0, self.classes, step):
            part = slice(first, first + step)
            away = (z[:, :, None] - means[:, None, part]) * scale[:, None, part]
            parts.append(away.square_().log1p_().sum(-1))
        return constant[:, None] - (a[..., 0] + 0.5)[:, None] * torch.cat(parts, -1)


def fit_prior(features: Tensor) -> tuple[float, float]:
    """alpha and beta from base classes (C, S, d): the inverse gamma distribution under which the classes' variances,
    each the mean over features, are most likely."""
    variances = features.double().var(1, unbiased=True).mean(-1)
    variances = variances[variances > 0]
    if len(variances) < 2:
        raise UserError("A prior on variances needs two or more base classes whose examples differ.")
    precision = 1 / variances
    gap = float(precision.mean().log() - precision.log().mean())  # log a - digamma(a) of the best shape a
    low, high = 1e-3, 1e8
    for _ in range(200):
        middle = math.sqrt(low * high)
        value = math.log(middle) - float(torch.digamma(torch.tensor(middle, dtype=torch.float64)))
        low, high = (middle, high) if value > gap else (low, middle)
    shape = max(low, 0.51)
    return shape, shape / float(precision.mean())
