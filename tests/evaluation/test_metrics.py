"""Metrics on cases that can be worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kcciol.evaluation.metrics import ImagesAsked, class_accuracy, curve_points, summarize, t_quantile, wilson_reach
from kcciol.evaluation.selection import Selection
from kcciol.evaluation.stream import draw
from kcciol.evaluation.trace import AccuracyMatrix
from kcciol.learners.gradient import GradientSettings
from kcciol.learners.head import HeadInStep, StartedHead, columns


def head_of(weight: Tensor) -> HeadInStep:
    """Copies (B, rows, d) that have learned nothing yet, but answer."""
    start = torch.nn.functional.pad(weight, (0, columns(weight.shape[2]) - weight.shape[2]))
    settings = [GradientSettings(rate=0.5)] * len(weight)
    return HeadInStep(StartedHead(weight.shape[2], [start]), settings, range(len(weight)))


def test_scores_that_are_not_finite_are_wrong() -> None:
    weight = torch.eye(4)[None].repeat(2, 1, 1)
    weight[1, 3] = math.inf
    images, classes = torch.eye(4)[:, None] + 0.1, torch.arange(4).repeat(2, 1)
    found = class_accuracy(head_of(weight), images, classes)
    assert found[0].tolist() == [100, 100, 100, 100]
    assert not found[1].any()


def test_accuracy_by_class_and_copy() -> None:
    """W is the identity for copy 0; copy 1 answers 2 to everything, a class that is never seen."""
    weight = torch.eye(3).repeat(2, 1, 1)
    weight[1, 2] = 9
    head = head_of(weight)
    images = torch.tensor([[[1.0, 0, 0], [1, 0, 0]], [[0, 1, 0], [1, 0, 0]], [[0, 0, 1], [0, 0, 1]]])
    streams = torch.tensor([[0, 1], [0, 1]])
    assert class_accuracy(head, images, streams).tolist() == [[100, 50], [0, 0]]
    assert class_accuracy(head, images, streams[:, 1:], 1).tolist() == [[50], [0]]
    assert class_accuracy(head, images, torch.tensor([[1, 0], [1, 0]])).tolist() == [[50, 0], [0, 0]]


def test_forgetting() -> None:
    learned = torch.tensor([[100.0, 80, 60], [50, 50, 50]])
    final = torch.tensor([[40.0, 60, 60], [50, 70, 50]])

    def forgotten(classes: int) -> list[float]:
        found: list[float] = (
            AccuracyMatrix(final[:, None, :classes], learned[:, :classes], (classes,), {}, {}).forgetting().tolist()
        )
        return found

    assert forgotten(3) == [40, -10]
    assert forgotten(1) == [0, 0]


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


def test_an_interval_never_says_0() -> None:
    """Equal values show no spread; the images that they are shares of are then all that is known."""
    same = torch.full((5,), 30.0)
    assert summarize(same).ci95 is None
    few = summarize(same, ImagesAsked(different=20, each=20))
    assert (few.std, few.images) == (0, 20)
    assert few.ci95 == pytest.approx(100 * (0.5190 - 0.3), abs=0.05)  # Wilson: 14.5 % to 51.9 %
    assert summarize(torch.full((3,), 100.0), ImagesAsked(20, 10)).ci95 == pytest.approx(16.1, abs=0.05)


def test_an_interval_counts_images_where_all_are_asked_the_same() -> None:
    values = torch.tensor([29.0, 30.0, 31.0])
    by_order, by_classes = (summarize(values, ImagesAsked(images, 20)) for images in (20, 60))
    assert by_order.images == 20
    assert by_order.ci95 == pytest.approx(100 * wilson_reach(0.3, 20))
    assert by_classes == summarize(values)
    assert by_classes.images is None
    assert summarize(torch.tensor([0.0, 60.0]), ImagesAsked(20, 20)).images is None  # order alone tells more than that


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


@pytest.mark.parametrize("at_once", [1, 2 * 2 * 5, 2**24])
def test_classes_are_asked_a_few_at_a_time(at_once: int) -> None:
    torch.manual_seed(0)
    weight, images = torch.randn(5, 4, 17), torch.randn(6, 2, 17)
    head = head_of(weight.clone())
    head.model.at_once = at_once
    streams = torch.stack([torch.randperm(6)[:3] for _ in range(5)])
    found = class_accuracy(head, Selection.first(images, 2), streams)
    for copy in range(5):
        for position, label in enumerate(streams[copy].tolist()):
            right = [int((weight[copy] @ image).argmax()) == position for image in images[label]]
            assert found[copy, position] == 100 * sum(right) / 2
