"""What every learner must do, run over all of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from kcciol.errors import UserError
from kcciol.learners import LEARNERS, learner_type
from kcciol.learners.learner import Learner
from kcciol.learners.model import Head, Network, Parameters
from kcciol.nets.copies import inputs_last
from tests.learners.battery import WIDTH, answers, examples, feed, kinds, make, model_of, same

every = pytest.mark.parametrize(("name", "kind"), kinds())


@every
def test_learns_something(name: str, kind: str) -> None:
    learner = make(name, model_of(kind))
    x, y = examples(learner.model, 100)
    order = np.random.default_rng(0).permutation(100)
    feed(learner, x[order], y[order], tasks=False)
    right = (answers(learner, x)[0].numpy() == y).mean()
    assert right > 0.8


@every
def test_one_example_of_one_class(name: str, kind: str) -> None:
    learner = make(name, model_of(kind))
    x, _ = examples(learner.model, 1)
    feed(learner, x, np.array([0]))
    assert answers(learner, x).tolist() == [[0]]
    assert learner.scores(x[None]).shape == (1, 1, 1)


@every
def test_a_label_may_be_new_at_any_time_and_leave_gaps(name: str, kind: str) -> None:
    learner = make(name, model_of(kind))
    x, _ = examples(learner.model, 3)
    feed(learner, x, np.array([5, 2, 30]))
    scores = learner.scores(x[None])
    assert scores.shape == (1, 3, 31)
    finite = scores.isfinite().all(1)[0].nonzero()[:, 0].tolist()
    assert finite == [2, 5, 30]
    assert set(answers(learner, x)[0].tolist()) <= {2, 5, 30}


@every
def test_a_repeated_example_and_constant_inputs_do_no_harm(name: str, kind: str) -> None:
    learner = make(name, model_of(kind))
    x, _ = examples(learner.model, 1)
    feed(learner, x.expand(12, *x.shape[1:]), np.arange(12) // 6)
    feed(learner, torch.zeros_like(x).expand(12, *x.shape[1:]), np.arange(12) // 6)
    assert learner.scores(x[None]).isfinite().all()


@every
def test_extreme_values_give_no_nan(name: str, kind: str) -> None:
    learner = make(name, model_of(kind))
    x, y = examples(learner.model, 12)
    x = (x.to(torch.int64) // 128 * 255).to(torch.uint8) if kind == "network" else x * 1e6
    feed(learner, x, y)
    assert not learner.scores(x[None]).isnan().any()


@every
def test_the_same_keys_learn_the_same_and_copies_do_not_know_of_each_other(name: str, kind: str) -> None:
    x, y = examples(model_of(kind), 30)
    both, one, two = (make(name, model_of(kind), keys) for keys in ((3, 8), (3,), (8,)))
    again = make(name, model_of(kind), (3, 8))
    for learner in (both, again, one, two):
        feed(learner, x, y)
    assert same(both, again)
    pair = both.scores(torch.stack([x, x]))
    alone = torch.cat([one.scores(x[None]), two.scores(x[None])])
    torch.testing.assert_close(pair, alone, rtol=2e-4, atol=2e-4)


@every
def test_restored_in_the_middle_it_ends_in_the_same_bits(name: str, kind: str) -> None:
    x, y = examples(model_of(kind), 24)
    whole, first = make(name, model_of(kind)), make(name, model_of(kind))
    feed(whole, x, y)
    feed(first, x[:13], y[:13])
    second = make(name, model_of(kind))
    feed(second, x[5:], y[5:] * 3)  # what it knew is gone
    second.load_state_dict(first.state_dict())
    assert same(first, second)
    for i in range(13, 24):
        if y[i] != y[i - 1]:
            second.end_task()
        second.learn(x[i : i + 1], y[i : i + 1])
    assert same(whole, second)


def same_when_learned_by_class(one: Learner, many: Learner) -> None:
    """Feeds both, each copy with its own stream and order of classes, examples one by one and class by class."""
    n = one.copies
    pairs = [examples(one.model, 24, seed=copy) for copy in range(n)]
    x, y = torch.stack([pair[0] for pair in pairs]), pairs[0][1]
    order = [*range(0, 5), *range(6, 9), *range(12, 15), 5, *range(9, 12), *range(15, 24)]  # a class comes back
    for first, last in ((0, 5), (5, 8), (8, 11), (11, 12), (12, 15), (15, 18), (18, 24)):
        block = x[:, order[first:last]]
        assert (y[order[first:last]] == y[order[first]]).all()
        label = (y[order[first]] + np.arange(n)) % 4  # another in each copy
        for i in range(block.shape[1]):
            one.learn(block[:, i], label)
        many.learn_class(block, label)
        one.end_task()
        many.end_task()
    assert one.steps == many.steps
    torch.testing.assert_close(one.scores(x), many.scores(x), rtol=1e-4, atol=1e-4)
    states = one.state_dict(), many.state_dict()
    assert states[0].keys() == states[1].keys()
    for part, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][part], rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("keys", [(3,), (3, 8)])
@every
def test_a_class_at_once_is_its_examples_one_after_another(name: str, kind: str, keys: tuple[int, ...]) -> None:
    same_when_learned_by_class(make(name, model_of(kind), keys), make(name, model_of(kind), keys))


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
    same_when_learned_by_class(make(name, keys=keys, **settings), make(name, keys=keys, **settings))


@pytest.mark.parametrize("name", ["online", "ewc", "er"])
def test_a_class_at_once_with_another_rate_in_each_copy(name: str) -> None:
    settings = [LEARNERS[name].settings_type(rate=rate) for rate in (0.3, 0.003)]  # type: ignore[call-arg]
    same_when_learned_by_class(*(LEARNERS[name](Head(WIDTH), settings, (3, 8)) for _ in range(2)))


@every
def test_what_is_no_class_is_refused_and_changes_nothing(name: str, kind: str) -> None:
    learner = make(name, model_of(kind))
    x, y = examples(learner.model, 6)
    feed(learner, x, y)
    before = learner.state_dict()
    good = np.array([0])
    bad = [(x[None, :0], good, "no example"), (x[:1], good, "must be (1, examples"), (x[None], good - 1, "0 or more")]
    bad += [(x[None, ..., :-1], good, "this learner takes"), (x[None], np.array([0, 1]), "one for each copy")]
    if x.is_floating_point():
        bad.append((x[None] * torch.inf, good, "not a finite number"))
    for examples_, labels, message in bad:
        with pytest.raises(UserError, match=re.escape(message)):
            learner.learn_class(examples_, labels)
    after = learner.state_dict()
    assert all(torch.equal(before[part].nan_to_num(), tensor.nan_to_num()) for part, tensor in after.items())


@pytest.mark.parametrize("keys", [(3,), (3, 8)])
@pytest.mark.parametrize("name", ["online", "ewc", "er", "slda"])
def test_examples_that_ask_for_gradients_are_learned_without(name: str, keys: tuple[int, ...]) -> None:
    learner = make(name, keys=keys)
    x = torch.rand(len(keys), 5, WIDTH, requires_grad=True)
    learner.observe_class(x, np.zeros(len(keys), dtype=np.int64))
    learner.observe(x[:, 0], np.zeros(len(keys), dtype=np.int64))
    assert not any(tensor.requires_grad for tensor in learner.state_dict().values())


@every
def test_the_state_is_a_copy_and_predicting_changes_nothing(name: str, kind: str) -> None:
    learner = make(name, model_of(kind))
    x, y = examples(learner.model, 10)
    feed(learner, x[:5], y[:5])
    before = {n: t.clone() for n, t in learner.state_dict().items()}
    state = learner.state_dict()
    learner.scores(x[None])
    assert all(torch.equal(before[n].nan_to_num(), t.nan_to_num()) for n, t in learner.state_dict().items())
    feed(learner, x[5:], y[5:])
    assert all(torch.equal(before[n].nan_to_num(), t.nan_to_num()) for n, t in state.items())


@every
def test_the_memory_report_is_what_it_takes_to_go_on(name: str, kind: str) -> None:
    """Restoring needs the state and nothing else (above), so its size is what is kept; weights are not memory."""
    learner = make(name, model_of(kind), keys=(1, 2))
    x, y = examples(learner.model, 20)
    assert learner.memory().get("memory", 0) == 0
    feed(learner, x, y)
    state = learner.state_dict()
    kept = sum(t.nbytes for n, t in state.items() if not n.startswith(("parameters.", "bookkeeping.")))
    assert sum(learner.memory().values()) == kept // 2
    counted = {t.untyped_storage().data_ptr() for t in (*learner.state.values(), *learner.rows.values())}
    settings = {"rate", "minus_one", "minus", "every", "strength", "alpha", "beta", "shrinkage", "penalty", "closeness"}
    settings |= {"margin", "spatial", "flat", "tune_rate", "projection"}  # which follow from the settings alone
    for name_, value in vars(learner).items():
        if isinstance(value, torch.Tensor) and name_ not in settings and not name_.startswith("_"):
            assert value.untyped_storage().data_ptr() in counted, f"{name_} is kept and not counted"
    keeps_examples = learner.memory().get("memory", 0) > 0
    assert keeps_examples == LEARNERS[name].card.replay


@pytest.mark.parametrize("name", [n for n, k in kinds() if k == "head" and LEARNERS[n].card.order_free])
def test_order_free_learners_do_not_see_the_order(name: str) -> None:
    x, y = examples(Head(WIDTH), 60)
    order = np.random.default_rng(1).permutation(60)
    one, two = make(name), make(name)
    feed(one, x, y)
    feed(two, x[order], y[order])
    torch.testing.assert_close(one.scores(x[None]), two.scores(x[None]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LEARNERS)
def test_bad_input_is_refused_and_changes_nothing(name: str) -> None:
    learner = make(name)
    x, y = examples(learner.model, 6)
    with pytest.raises(UserError, match="Nothing has been learned yet"):
        learner.scores(x[None])
    feed(learner, x, y)
    before = learner.state_dict()
    cases = [(x[:1, ..., :4], "takes"), (x[:1].double(), "type")]
    if x.is_floating_point():
        bad = x[:1].clone()
        bad[0, 2] = torch.nan
        cases.append((bad, "not a finite number"))
    for wrong, words in cases:
        with pytest.raises(UserError, match=words):
            learner.learn(wrong, np.array([0]))
        with pytest.raises(UserError, match=words):
            learner.scores(wrong[None])
    with pytest.raises(UserError, match="Labels must be"):
        learner.learn(x[:1], np.array([-1]))
    assert all(torch.equal(before[n].nan_to_num(), t.nan_to_num()) for n, t in learner.state_dict().items())


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


def test_every_learner_has_a_card_and_an_unknown_name_is_refused() -> None:
    for method in LEARNERS.values():
        assert method.card.what
        assert method.card.paper
    with pytest.raises(UserError, match="There is no learner 'magic'"):
        learner_type("magic")


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
