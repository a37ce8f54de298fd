"""Metrics on cases that can be worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kcciol.evaluation import metrics
from kcciol.evaluation.metrics import (
    accuracy,
    accuracy_of_latest,
    curve_points,
    forgetting,
    hits,
    summarize,
    t_quantile,
)
from kcciol.evaluation.online import LinearHead
from kcciol.evaluation.stream import draw


def test_non_finite_logits_are_wrong() -> None:
    logits = torch.tensor([[math.nan, 0, 0], [math.inf, 0, 0], [0, -math.inf, 1], [3, 2, 1]])
    assert hits(logits, torch.tensor([0, 0, 2, 0])).tolist() == [False, False, False, True]


def test_accuracy_by_class_and_copy() -> None:
    """W is the identity for copy 0; copy 1 answers 2 to everything, a class that is never seen."""
    weight = torch.eye(3).repeat(2, 1, 1)
    weight[1, 2] = 9
    head = LinearHead([weight], torch.full((2,), 0.5), "sgd")
    images = torch.tensor([[[1.0, 0, 0], [1, 0, 0]], [[0, 1, 0], [1, 0, 0]], [[0, 0, 1], [0, 0, 1]]])
    streams = torch.tensor([[0, 1], [0, 1]])
    assert accuracy(head, images, streams).tolist() == [[100, 50], [0, 0]]
    assert accuracy_of_latest(head, images, streams).tolist() == [50, 0]
    assert accuracy(head, images, torch.tensor([[1, 0], [1, 0]])).tolist() == [[50, 0], [0, 0]]


def test_forgetting() -> None:
    learned = torch.tensor([[100.0, 80, 60], [50, 50, 50]])
    final = torch.tensor([[40.0, 60, 60], [50, 70, 50]])
    assert forgetting(learned, final).tolist() == [40, -10]
    assert forgetting(learned[:, :1], final[:, :1]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (10, 2.22814), (49, 2.00958), (1000, 1.96234)]
)
def test_t_quantiles(freedom: int, t: float) -> None:
    assert t_quantile(freedom) == pytest.approx(t, abs=1e-5)


def test_summary() -> None:
    values = torch.tensor([1.0, 2, 3, 4])
    summary = summarize(values)
    assert (summary.mean, summary.n) == (2.5, 4)
    assert summary.std == pytest.approx(1.2909944)
    assert summary.ci95 == pytest.approx(3.1824463 * 1.2909944 / 2)
    assert summarize(values[:1]).to_dict() == {"mean": 1.0, "std": 0.0, "n": 1, "ci95": None}


def test_curve_points_end_with_all_classes() -> None:
    for classes in range(1, 40):
        for points in range(1, 15):
            found = curve_points(classes, points)
            assert found[-1] == classes
            assert found[0] >= 1
            assert len(found) == min(points, classes)


def unique_rows(trajectories: Tensor) -> bool:
    return all(len(set(row)) == len(row) for row in trajectories.tolist())


def test_trajectories() -> None:
    report, search = (draw(0, purpose, 30, 10, 20) for purpose in ("report", "search"))
    assert report.shape == (20, 10)
    assert unique_rows(report)
    assert report.min() >= 0
    assert report.max() < 30
    assert not {tuple(r) for r in report.tolist()} & {tuple(r) for r in search.tolist()}
    assert torch.equal(report, draw(0, "report", 30, 10, 20))
    assert torch.equal(report[:5], draw(0, "report", 30, 10, 5))
    assert not torch.equal(report, draw(1, "report", 30, 10, 20))


@pytest.mark.parametrize("at_once", [1, 2 * 3 * 2 * 17, 2**24])
def test_copies_are_scored_some_at_a_time(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "AT_ONCE", at_once)
    torch.manual_seed(0)
    weight, images = torch.randn(5, 4, 17), torch.randn(6, 2, 17)
    head = LinearHead([weight.clone()], torch.ones(5), "sgd")
    streams = torch.stack([torch.randperm(6)[:3] for _ in range(5)])
    found = accuracy(head, images, streams)
    for copy in range(5):
        for position, label in enumerate(streams[copy].tolist()):
            right = [int((weight[copy] @ image).argmax()) == position for image in images[label]]
            assert found[copy, position] == 100 * sum(right) / 2
