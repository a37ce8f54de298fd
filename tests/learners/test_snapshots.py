"""The quick form of scores against the plain one, class after class and example after example."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from kcciol.errors import UserError
from kcciol.learner import OnlineLearner
from kcciol.learners import blocks, ridge, slda
from kcciol.learners import snapshot as snapshots
from kcciol.learners.blocks import ClassSnapshot
from kcciol.learners.snapshot import NO_CLASS, highest
from kcciol.learners.statistics import solve

CASES: list[tuple[str, dict[str, Any]]] = [
    ("ncm", {}),
    ("ncm", {"distance": "cosine"}),
    ("gaussian", {}),
    ("gaussian", {"alpha": 1.5, "beta": 0.1}),
    ("gaussian", {"form": "map"}),
    ("slda", {}),
    ("slda", {"shrinkage": 1.0}),
    ("slda", {"shrinkage": 0.001}),
    ("ridge", {"units": 0}),
    ("ridge", {"units": 40}),
]
cases = pytest.mark.parametrize(("name", "settings"), CASES)
CLASSES = 23


def check(learner: OnlineLearner, xs: torch.Tensor) -> None:
    """Answers and scores are those of the plain form, and quick scores up to their bound."""
    plain, snapshot = learner.learner.scores(xs[None])[0], learner.learner.snapshot()
    assert isinstance(snapshot, ClassSnapshot)
    assert snapshot.answers(xs) == [snapshot.answers(x[None])[0] for x in xs] == plain.argmax(-1).tolist()
    scale = plain.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(snapshot.scores(xs) / scale, plain / scale, rtol=1e-9, atol=1e-9)
    quick, errors = snapshot.quick(snapshot.form.prepare(xs))
    off = (quick.double() - plain).abs()
    assert bool((off <= torch.tensor(errors)[:, None] + 1e-9 * scale).all())


@pytest.mark.parametrize("width", [5, 48])
@cases
def test_quick_scores_are_the_plain_ones(
    name: str, settings: dict[str, Any], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes that come and change, in several blocks, with and without questions in between."""
    monkeypatch.setattr(blocks, "BLOCK", 4)
    monkeypatch.setattr(slda, "_FEW", 5)
    random = torch.Generator().manual_seed(1)
    centres = torch.rand(CLASSES, width, generator=random)
    learner = OnlineLearner(name, width, settings)
    for number in range(150):
        label = number * 7 % (1 + number * CLASSES // 150)
        x = centres[label] + 0.3 * torch.rand(width, generator=random)
        if number % 50 == 40:
            some = [label, 0, 1, label]
            learner.learn_many(x + 0.1 * torch.rand(4, width, generator=random), some)
        learner.learn_one(x, label)
        if number % 3 == 0 or number > 120:
            check(learner, torch.rand(3, width, generator=random))
    check(learner, torch.rand(300, width, generator=random))


@cases
def test_classes_that_nearly_tie_are_told_apart_as_plainly(name: str, settings: dict[str, Any]) -> None:
    """Classes that differ by less than a float32 can say of their scores, far from the origin."""
    random = torch.Generator().manual_seed(2)
    near = 1 + 1e-6 * torch.rand(CLASSES, 8, generator=random)
    learner = OnlineLearner(name, 8, settings).learn_many(near, range(CLASSES))
    learner.learn_many(near, range(CLASSES))
    asked = 1 + 1e-6 * torch.rand(50, 8, generator=random)
    plain = learner.learner.scores(asked[None])[0]
    answers = torch.tensor(learner.learner.snapshot().answers(asked))
    lost = plain.amax(1) - plain.gather(1, answers[:, None])[:, 0]
    assert bool((lost <= 1e-9 * plain.abs().amax(1)).all())
    if name in ("ncm", "gaussian"):
        assert len(set(answers.tolist())) > 1


@cases
def test_large_values_are_answered_plainly(name: str, settings: dict[str, Any]) -> None:
    """Where a float32 overflows, and one loud example among quiet ones."""
    xs = 1e6 * torch.eye(6)
    learner = OnlineLearner(name, 6, settings).learn_many(xs, range(6)).learn_many(1e-6 * xs, range(6))
    asked = torch.cat([xs, 1e-6 * xs, -xs])
    plain = learner.learner.scores(asked[None])[0]
    answers = torch.tensor(learner.learner.snapshot().answers(asked))
    lost = plain.amax(1) - plain.gather(1, answers[:, None])[:, 0]
    assert bool((lost <= 1e-9 * plain.abs().amax(1)).all())


@pytest.mark.parametrize("form", ["exact", "map"])
def test_where_a_product_of_factors_overflows_the_answer_is_that_of_the_plain_form(form: str) -> None:
    """One class's quick score overflows, that of its rival does not."""
    near, far = torch.zeros(32), torch.full((32,), -82.0)
    far[::2] += 110
    asked = torch.zeros(32)
    asked[::2] = 110
    learner = OnlineLearner("gaussian", 32, {"form": form}).learn_one(near, "A").learn_one(far, "B")
    scores = learner.scores_one(asked)
    assert learner.predict_one(asked) == max(scores, key=lambda label: scores[label])
    if form == "exact":
        assert scores["A"] > scores["B"]


def test_scores_beyond_float32_raise_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert highest(np.array([-3e38, 0, -np.inf], np.float32), 3e38, lambda some: -torch.tensor(some)[None]) == 0


def test_many_questions_at_once_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_SCORES", 60)
    learner = OnlineLearner("online", 4).learn_many(torch.eye(4), range(4))
    snapshot, sizes = learner.learner.snapshot(), []
    whole = snapshot.scores

    def counted(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return whole(x)

    monkeypatch.setattr(snapshot, "scores", counted)
    assert snapshot.answers(torch.eye(4).repeat(10, 1)) == [0, 1, 2, 3] * 10
    assert sizes == [15, 15, 10]


def test_many_changes_that_nobody_asks_about_do_not_pile_up() -> None:
    learner = OnlineLearner("ncm", 2).learn_one([0.0, 0.0], 0)
    learner.predict_one([0.0, 0.0])
    for label in range(2 * blocks.BLOCK):
        learner.learn_one([float(label), 1.0], label)
    snapshot = learner.learner.snapshot()
    assert isinstance(snapshot, ClassSnapshot)
    assert len(snapshot._parts[1]) <= blocks.BLOCK
    assert learner.predict_one([300.2, 1.0]) == 300


def test_the_highest_of_uncertain_scores() -> None:
    sure = torch.tensor([1.0, 3.0, 2.0, 3.5])
    scores = np.array([1, 3, 2, 2.9], np.float32)
    assert highest(scores, 0.01, lambda some: sure[None, some]) == 1
    assert highest(scores, 0.3, lambda some: sure[None, some]) == 3
    assert highest(scores, 0.07, lambda some: sure[None, some]) == 3  # both may be off by so much
    assert highest(scores, 0.04, lambda some: sure[None, some]) == 1
    assert highest(np.full(4, np.nan, np.float32), 0.0, lambda some: sure[None, some]) == 3
    assert highest(scores, float("inf"), lambda some: sure[None, some]) == 3
    nothing = torch.tensor([torch.nan, -torch.inf, torch.nan, torch.nan])
    assert highest(np.full(4, np.inf, np.float32), 0.0, lambda some: nothing[None, some]) == NO_CLASS
    infinite = torch.tensor([torch.nan, 5.0, torch.inf, 1.0])
    assert highest(np.full(4, np.inf, np.float32), 0.0, lambda some: infinite[None, some]) == NO_CLASS


@pytest.mark.parametrize("x", [np.zeros((2, 2)), np.zeros((4, 1)), np.zeros((1, 1, 4)), np.zeros((2, 4)), 0.0])
def test_an_example_has_one_shape(x: Any) -> None:
    learner = OnlineLearner("ncm", 4).learn_one(np.ones((1, 4)), "a")
    for act in (lambda: learner.learn_one(x, "b"), lambda: learner.predict_one(x), lambda: learner.scores_one(x)):
        with pytest.raises(UserError, match="An example must be 4 numbers, not"):
            act()
    assert learner.classes_ == ("a",)


@pytest.mark.parametrize("classes", [3, CLASSES])
@pytest.mark.parametrize(("name", "settings"), [("ridge", {"units": 96}), ("slda", {})])
def test_a_question_asked_again_has_the_same_scores(name: str, settings: dict[str, Any], classes: int) -> None:
    random = torch.Generator().manual_seed(3)
    learner = OnlineLearner(name, 8, settings)
    learner.learn_many(torch.rand(3 * classes, 8, generator=random), list(range(classes)) * 3)
    x = torch.rand(8, generator=random)
    first = learner.scores_one(x), learner.predict_one(x)
    for _ in range(40):
        assert (learner.scores_one(x), learner.predict_one(x)) == first


def test_few_classes_are_solved_for_once_and_of_many_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the sizes of what is solved: classes at the first question, or each example."""
    solved: list[int] = []

    def counted(factor: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        solved.append(rows.shape[1])
        return solve(factor, rows)

    monkeypatch.setattr(ridge, "solve", counted)
    xs = torch.rand(12, 6, generator=torch.Generator().manual_seed(4))
    for classes, expected in ((4, [4]), (12, [1] * 20)):
        learner = OnlineLearner("ridge", 6, {"units": 64}).learn_many(xs[:classes], range(classes))
        solved.clear()
        for _ in range(20):
            learner.predict_one(xs[0])
        assert solved == expected


@pytest.mark.parametrize("penalty", [1e-3, 0.01, 100.0])
def test_quick_scores_of_solved_examples_are_within_the_bound(penalty: float) -> None:
    random = torch.Generator().manual_seed(5)
    xs = torch.rand(200, 8, generator=random)
    snapshot = (
        OnlineLearner("ridge", 8, {"units": 96, "penalty": penalty})
        .learn_many(xs, [number % CLASSES for number in range(200)])
        .learner.snapshot()
    )
    assert isinstance(snapshot, ClassSnapshot)
    quick, errors = snapshot.quick(snapshot.form.prepare(xs))
    assert bool(((quick - snapshot.scores(xs)).abs() <= torch.tensor(errors)[:, None]).all())


def test_solving_is_what_cholesky_solve_does() -> None:
    random = torch.Generator().manual_seed(6)
    half, rows = (torch.rand(2, n, 9, generator=random, dtype=torch.float64) for n in (20, 3))
    factor = torch.linalg.cholesky(half.mT @ half)
    torch.testing.assert_close(solve(factor, rows), torch.cholesky_solve(rows.mT, factor).mT)


@cases
def test_a_question_after_an_example_derives_nothing(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a class's scores need follows from its example alone, so it is ready before somebody asks."""
    learner = OnlineLearner(name, 4, settings).learn_many(torch.eye(4), range(4))
    learner.predict_one([1.0, 0.0, 0.0, 0.0])
    learner.learn_one([0.0, 1.0, 1.0, 0.0], 2)
    snapshot = learner.learner.snapshot()
    assert isinstance(snapshot, ClassSnapshot)
    monkeypatch.setattr(type(snapshot.form), "derive", None)
    assert learner.predict_one([0.0, 1.0, 2.0, 0.0]) == 2


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam"}, {"outputs": 9}, {"reserve": 0}])
def test_no_later_example_changes_a_snapshot_of_online(settings: dict[str, Any]) -> None:
    """And being asked changes nothing of what is learned, bit by bit."""
    random = torch.Generator().manual_seed(0)
    asked, alone = (OnlineLearner("online", 6, {"rate": 0.1, **settings}) for _ in range(2))
    question = torch.rand(3, 6, generator=random)
    taken: list[tuple[Any, torch.Tensor]] = []
    for number in range(40):
        xs, label = torch.rand(1 + 7 * (number % 2), 6, generator=random), number % (1 + number // 5)
        for learner in (asked, alone):
            learner.learn_many(xs, [label] * len(xs))
        if number == 20:
            asked.learner.load_state_dict(asked.learner.state_dict())
        snapshot = asked.learner.snapshot()
        taken.append((snapshot, snapshot.scores(question)))
        assert snapshot.classes == len(asked.classes_)
        assert torch.allclose(snapshot.scores(question), alone.learner.scores(question[None])[0])
    for snapshot, scores in taken:
        assert torch.equal(snapshot.scores(question), scores)
    mine, other = asked.learner.state_dict(), alone.learner.state_dict()
    assert all(torch.equal(mine[name], other[name]) for name in other)


def test_a_small_class_beside_large_ones_leaves_the_bound_theirs() -> None:
    """A block's bound is that of all its classes, not of the newest."""
    random = torch.Generator().manual_seed(3)
    middle = 1e4 * torch.randn(64, generator=random)
    learner = OnlineLearner("ncm", 64).learn_one(middle, "a")
    learner.learn_one(middle + 0.01 * torch.randn(64, generator=random), "b")
    learner.predict_one(middle)
    learner.learn_one(torch.full((64,), 1e-3), "small")
    asked = middle + 0.02 * torch.randn(200, 64, generator=random)
    plain = learner.learner.scores(asked[None])[0].argmax(-1).tolist()
    assert [learner.classes_.index(label) for label in learner.predict_many(asked)] == plain
