"""What every learner must do, run over all of ours; and that the checks find what is broken."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learner import OnlineLearner
from kcciol.learners import LEARNERS, learner_type
from kcciol.learners.base import Labels
from kcciol.learners.knowledge import KIND
from kcciol.learners.memory import Memory
from kcciol.learners.model import Head, Network, Parameters
from kcciol.learners.ncm import NCM, NCMSettings
from kcciol.learners.statistics import MEAN
from kcciol.nets.copies import inputs_last
from kcciol.testing import CHECKS, Case, case_of, check_learner, checks
from tests.learners.battery import WIDTH, case, examples, feed, kinds, make, model_of, same

every = pytest.mark.parametrize(("name", "kind"), kinds())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@every
def test_every_learner_keeps_its_promises(name: str, kind: str, check: Callable[[Case], None]) -> None:
    check(case(name, kind))


class Broken(NCM):
    """Breaks one promise at a time."""

    broken = ""

    def observe(self, x: Tensor, y: Labels) -> None:
        super().observe(x, y)
        if self.broken == "last wins":
            self.seen[:] = np.arange(self.classes) == y[0]
            self._forget_views()
        elif self.broken == "order":
            self.rows[MEAN] *= 0.9
        elif self.broken == "copies":
            self.rows[MEAN] += self.rows[MEAN].mean(0)

    def unchecked_scores(self, x: Tensor) -> Tensor:
        scores = super().unchecked_scores(x)
        if self.broken == "unseen":
            scores.clamp_min_(-1e9)
        elif self.broken == "answers":
            self.steps += 1
        return scores

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        super()._learn_class(x[:, :4] if self.broken == "class" else x, y)

    def check(self, x: Tensor, before: int) -> None:
        if self.broken != "input":
            super().check(x, before)

    def memory(self) -> dict[str, int]:
        return {"mean": 7} if self.broken == "bytes" else super().memory()

    def state_dict(self) -> dict[str, Tensor]:
        state = super().state_dict()
        return {n: t.float().double() if self.broken == "state" and n == MEAN else t for n, t in state.items()}


@pytest.mark.parametrize(
    ("broken", "check", "says"),
    [
        ("last wins", checks.check_it_learns, "it answers 25 %"),
        ("order", checks.check_order, "free of the order"),
        ("copies", checks.check_copies, "learns alone"),
        ("unseen", checks.check_labels_at_any_time, "minus infinity"),
        ("answers", checks.check_state_is_a_copy, "answering must not change"),
        ("class", checks.check_a_class_at_once, "learn_class must learn what learn does"),
        ("input", checks.check_bad_inputs_are_refused, "must"),
        ("bytes", checks.check_memory_is_honest, "counts 7 bytes"),
        ("state", checks.check_restored, "must answer as the saved one does"),
    ],
)
def test_a_promise_that_is_broken_is_named(broken: str, check: Callable[[Case], None], says: str) -> None:
    learner: type[Broken] = type("Broken", (Broken,), {"broken": broken})
    with pytest.raises(AssertionError, match=says):
        check(case_of(learner))
    with pytest.raises(AssertionError):
        check_learner(learner)
    check(case_of(NCM))


def test_a_learner_whose_card_names_what_is_not_there_is_refused() -> None:
    for changed, says in (
        ({"card": replace(NCM.card, keeps="")}, "its card must say"),
        ({"card": replace(NCM.card, capacity="slots", replay=True)}, "slots is named in its class"),
        ({"card": replace(NCM.card, capacity="distance")}, "replays nothing"),
        ({"grid": {"rate": (1.0,)}}, "rate is named in its class"),
        ({"grid": {"distance": ()}}, "without values"),
    ):
        with pytest.raises(AssertionError, match=says):
            check_learner(type("Changed", (NCM,), changed))
    check_learner(NCM)


def test_what_is_wrong_with_an_example_is_said() -> None:
    learner = make("online")
    x, y = examples(learner.model, 6)
    feed(learner, x, y)
    good, none = np.array([0]), x[:1] * torch.inf
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: learner.learn(x[:1, :4], good), "An example is (4,), but this learner takes (10,)"),
        (lambda: learner.learn(x[:1].double(), good), "of type torch.float64"),
        (lambda: learner.learn(none, good), "not a finite number"),
        (lambda: learner.learn_class(x[None, :0], good), "no example"),
        (lambda: learner.learn_class(x[:1], good), "must be (1, examples"),
        (lambda: learner.learn_class(x[None], good - 1), "0 or more"),
        (lambda: learner.learn_class(x[None], np.array([0, 1])), "one for each copy"),
        (lambda: make("online").scores(x[None]), "Nothing has been learned yet"),
        (lambda: learner_type("magic"), "There is no learner 'magic'"),
    ]
    for call, message in cases:
        with pytest.raises(UserError, match=re.escape(message)):
            call()


@pytest.mark.parametrize("keys", [(3,), (3, 8)])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("online", {"optimizer": "adam", "rate": 0.01}),
        ("online", {"reserve": 0}),
        ("online", {"outputs": 9}),
        ("ewc", {"optimizer": "adam", "rate": 0.01}),
        ("ewc", {"fisher": "label"}),
        ("ewc", {"outputs": 9, "strength": 0.5}),
    ],
)
def test_a_class_at_once_with_other_settings(name: str, settings: dict[str, Any], keys: tuple[int, ...]) -> None:
    checks.check_same_by_class(case(name, "head"), *(make(name, keys=keys, **settings) for _ in range(2)))


@pytest.mark.parametrize("name", ["online", "ewc", "er"])
def test_a_class_at_once_with_another_rate_in_each_copy(name: str) -> None:
    settings = [LEARNERS[name].settings_type(rate=rate) for rate in (0.3, 0.003)]  # type: ignore[call-arg]
    checks.check_same_by_class(case(name, "head"), *(LEARNERS[name](Head(WIDTH), settings, (3, 8)) for _ in range(2)))


@pytest.mark.parametrize("keys", [(3,), (3, 8)])
@pytest.mark.parametrize("name", ["online", "ewc", "er", "slda"])
def test_examples_that_ask_for_gradients_are_learned_without(name: str, keys: tuple[int, ...]) -> None:
    learner = make(name, keys=keys)
    x = torch.rand(len(keys), 5, WIDTH, requires_grad=True)
    learner.observe_class(x, np.zeros(len(keys), dtype=np.int64))
    learner.observe(x[:, 0], np.zeros(len(keys), dtype=np.int64))
    assert not any(tensor.requires_grad for tensor in learner.state_dict().values())


@pytest.mark.parametrize("name", LEARNERS)
def test_a_state_of_another_learner_is_refused(name: str) -> None:
    learner, other = make(name), make("ncm" if name != "ncm" else "online")
    x, y = examples(Head(WIDTH), 6)
    feed(other, x, y)
    with pytest.raises(UserError, match="another kind"):
        learner.load_state_dict(other.state_dict())


@pytest.mark.parametrize("name", [n for n in LEARNERS if not any(p == (n, "network") for p in kinds())])
def test_closed_forms_refuse_a_whole_network(name: str) -> None:
    with pytest.raises(UserError, match="frozen network"):
        make(name, model_of("network"))


@pytest.mark.parametrize("name", [name for name, kind in kinds() if kind == "network"])
def test_weights_in_another_order_of_memory_learn_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a convolution's inputs are last in memory; what is saved is in the usual order."""
    x, y = examples(model_of("network"), 16)
    plain = make(name, model_of("network"))
    usual = Network.start

    def start(model: Network, n: int, device: torch.device) -> Parameters:
        return {k: inputs_last(v) if v.ndim == 5 else v for k, v in usual(model, n, device).items()}

    monkeypatch.setattr(Network, "start", start)
    other, restored = (make(name, model_of("network")) for _ in range(2))
    order = other.state["parameters.conv2.weight"].stride()
    assert order != plain.state["parameters.conv2.weight"].stride()
    for learner in (plain, other):
        feed(learner, x, y)
    saved = other.state_dict()
    assert all(tensor.is_contiguous() for tensor in saved.values())
    for key, tensor in plain.state_dict().items():
        torch.testing.assert_close(saved[key], tensor, rtol=1e-3, atol=1e-4, equal_nan=True)
    restored.load_state_dict(saved)
    assert restored.state["parameters.conv2.weight"].stride() == order
    assert same(other, restored)


