"""Streams of examples and what is measured on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kcciol.errors import UserError
from kcciol.evaluation.metrics import class_accuracy
from kcciol.evaluation.stream import Schedule
from kcciol.evaluation.trace import AccuracyMatrix, Streams, feed, run
from kcciol.learners import fitting
from kcciol.learners.base import Learner, Settings
from kcciol.learners.gradient import GradientSettings
from kcciol.learners.model import Head
from kcciol.learners.ncm import NCM, NCMSettings
from kcciol.learners.online import Online
from tests.learners.battery import make

WIDTH = 8


def images(classes: int = 12, samples: int = 9, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(classes, 1, WIDTH, generator=generator)
    return (centres + 0.5 * torch.randn(classes, samples, WIDTH, generator=generator)).relu()


def streams(plan: Schedule, copies: int = 2) -> Streams:
    data = images()
    random = np.random.default_rng(0)
    classes = torch.from_numpy(np.stack([random.permutation(12)[: plan.classes] for _ in range(copies)]))
    return Streams(plan, classes, range(copies), data[:, :6], data[:, 6:])


def online(copies: int = 2, **settings: Any) -> Online:
    return Online(Head(WIDTH), GradientSettings(**({"rate": 0.05, "reserve": 5} | settings)), range(copies))


@pytest.mark.parametrize("order", ["class", "task", "shuffled"])
def test_every_example_comes_once(order: Any) -> None:
    plan = Schedule(classes=6, samples=4, task_classes=2, order=order)
    places = plan.positions(3)
    assert places.shape == (3, 8, 2)
    assert sorted(map(tuple, places.reshape(-1, 2).tolist())) == [(c, s) for c in range(6) for s in range(4)]
    for task, part in enumerate(places):
        inside = set(part[:, 0].tolist()) == {2 * task, 2 * task + 1}
        assert inside == (order != "shuffled")
    ordered = places.reshape(-1, 2).tolist() == [[c, s] for c in range(6) for s in range(4)]
    assert ordered == (order == "class")
    assert (plan.positions(3) == places).all()
    if order != "class":
        assert (plan.positions(4) != places).any()


@pytest.mark.parametrize("order", ["class", "task", "shuffled"])
def test_copies_see_their_own_classes_in_their_own_order(order: Any) -> None:
    plan = Schedule(classes=4, samples=3, task_classes=2, order=order)
    given = streams(plan)

    class Spy(NCM):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            self.saw: list[tuple[torch.Tensor, Any]] = []

        def observe(self, x: torch.Tensor, y: Any) -> None:
            self.saw.append((x, y))
            super().observe(x, y)

        def observe_class(self, x: torch.Tensor, y: Any) -> None:
            for i in range(x.shape[1]):
                self.observe(x[:, i], y)

    spy = Spy(Head(WIDTH), NCMSettings(), (0, 1))
    assert list(feed(spy, given)) == [1, 2]
    for copy in range(2):
        places = plan.positions(copy).reshape(-1, 2)
        for (x, y), (label, sample) in zip(spy.saw, places.tolist(), strict=True):
            assert y[copy] == label
            assert torch.equal(x[copy], given.train[given.classes[copy, label], sample])


@pytest.mark.parametrize("name", fitting("head"))
@pytest.mark.parametrize("order", ["class", "task"])
def test_a_prefix_of_a_stream_is_a_shorter_stream(name: str, order: Any) -> None:
    """So one stream serves for every number of classes."""
    long = streams(Schedule(classes=6, samples=3, task_classes=1 if order == "class" else 3, order=order))
    plan = replace(long.schedule, classes=3)
    short = Streams(plan, long.classes[:, :3], long.trajectories, long.train, long.test)
    if order == "task":  # the order within a task is drawn task by task, so the first is the same
        assert (long.schedule.positions(0)[:1] == plan.positions(0)).all()
    one, two = (make(name, Head(WIDTH), (0, 1)) for _ in range(2))
    course, other = run(one, long, points=[plan.tasks]), run(two, short)
    torch.testing.assert_close(course.at(plan.tasks), other.accuracy)
    assert course.points == (plan.tasks, long.schedule.tasks)


def test_all_learners_see_the_same_stream() -> None:
    plan = Schedule(classes=4, samples=3, task_classes=2, order="task", seed=7)
    assert (plan.positions(1) == replace(plan).positions(1)).all()
    assert (plan.positions(1) != replace(plan, seed=8).positions(1)).any()


def test_the_names_of_classes_do_not_matter() -> None:
    """Labels permuted, answers permuted: only the order of arrival counts."""
    given = streams(Schedule(classes=5, samples=6))
    one, two = online(), online()
    new = np.array([3, 0, 4, 1, 2])
    for label in range(5):
        x = given.train[given.classes[:, label]]
        one.observe_class(x, np.full(2, label))
        two.observe_class(x, np.full(2, new[label]))
    images = given.test[given.classes].flatten(1, 2)
    torch.testing.assert_close(one.unchecked_scores(images), two.unchecked_scores(images)[..., new])


def test_the_numbers_are_what_their_names_say() -> None:
    nan = torch.nan
    matrix = torch.tensor([[[90.0, nan, nan], [60.0, 80.0, nan], [30.0, 90.0, 70.0]]], dtype=torch.float64)
    learned = matrix.diagonal(dim1=1, dim2=2)
    course = AccuracyMatrix(matrix, learned, (1, 2, 3), {3: torch.tensor([99.0])}, {})
    assert course.accuracy.tolist() == pytest.approx([190 / 3])
    assert course.at(2).tolist() == [70.0]
    assert course.anytime().tolist() == pytest.approx([(90 + 70 + 190 / 3) / 3])
    assert course.forgetting_by_task().tolist() == [[60.0, -10.0, 0.0]]  # the second was never better
    assert course.backward_transfer().tolist() == [(-60 + 10) / 2]
    assert course.forgetting().tolist() == [25.0]
    shorter = course.until(2)
    assert shorter.accuracy.tolist() == course.at(2).tolist()
    assert shorter.forgetting_by_task().tolist() == [[30.0, 0.0]]
    pairs = AccuracyMatrix(
        torch.tensor([[[40.0, 80.0, 10.0, 30.0]]]), torch.tensor([[60.0, 80.0, 10.0, 30.0]]), (2,), {}, {}, 2
    )
    assert pairs.forgetting_by_task().tolist() == [[10.0, 0.0]]
    sparse = AccuracyMatrix(matrix[:, 2:], learned, (3,), {}, {})
    assert sparse.forgetting().tolist() == course.forgetting().tolist()
    unknown = AccuracyMatrix(matrix[:, 2:], learned * torch.nan, (3,), {}, {})
    assert not unknown.knows_forgetting


def test_what_was_learned_is_measured_right_after_each_task() -> None:
    given = streams(Schedule(classes=6, samples=6, task_classes=2))
    every, last = run(online(), given), run(online(), given, points=[3])
    for task in range(3):
        pair = slice(2 * task, 2 * task + 2)
        torch.testing.assert_close(every.learned[:, pair], every.matrix[:, task, pair])
    assert torch.equal(every.learned, last.learned)


def test_who_wants_the_end_alone_measures_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    given = streams(Schedule(classes=6, samples=6, task_classes=2))
    whole = run(online(), given)
    measured: list[int] = []

    def noted(learner: Learner, images: Any, classes: torch.Tensor, first: int = 0) -> torch.Tensor:
        measured.append(classes.shape[1])
        return class_accuracy(learner, images, classes, first)

    monkeypatch.setattr("kcciol.evaluation.trace.class_accuracy", noted)
    course = run(online(), given, points=[], learned_at=[], each_task=False)
    assert measured == [6]
    assert torch.equal(course.final, whole.final)
    assert not course.knows_forgetting


def test_examples_learned_are_asked_where_it_is_wanted() -> None:
    given = streams(Schedule(classes=6, samples=6))
    course = run(online(), given, learned_at=[2, 6])
    assert list(course.train) == [2, 6]
    plan = replace(given.schedule, classes=2)
    short = run(online(), Streams(plan, given.classes[:, :2], given.trajectories, given.train, given.test))
    assert torch.equal(course.train[2], short.train[2])
    assert run(online(), given, learned_at=[]).train == {}
    shuffled = replace(given, schedule=replace(given.schedule, order="shuffled"))
    assert list(run(online(), shuffled, learned_at=[2]).train) == [6]  # it has no tasks, so at the end


def test_a_single_task_forgets_nothing() -> None:
    course = run(NCM(Head(WIDTH), NCMSettings(), (0, 1)), streams(Schedule(classes=4, samples=6, task_classes=4)))
    assert course.forgetting().tolist() == course.backward_transfer().tolist() == [0, 0]


def test_accuracy_is_counted_class_by_class() -> None:
    given = streams(Schedule(classes=5, samples=6))
    learner = NCM(Head(WIDTH), NCMSettings(), (0, 1))
    list(feed(learner, given))
    found = class_accuracy(learner, given.test, given.classes)
    for copy in range(2):
        for label, name in enumerate(given.classes[copy].tolist()):
            alone = learner.unchecked_scores(given.test[name].expand(2, -1, -1))[copy].argmax(-1)
            assert found[copy, label] == pytest.approx(100 * float((alone == label).double().mean()))


def test_shuffling_helps_an_online_learner() -> None:
    ordered = run(online(reserve=0), streams(Schedule(classes=8, samples=6)))
    shuffled = run(online(reserve=0), streams(Schedule(classes=8, samples=6, order="shuffled")))
    assert shuffled.accuracy.mean() > ordered.accuracy.mean()


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"classes": 0}, "empty stream"), ({"samples": 0}, "empty stream"), ({"task_classes": 4}, "cannot be split")],
)
def test_streams_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Schedule(**{"classes": 6, "samples": 4, **settings})


def test_bad_examples_and_points_are_refused() -> None:
    with pytest.raises(UserError, match="wants 7 examples"):
        streams(Schedule(classes=2, samples=7))
    given = streams(Schedule(classes=2, samples=2))
    with pytest.raises(UserError, match="2 tasks"):
        run(online(), given, points=[5])
    assert isinstance(online().settings[0], Settings)


def test_a_learner_that_has_diverged_is_wrong() -> None:
    given, learner = streams(Schedule(classes=3, samples=2)), online()
    list(feed(learner, given))
    learner.parameters["weight"][0] = torch.nan
    found = class_accuracy(learner, given.test, given.classes)
    assert not found[0].any()
    assert found[1].any()
