"""A Gaussian for each class with a prior on its variances (Banayeeanzade et al. 2021, GeMCL)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Labels, Settings
from kcciol.learners.blocks import Bound, Derived, Form, Known, Rows, linear, longest, rounding
from kcciol.learners.bounds import bounded
from kcciol.learners.card import Card
from kcciol.learners.statistics import COUNT, ClassMeans, Values, means_of

SQUARE = "square.sum"
_CHUNK = 2**26  # numbers that are worked on at once
_FACTORS = 16  # features whose product is formed before its logarithm is taken; a power of two


@dataclass(frozen=True)
class GaussianSettings(Settings):
    alpha: float = bounded(100.0, above=0.5)
    """Shape of the prior on the precision of a feature within a class."""
    beta: float = bounded(10.0, above=0)
    """Its rate: beta / alpha is about the variance that is expected. `Gaussian.fit_settings` finds both."""
    form: Literal["exact", "map"] = "exact"
    """exact: the posterior's predictive density, a Student t; map: a Gaussian at the posterior's mode."""


@dataclass(frozen=True)
class Posterior(Form):
    """What both forms start from."""

    alpha: Tensor  # (B,) each
    beta: Tensor

    def posterior(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """n (B, classes, 1), the means (B, classes, d), a' (B, classes, 1) and b' (B, classes, d)."""
        return posterior_of(rows, self.alpha[:, None, None], self.beta[:, None, None])

    def prepare(self, x: Tensor) -> Tensor:
        return x.double()


def posterior_of(rows: dict[str, Values], alpha: Values, beta: Values) -> tuple[Values, Values, Values, Values]:
    """n (..., classes, 1), the means, a' and b' of a prior (..., 1, 1)."""
    n, means = rows[COUNT][..., None], means_of(rows)
    spread = (rows[SQUARE] - n * (means * means)).clip(0)
    return n, means, alpha + n / 2, beta + spread / 2


def log_peak(a: Tensor) -> Tensor:
    """The log density of a Student t with 2a degrees of freedom and a scale of 1, at its centre."""
    return torch.lgamma(a + 0.5) - torch.lgamma(a) - 0.5 * torch.log(2 * math.pi * a)


class AtMode(Posterior):
    """The log density of a Gaussian, without what is the same for all classes."""

    def prepare(self, x: Tensor) -> Tensor:
        z = x.double()
        return torch.cat([z, z.square()], -1)

    def plain(self, query: Tensor, rows: Rows) -> Tensor:
        z, square = query.chunk(2, -1)
        first, second, constant = at_mode(self.posterior(rows), torch.log)
        return z @ first.mT - square @ second.mT + constant[:, None]

    def derive(self, known: Known) -> tuple[Derived, Bound]:
        posterior = posterior_of(known, self.alpha.numpy(), self.beta.numpy())
        first, second, constant = at_mode(posterior, np.log)
        return linear(np.concatenate([first, -second], -1), constant)


def at_mode(
    posterior: tuple[Values, Values, Values, Values], log: Callable[[Values], Values]
) -> tuple[Values, Values, Values]:
    """What z and z^2 are multiplied with (..., classes, d), and what is added (..., classes)."""
    _, means, a, b = posterior
    v = b / (a - 0.5)
    return means / v, 0.5 / v, -(means * means / v + log(v)).sum(-1) / 2


class StudentT(Posterior):
    """The predictive log density: constant - (a' + 1/2) sum_d log(1 + (z - m)^2 / (2 a' v))."""

    def plain(self, query: Tensor, rows: Rows) -> Tensor:
        n, means, a, b = self.posterior(rows)
        v = b / a * (1 + 1 / n.clamp_min(1))
        scale, weight = (2 * a * v).rsqrt(), a[..., 0] + 0.5
        constant = means.shape[-1] * log_peak(a)[..., 0] - v.log().sum(-1) / 2
        # a few classes at a time: all at once would not fit
        step, parts = max(1, _CHUNK // max(1, query.numel())), []
        for first in range(0, means.shape[1], step):
            part = slice(first, first + step)
            away = (query[:, :, None] - means[:, None, part]) * scale[:, None, part]
            parts.append(away.square_().log1p_().sum(-1))
        return constant[:, None] - weight[:, None] * torch.cat(parts, -1)

    def derive(self, known: Known) -> tuple[Derived, Bound]:
        n, means, a, b = posterior_of(known, self.alpha.numpy(), self.beta.numpy())
        v = b / a * (1 + 1 / n.clip(1))
        scale, size, weight = 1 / np.sqrt(2 * a * v), means.shape[1], a[:, 0] + 0.5
        shift = -means * scale
        constant = size * log_peak(torch.from_numpy(a[:, 0])).numpy() - np.log(v).sum(1) / 2
        # |d log(1 + u^2) / du| <= 1 and log(1 + u^2) <= |u|, so both rounding u and adding logarithms cost a share of
        # sum |u|; each factor of a product costs a few bits of its own
        eps, heaviest = rounding(size // _FACTORS), float(weight.max())
        fixed = heaviest * (eps * float(abs(shift).sum(1).max()) + 2.0**-22 * size)
        fixed += 2.0**-22 * float(abs(constant).max())
        if short := -size % _FACTORS:
            scale, shift = (np.pad(array, ((0, 0), (0, short))) for array in (scale, shift))
        small = tuple(array.astype(np.float32) for array in (scale, shift, constant, weight))
        return small, Bound(fixed, heaviest * eps * longest(scale))

    def quick(self, query: Tensor, *derived: Tensor) -> Tensor:
        """One logarithm for several features: that of the product. Where it overflows, nothing is known (NaN)."""
        scale, shift, constant, weight = derived
        sums = []
        for z in F.pad(query, (0, scale.shape[1] - query.shape[1])):
            factors = torch.addcmul(shift, scale, z).square_().add_(1)
            while factors.shape[1] > scale.shape[1] // _FACTORS:
                left, right = factors.chunk(2, 1)
                factors = left.mul_(right)
            sums.append(factors.log().sum(1))
        whole = torch.stack(sums)
        return constant - weight * whole.masked_fill_(whole.isinf(), torch.nan)


class Gaussian(ClassMeans):
    """For each class and feature: mean m, S = sum (z - m)^2 over its n examples, a' = alpha + n/2, b' = beta + S/2.

    exact: Student t with 2a' degrees of freedom around m, squared scale v = b'/a' (1 + 1/n). map: Gaussian around m
    with the variance v = b' / (a' - 1/2). Scores are the sums of log densities.
    """

    card = Card(
        "a Bayesian Gaussian for each class",
        "Banayeeanzade et al. 2021 (GeMCL)",
        keeps="a mean and a variance for each class",
        order_free=True,
        trains=("head",),
    )
    settings_type = GaussianSettings

    @classmethod
    def fit_settings(cls, base: Tensor) -> dict[str, Any]:
        alpha, beta = fit_prior(base)
        return {"alpha": alpha, "beta": beta}

    def _setup(self) -> None:
        super()._setup()
        self.alpha, self.beta = self.column("alpha").double(), self.column("beta").double()
        self.add_rows(SQUARE, self.model.width, dtype=torch.float64)

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        label = self.labels(y)
        self.add_class(x, label)
        self.add_to(SQUARE, x.double().square(), label)

    def form(self) -> Posterior:
        kind = AtMode if self.choice("form") == "map" else StudentT
        return kind(self.alpha, self.beta)


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
