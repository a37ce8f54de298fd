"""That quick scores are off by no more than their bound says, where each part of the bound alone must hold it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kcciol.learners.blocks import linear, rounding
from kcciol.learners.gaussian import SQUARE, StudentT
from kcciol.learners.slda import Reference, SLDAByExample
from kcciol.learners.statistics import COUNT, MEAN, ScatterSnapshot, solve

UNIT = 2.0**-24  # how far off a number may be that is rounded to float32
ODD = 1 + 2.0**-24 + 2.0**-30  # which is rounded as badly as can be


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_linear_form(size: int) -> None:
    zero = np.zeros((1, size))
    (_, bias), bound = linear(zero, np.array([2.0**30 * ODD]))
    off = abs(float(bias[0]) - 2.0**30 * ODD)
    assert off > 0.9 * 2**30 * UNIT
    assert bound.errors(torch.zeros(1, size))[0] >= off
    (weight, _), bound = linear(zero + ODD, np.zeros(1))
    x = torch.full((1, size), 1024.0)
    assert bound.errors(x)[0] >= abs(float(weight.astype(np.float64).sum()) * 1024.0 - size * 1024.0 * ODD) > 0
    # as if each product and each sum were rounded as badly as can be
    assert bound.errors(x)[0] >= 1024.0 * ODD * size * ((1 + UNIT) ** (size + 1) - 1)


def student(
    mean: float, alpha: float = 50.0, beta: float = 50.0, size: int = 32
) -> tuple[StudentT, dict[str, np.ndarray]]:
    form = StudentT(torch.tensor([alpha]).double(), torch.tensor([beta]).double())
    return form, {COUNT: np.ones(1), MEAN: np.full((1, size), mean), SQUARE: np.full((1, size), mean**2)}


@pytest.mark.parametrize(("mean", "z"), [(0.0, 15.0), (-15.0, 0.0), (-15.0, 15.0), (0.01, 0.0)])
def test_a_student_t_whose_numbers_are_rounded(mean: float, z: float) -> None:
    """u = scale z + shift is made of three rounded numbers: as if each were as far off as may be, to the same side."""
    form, known = student(mean)
    (scale, shift, _, weight), bound = form.derive(known)
    exact = scale.astype(np.float64) * z + shift
    worst = abs(scale.astype(np.float64) * z) * 3 * UNIT + abs(shift) * 2 * UNIT
    off = weight[0] * (np.log1p((abs(exact) + worst) ** 2) - np.log1p(exact**2)).sum()
    off += weight[0] * 32 * 2 * UNIT  # a square, a one added and a product for each feature: at least so much
    assert bound.errors(torch.full((1, 32), z))[0] >= off > 0


def test_a_constant_that_is_rounded() -> None:
    offs = []
    for beta in 1e-30 * np.arange(1, 60):
        form, known = student(0.0, alpha=0.6, beta=float(beta))
        (_, _, constant, _), bound = form.derive(known)
        rows = {name: torch.from_numpy(value)[None] for name, value in known.items()}
        exact = float(form.plain(torch.zeros(1, 1, 32).double(), rows)[0, 0, 0])
        offs.append(abs(float(constant[0]) - exact) / bound.errors(torch.zeros(1, 32))[0])
    assert 0.05 < max(offs) <= 1


def covariance(vectors: torch.Tensor, more: torch.Tensor, shrinkage: float) -> SLDAByExample:
    """Of vectors that are in the sum, and more that wait."""
    snapshot = ScatterSnapshot((vectors.double().T @ vectors.double()).float(), more.float())
    return SLDAByExample(snapshot, torch.tensor([shrinkage]).double())


@pytest.mark.parametrize("case", ["none", "along", "across", "tiny", "several"])
@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 0.9])
def test_lengths_at_a_later_time(case: str, shrinkage: float) -> None:
    """The lengths of class means, after more examples, lie within what is said of them."""
    random = torch.Generator().manual_seed(2)
    vectors, means = (torch.randn(n, 12, generator=random) for n in (40, 9))
    before = covariance(vectors, torch.zeros(0, 12), shrinkage)
    means = means.double()
    weights = solve(before.factors[0], means[None])[0]
    along = (weights[:1] / weights[0].norm()).float()
    more = {
        "none": torch.zeros(1, 12),
        "along": 3 * along,
        "across": torch.linalg.qr(torch.cat([along.T, torch.randn(12, 3, generator=random)], 1))[0][:, 1:2].T,
        "tiny": 1e-6 * along,
        "several": torch.randn(20, 12, generator=random),
    }[case]
    sum_ = before.scatter
    assert isinstance(sum_, ScatterSnapshot)
    later = SLDAByExample(ScatterSnapshot(sum_.sum, more), before.shrinkage)
    reference = Reference(before, (means * weights).sum(1), weights.float(), weights.square().sum(1))
    found = reference.lengths_at(later)
    assert found is not None
    exact = (means * solve(later.factors[0], means[None])[0]).sum(1)
    lengths, off = found
    assert bool(((lengths - exact).abs() <= off * (1 + 1e-9) + 1e-12).all())
    if case == "along":
        assert off < 0.5 * float(exact.max())  # and that says something


@pytest.mark.parametrize("wider", [1.5, 4.0])
def test_lengths_where_the_identity_alone_has_grown(wider: float) -> None:
    """As the scatter grows along one direction, the identity counts for more in all others."""
    vectors = torch.eye(12)[:1] * 5
    before = covariance(vectors, torch.zeros(0, 12), 0.5)
    more = torch.eye(12)[:1] * 5 * math.sqrt(wider)
    sum_ = before.scatter
    assert isinstance(sum_, ScatterSnapshot)
    later = SLDAByExample(ScatterSnapshot(sum_.sum, more), before.shrinkage)
    means = torch.eye(12).double()[3:5]
    weights = solve(before.factors[0], means[None])[0]
    found = Reference(before, (means * weights).sum(1), weights.float(), weights.square().sum(1)).lengths_at(later)
    assert found is not None
    exact = (means * solve(later.factors[0], means[None])[0]).sum(1)
    assert bool(((found[0] - exact).abs() <= found[1] * (1 + 1e-9)).all())


def test_rounding_counts_the_terms() -> None:
    assert rounding(100) >= 101 * UNIT
