"""Streaming linear discriminant analysis: class means and one covariance for all (Hayes and Kanan 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.learners.base import Labels, Settings
from kcciol.learners.blocks import Bound, ClassSnapshot, Derived, Form, Known, Rows, linear, rounding
from kcciol.learners.bounds import bounded
from kcciol.learners.card import Card
from kcciol.learners.grid import Grid
from kcciol.learners.model import Model
from kcciol.learners.statistics import COUNT, MEAN, ClassMeans, Scatter, ScatterSnapshot, factor_of, means_of, solve

WEIGHT, LENGTH = "weight", "length"  # what is multiplied with an example, and |L^-1 mu|^2
_FEW = 32  # examples and classes that may have changed before all lengths are solved for again


@dataclass(frozen=True)
class SLDASettings(Settings):
    shrinkage: float = bounded(0.1, above=0, high=1)
    """Share of the identity in the covariance, whose mean variance is brought to 1 first; 1 is the nearest mean."""


def covariance_factor(scatter: Tensor, shrinkage: Tensor) -> tuple[Tensor, Tensor]:
    """L (B, d, d) with L L^T = (1 - eps) Sigma + eps I, where Sigma is the scatter with a mean variance of 1, and what
    the scatter was multiplied with, (B,); it is used up."""
    size = scatter.diagonal(dim1=1, dim2=2).mean(-1)
    share = (1 - shrinkage) / torch.where(size > 0, size, 1)
    scatter *= share[:, None, None]
    scatter.diagonal(dim1=1, dim2=2).add_(shrinkage[:, None])
    return factor_of(scatter), share


@dataclass(frozen=True)
class CommonCovariance(Form):
    """score_c(z) = mu_c . (L L^T)^-1 z - |L^-1 mu_c|^2 / 2, of copies."""

    scatter: Scatter | ScatterSnapshot
    shrinkage: Tensor

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """Of all copies; see `covariance_factor`."""
        return covariance_factor(self.scatter.total(), self.shrinkage)

    @cached_property
    def factor(self) -> tuple[Tensor, float]:
        """Of the only copy."""
        return self.factors[0][0], float(self.factors[1])

    def prepare(self, x: Tensor) -> Tensor:
        return x.double()

    def half(self, means: Tensor) -> Tensor:
        """L^-1 mu (B, d, classes), whose squared lengths matter, of means (B, classes, d)."""
        found: Tensor = torch.linalg.solve_triangular(self.factors[0], means.mT, upper=False)
        return found

    def solved(self, rows: Rows) -> Rows:
        half = self.half(means_of(rows))
        weights = torch.linalg.solve_triangular(self.factors[0].mT, half, upper=True).mT
        return {WEIGHT: weights, LENGTH: half.square().sum(1)}

    def plain(self, query: Tensor, rows: Rows) -> Tensor:
        return query @ rows[WEIGHT].mT - rows[LENGTH][:, None] / 2

    def derive(self, known: Known) -> tuple[Derived, Bound]:
        """Without the lengths, which change with every example of any class."""
        return linear(means_of(known), 0 * known[COUNT])


class SLDAByExample(CommonCovariance):
    """An example is solved for, not each class."""

    scatter: ScatterSnapshot

    def prepare(self, x: Tensor) -> Tensor:
        return solve(self.factors[0], x.double()[None])[0]

    def solved(self, rows: Rows) -> Rows:
        means = means_of(rows)
        return {WEIGHT: means, LENGTH: self.half(means).square().sum(1)}


@dataclass(frozen=True)
class Reference:
    """The lengths of all classes at an earlier time, and what bounds the change since."""

    form: SLDAByExample
    lengths: Tensor  # (classes,), float64
    weights: Tensor  # (classes, d), float32: A^-1 mu, where A = L L^T
    sizes: Tensor  # (classes,), float64: |A^-1 mu|^2

    def lengths_at(self, form: SLDAByExample) -> tuple[Tensor, float] | None:
        """About the lengths that the same means have in a later form, and how far off they may be.

        With B = A / share, and B' = B + D for a D that is nowhere negative, a mean's length mu^T B'^-1 mu is smaller
        than mu^T B^-1 mu by q / (1 + r) to q, where q = w^T D w, w = B^-1 mu, and r is the largest eigenvalue of
        B^-1 D. D is the sum of v v^T over the examples since, and a growing multiple of the identity.
        """
        factor, share = self.form.factor
        later = form.factor[1]
        vectors = form.scatter.since(self.form.scatter)
        if vectors is None or len(vectors) > _FEW or not 0 < later <= share:
            return None
        ridge = float(self.form.shrinkage)
        wider = ridge / later - ridge / share
        solved = torch.linalg.solve_triangular(factor, vectors.mT, upper=False)
        r = share * (float(solved.square().sum()) + wider / ridge)
        sizes = self.sizes * share**2  # of w, and below its products with v
        squares = (self.weights @ vectors.float().mT).double().square().sum(1) * share**2
        slack = 3 * rounding(vectors.shape[1]) * sizes * vectors.square().sum()
        q = squares + wider * sizes
        lengths = self.lengths * share - q * (1 + 1 / (1 + r)) / 2
        return lengths / later, float((q * r / (1 + r) / 2 + slack).max()) / later


class Discriminant(ClassSnapshot):
    """With the lengths of all classes, which are solved for now and then; in between they are known up to a bound."""

    form: SLDAByExample
    _solved: tuple[Reference | None, frozenset[int]] = None, frozenset()  # and the classes that have changed since
    _lengths: tuple[Tensor, float] | None = None

    def after(self, form: Form, classes: int, changed: Mapping[int, Known]) -> Self:
        following = super().after(form, classes, changed)
        reference, moved = self._solved
        following._solved = reference, moved | changed.keys()
        return following

    def lengths(self) -> tuple[Tensor, float]:
        """|L^-1 mu|^2 of all classes (classes,), float64, and how far off they may be."""
        if self._lengths is None:
            self._lengths = self._updated() or self._solve()
        return self._lengths

    def _updated(self) -> tuple[Tensor, float] | None:
        (reference, moved), form = self._solved, self.form
        if reference is None or len(moved) > _FEW or (found := reference.lengths_at(form)) is None:
            return None
        lengths = F.pad(found[0], (0, self.classes - len(found[0])))
        if moved:
            some = np.array(sorted(moved))
            lengths[some] = form.solved(self.rows(some))[LENGTH][0]
        return lengths, found[1]

    def _solve(self) -> tuple[Tensor, float]:
        form, means = self.form, means_of(self.rows(range(self.classes)))[0]
        weights = solve(form.factors[0], means[None])[0]
        lengths = (means * weights).sum(1)
        reference = Reference(form, lengths, weights.float(), weights.square().sum(1))
        self._solved = reference, frozenset()
        return lengths, 0.0

    def quick(self, query: Tensor) -> tuple[Tensor, list[float]]:
        scores, errors = super().quick(query)
        lengths, off = self.lengths()
        off += 2.0**-22 * float(lengths.max())
        return scores.sub_(lengths.float(), alpha=0.5), [error + off for error in errors]


class SLDA(ClassMeans):
    """score_c(z) = w_c.z - w_c.mu_c / 2 with w_c = ((1 - eps) Sigma + eps I)^-1 mu_c.

    Sigma is the covariance within classes: an example adds n/(n+1) d d^T, where d is its distance to the mean of the n
    examples of its class before it. That is exactly the covariance of all examples around their final means, in any
    order. (The published recursion takes n to be the number of all examples, which is another matrix.)
    """

    card = Card(
        "class means and one covariance for all classes",
        "Hayes and Kanan 2020",
        keeps="a mean for each class and one covariance",
        order_free=True,
        trains=("head",),
        solves=True,
    )
    settings_type = SLDASettings

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        width = math.prod(model.input_shape)
        return super().extra_bytes(model, settings, classes) + 4 * width * (width + 64)

    grid: ClassVar[Grid] = {"shrinkage": (0.001, 0.01, 0.1, 0.5, 1.0)}

    def _setup(self) -> None:
        super()._setup()
        self.shrinkage = self.column("shrinkage").double()
        self.scatter = Scatter(self.state, self.copies, self.model.width, self.device)

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        """Each example adds n / (n + 1) d d^T, with d its distance from the mean of the n that came before it."""
        z, label, m = x.double(), self.labels(y), x.shape[1]
        sums = self.rows[MEAN][self.each, label][:, None]
        n = self.add_class(x, label)[:, None, None]
        if m > 1:
            sums, n = sums + z.cumsum(1) - z, n + torch.arange(m, device=x.device)[:, None]
        self.scatter.add(self.steps, ((z - sums / n.clamp_min(1)) * (n / (n + 1)).sqrt()).to(x.dtype))

    snapshot_type = Discriminant

    def form(self) -> CommonCovariance:
        return CommonCovariance(self.scatter, self.shrinkage)

    def lasting_form(self) -> CommonCovariance:
        return SLDAByExample(self.scatter.snapshot(self.steps), self.shrinkage)