def test_what_derives_from_class_means_answers_by_its_own_scores() -> None:
    class Reversed(NCM):
        def _scores(self, x: Tensor) -> Tensor:
            return -super()._scores(x)

    learner = OnlineLearner("ncm", WIDTH).learn_one([0.0] * WIDTH, "a").learn_one([1.0] * WIDTH, "b")
    assert learner.predict_one([0.0] * WIDTH) == "a"
    assert learner.learner.snapshot().lasting
    other = Reversed(Head(WIDTH), NCMSettings())
    other.load_state_dict(learner.learner.state_dict() | {KIND: Reversed.kind()})
    learner.learner, learner._known = other, None
    assert learner.predict_one([0.0] * WIDTH) == "b"
    assert not other.snapshot().lasting


@pytest.mark.parametrize("name", ["ncm", "online", "er"])
def test_a_class_that_could_not_be_learned_leaves_a_gap(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    learner = make(name)
    x = torch.ones(1, *learner.model.input_shape)
    learner.learn(x, np.array([5]))
    with monkeypatch.context() as patch:
        patch.setattr(learner, "_learn", fail)
        with pytest.raises(MemoryError):
            learner.learn(x, np.array([2]))
    assert learner.seen[0].tolist() == [False] * 5 + [True]
    assert learner.scores(x[None])[0, 0, :5].tolist() == [-torch.inf] * 5


def test_the_row_of_a_class_that_was_taken_back_is_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    learner = OnlineLearner("merlin", WIDTH, {"tune_steps": 0})
    learner.learn_one([1.0] * WIDTH, "a").learn_one([-1.0] * WIDTH, "b")
    with monkeypatch.context() as patch:
        patch.setattr(Memory, "add", fail)
        with pytest.raises(UserError):
            learner.learn_one([5.0] * WIDTH, "c")
    for name, rows in learner.learner.rows.items():
        free = rows[0, learner.learner.first[name] + 2 :]
        assert len(free)
        assert not bool(free.any()), name
