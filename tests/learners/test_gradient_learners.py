"""Each gradient method against its definition: its own term matters; at strength zero it is plain online learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Learner
from kcciol.learners.der import DERPP, LOGITS
from kcciol.learners.er import ER
from kcciol.learners.ewc import EWC, FISHER
from kcciol.learners.gradient import GradientLearner, GradientSettings
from kcciol.learners.mer import MER
from kcciol.learners.model import Head
from kcciol.learners.online import Online
from tests.learners.battery import WIDTH, examples, feed, make, model_of, same

TIGHT = Head(WIDTH, torch.float64)


def weights(learner: Learner) -> Tensor:
    assert isinstance(learner, GradientLearner)
    p = learner.parameters
    return torch.cat([p["weight"], p["bias"][..., None]], -1)[:, : learner.classes + 1].clone()


def stream(count: int = 24, seed: int = 0) -> tuple[Tensor, np.ndarray[Any, Any]]:
    return examples(Head(WIDTH), count, seed)


def fed(name: str, count: int = 24, tasks: bool = True, **settings: Any) -> Learner:
    learner = make(name, **settings)
    feed(learner, *stream(count), tasks=tasks)
    return learner


# --- online -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserve", [0, 1, 4])
def test_the_spare_row_stands_for_rows_that_are_there(reserve: int) -> None:
    """Against autograd on a head with `reserve` more rows than classes seen, each of its own."""
    x, y = stream(16)
    x = x.double()
    learner = Online(TIGHT, GradientSettings(rate=0.1, reserve=reserve))
    W = torch.zeros(reserve, WIDTH + 1, dtype=torch.float64)
    seen = 0
    for i in range(16):
        if y[i] == seen:  # a new class takes a spare row, and another comes in its place
            row = W[seen : seen + 1] if reserve else torch.zeros(1, WIDTH + 1, dtype=torch.float64)
            W, seen = torch.cat([W[:seen], row, W[seen:]]), seen + 1
        leaf = W.clone().requires_grad_()
        z = torch.cat([x[i], x.new_ones(1)])
        F.cross_entropy((leaf @ z)[None], torch.tensor([int(y[i])])).backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        W = W - 0.1 * leaf.grad
        learner.learn(x[i : i + 1], y[i : i + 1])
    torch.testing.assert_close(weights(learner)[0, 1:], W[:seen])


def test_the_first_step_of_adam_is_the_rate_times_the_sign() -> None:
    learner = make("online", optimizer="adam", rate=0.01)
    x, _ = stream(1)
    feed(learner, x, np.array([0]))
    moved = weights(learner)[0, 1]
    used = torch.cat([x[0], torch.ones(1)]) > 1e-3
    torch.testing.assert_close(moved[used], torch.full_like(moved[used], 0.01), rtol=1e-3, atol=0)


def test_without_a_reserve_the_newest_class_takes_over() -> None:
    """Why there is one: class after class, what was learned first stays only if there is room for the new."""
    x, y = examples(Head(WIDTH), 80, classes=8)
    right = {}
    for reserve in (0, 20):
        learner = make("online", rate=0.05, reserve=reserve)
        feed(learner, x, y)
        right[reserve] = (learner.scores(x[None]).argmax(-1)[0].numpy() == y).mean()
    assert right[20] > right[0] + 0.2


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="rate is 0"):
        make("online", rate=0.0)


# --- replay -----------------------------------------------------------------------------------------------------------


def test_er_without_replay_is_online_and_with_it_is_not() -> None:
    plain, none, some = fed("online"), fed("er", replay=0), fed("er")
    assert torch.equal(weights(plain), weights(none))
    assert not torch.allclose(weights(plain), weights(some), atol=1e-3)


def test_a_large_memory_holds_the_whole_stream() -> None:
    learner = fed("er", count=20, slots=50)
    assert isinstance(learner, ER)
    x, y = stream(20)
    state = learner.state_dict()
    assert torch.equal(state["memory.x"][0], x)
    assert state["memory.y"][0].tolist() == y.tolist()


def test_the_two_weightings_of_er_meet() -> None:
    """k replayed examples with additive weight k are k + 1 times the joint mean."""
    one = make("er", slots=4, replay=4, rate=0.1)
    two = make("er", slots=4, replay=4, rate=0.1 / 5, weighting="additive", replay_weight=4.0)
    x, y = stream(5)
    for learner in (one, two):
        feed(learner, x[:4], y[:4])
    two.load_state_dict(one.state_dict())
    for learner in (one, two):
        feed(learner, x[4:], y[4:])
    torch.testing.assert_close(weights(one), weights(two), rtol=1e-4, atol=1e-6)


def test_a_memory_without_slots_is_refused() -> None:
    for name in ("er", "mer", "der", "der++"):
        with pytest.raises(UserError, match="slots is 0"):
            make(name, slots=0)


# --- EWC --------------------------------------------------------------------------------------------------------------


def test_ewc_at_strength_zero_is_online_and_above_it_is_not() -> None:
    plain, none, some = fed("online"), fed("ewc", strength=0.0), fed("ewc", strength=100.0)
    assert torch.equal(weights(plain), weights(none))
    assert not torch.allclose(weights(plain), weights(some), atol=1e-3)


def test_a_very_stiff_ewc_stays_where_the_first_task_ended() -> None:
    learner = make("ewc", strength=1e6, rate=1e-9)  # rate times strength is what holds; above 2 it would overshoot
    x, y = stream(24)
    feed(learner, x[:6], y[:6])
    learner.end_task()
    assert isinstance(learner, EWC)
    for fisher in learner.group(FISHER).values():
        fisher.fill_(100.0)
    learner._pull_cache = None
    held = weights(learner)
    feed(learner, x[6:], y[6:])
    torch.testing.assert_close(weights(learner)[:, :2], held[:, :2], rtol=0, atol=1e-6)


def test_without_fisher_information_nothing_is_held() -> None:
    """Before the first task has ended there are no springs, however stiff."""
    soft, stiff = fed("ewc", strength=0.0, tasks=False), fed("ewc", strength=1e6, tasks=False)
    assert torch.equal(weights(soft), weights(stiff))


def test_two_springs_are_one() -> None:
    learner = make("ewc", Head(WIDTH, torch.float64), strength=0.7, rate=0.1)
    assert isinstance(learner, EWC)
    x, y = stream(24)
    ends: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []
    for i in range(18):
        if i and y[i] != y[i - 1]:
            before = {n: f.clone() for n, f in learner.group(FISHER).items()}
            learner.end_task()
            added = {n: f - before[n] for n, f in learner.group(FISHER).items()}
            ends.append((added, {n: p.clone() for n, p in learner.parameters.items()}))
        learner.learn(x[i : i + 1].double(), y[i : i + 1])
    names = list(learner.parameters)
    for name, merged in zip(names, learner.springs(), strict=True):
        p = learner.parameters[name]
        apart = torch.zeros_like(p)
        for fisher, centre in ends:
            old = fisher[name].shape[1]
            apart[:, :old] += 2 * 0.7 * fisher[name] * (p[:, :old] - centre[name])
        # the spare row and the first class: a later class has taken over the spare row's springs
        torch.testing.assert_close(merged[:, :2], apart[:, :2])
        assert merged[:, :2].abs().max() > 0


def test_the_fisher_of_the_model_itself_is_the_mean_over_its_own_labels() -> None:
    learner = make("ewc", Head(WIDTH, torch.float64), fisher="label", reserve=0)
    assert isinstance(learner, EWC)
    x, y = stream(12)
    for i in range(12):
        learner.learn(x[i : i + 1].double(), y[i : i + 1])
    z = x[5:6].double()
    logits, _ = learner.model.forward(learner.parameters, z[:, None])
    spread, squares = learner._own_fisher(z, logits)
    p = (logits + learner._offset()[0]).softmax(-1)[0, 0]
    expected = torch.zeros_like(p)
    for label in range(1, learner.classes + 1):
        error = p.clone()
        error[label] -= 1
        expected += p[label] * error.square()
    torch.testing.assert_close(spread[0, 0], expected)
    torch.testing.assert_close(squares[:, 0], z.square())


# --- MER --------------------------------------------------------------------------------------------------------------


def test_mer_that_does_not_go_back_is_sgd_on_one_example_after_another() -> None:
    learner = make("mer", within=1.0, across=1.0, batches=2)
    plain = make("er")
    assert isinstance(learner, MER)
    assert isinstance(plain, ER)
    x, y = stream(9)
    for i in range(9):
        label = torch.tensor([[int(y[i])]])
        plain._admit(y[i : i + 1])
        for batch in range(2):
            plain.error_step(x[i][None, None], label)
            slots = plain.kept.draw(i, 3, purpose=batch)
            for j in range(0 if slots is None else slots.shape[1]):
                assert slots is not None
                chosen = slots[:, j : j + 1]
                plain.error_step(plain.kept.read("x", chosen), plain.kept.read("y", chosen))
        plain.kept.add(i, {"x": x[i : i + 1], "y": label[:, 0]})
        learner.learn(x[i : i + 1], y[i : i + 1])
    torch.testing.assert_close(weights(learner), weights(plain), rtol=1e-5, atol=1e-6)


def test_mer_without_replay_that_does_not_go_back_is_online() -> None:
    torch.testing.assert_close(
        weights(fed("mer", replay=0, within=1.0, across=1.0)), weights(fed("online")), rtol=1e-5, atol=1e-6
    )


def test_mer_that_goes_all_the_way_back_learns_nothing() -> None:
    assert not weights(fed("mer", within=0.0)).any()
    assert not weights(fed("mer", across=0.0)).any()


def test_with_one_batch_only_the_product_of_mers_two_factors_counts() -> None:
    one, two = fed("mer", within=0.3, across=1.0), fed("mer", within=1.0, across=0.3)
    torch.testing.assert_close(weights(one), weights(two), rtol=1e-4, atol=1e-6)


def test_mer_refuses_adam() -> None:
    with pytest.raises(UserError, match="use optimizer 'sgd'"):
        make("mer", optimizer="adam")


# --- DER --------------------------------------------------------------------------------------------------------------


def test_der_at_strength_zero_is_online_and_each_term_matters() -> None:
    plain = weights(fed("online"))
    torch.testing.assert_close(weights(fed("der", alpha=0.0)), plain, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights(fed("der++", alpha=0.0, beta=0.0)), plain, rtol=1e-5, atol=1e-6)
    for other in (fed("der", alpha=0.5), fed("der++", alpha=0.0, beta=0.5)):
        assert not torch.allclose(weights(other), plain, atol=1e-3)


def test_derpp_without_beta_is_der_and_without_alpha_is_er() -> None:
    torch.testing.assert_close(weights(fed("der++", alpha=0.3, beta=0.0)), weights(fed("der", alpha=0.3)))
    er = fed("er", weighting="additive", replay_weight=0.7)
    torch.testing.assert_close(weights(fed("der++", alpha=0.0, beta=0.7)), weights(er), rtol=1e-4, atol=1e-6)


def test_derpp_without_alpha_and_weighed_jointly_is_er_weighed_jointly() -> None:
    joint = fed("der++", alpha=0.0, beta=1.0, weighting="joint")
    torch.testing.assert_close(weights(joint), weights(fed("er")), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("when", ["before", "after"])
def test_kept_logits_are_those_of_their_time_and_stay(when: Any) -> None:
    learner = make("der++", slots=50, logits=when)
    assert isinstance(learner, DERPP)
    x, y = stream(12)
    kept = []
    for i in range(12):
        admitted = y[i] < learner.classes
        before = learner.scores(x[i][None, None])[0, 0] if i and admitted else None
        learner.learn(x[i : i + 1], y[i : i + 1])
        after = learner.scores(x[i][None, None])[0, 0]
        kept.append(before if when == "before" else after)
    stored = learner.rows[LOGITS][0, : learner.classes]
    for i, expected in enumerate(kept):
        if expected is not None:
            torch.testing.assert_close(stored[: len(expected), i], expected, rtol=1e-4, atol=1e-5)
            assert stored[len(expected) :, i].isnan().all()


def test_the_distance_is_zero_where_nothing_has_changed() -> None:
    learner = make("der++", slots=50, logits="after")
    assert isinstance(learner, DERPP)
    x, y = stream(6)
    feed(learner, x, y)
    slots = torch.tensor([[5]])
    logits, _ = learner.model.forward(learner.parameters, x[None, 5:6])
    assert learner._distance_error(logits, slots).abs().max() < 1e-6


def test_der_keeps_no_labels() -> None:
    assert "memory.y" not in fed("der").state_dict()
    with pytest.raises(UserError, match=r"use der\+\+"):
        make("der", beta=0.5)


# --- the whole network ------------------------------------------------------------------------------------------------


def test_a_network_that_starts_alike_answers_as_its_frozen_features_do() -> None:
    """The features of copies side by side are those of the encoder."""
    model = model_of("network")
    x, _ = examples(model, 5)
    parameters = model.start(3, torch.device("cpu")) | {"weight": torch.zeros(3, 1, model.width)}
    z = model.features(parameters, x.expand(3, *x.shape))
    encoder = model.encoder  # type: ignore[attr-defined]
    expected, _ = encoder.forward(model.theta, encoder.patches(encoder.rows(x), torch.float32))  # type: ignore[attr-defined]
    torch.testing.assert_close(z, expected.expand(3, *expected.shape), rtol=1e-4, atol=1e-5)


def test_a_network_with_a_reserve_is_a_network_with_rows() -> None:
    """One step, head and convolutions, against autograd on a head with every row of its own."""
    reserve, rate = 4, 0.1
    learner = make("online", model_of("network"), reserve=reserve, rate=rate)
    x, y = examples(learner.model, 8)
    feed(learner, x, y)
    assert isinstance(learner, GradientLearner)
    p = {n: t[0].clone().requires_grad_() for n, t in learner.parameters.items()}
    rows = [0] * reserve + list(range(1, learner.classes + 1))
    weight, bias = (p[n][rows].detach().requires_grad_() for n in ("weight", "bias"))
    z = learner.model.features({n: t[None] for n, t in p.items()}, x[None, 5:6])[0]
    target = torch.tensor([reserve + int(y[5])])
    F.cross_entropy(F.linear(z, weight, bias), target).backward()  # type: ignore[no-untyped-call]
    learner.learn(x[5:6], y[5:6])
    after = {n: t[0] for n, t in learner.parameters.items()}
    for name, before in p.items():
        if name.startswith("conv"):
            assert before.grad is not None
            torch.testing.assert_close(after[name], before.detach() - rate * before.grad, rtol=1e-4, atol=1e-6)
    for got, full in ((after["weight"], weight), (after["bias"], bias)):
        assert full.grad is not None
        moved = (full - rate * full.grad).detach()
        torch.testing.assert_close(got[[0, *range(1, learner.classes + 1)]], moved[reserve - 1 :], rtol=1e-4, atol=1e-6)


def test_a_learner_leaves_the_network_it_began_with_alone() -> None:
    model = model_of("network")
    before = {n: t.clone() for n, t in model.theta.items()}  # type: ignore[attr-defined]
    x, y = examples(model, 4)
    feed(make("online", model), x, y)
    assert all(torch.equal(t, model.theta[n]) for n, t in before.items())  # type: ignore[attr-defined]


def test_settings_of_copies_are_their_own() -> None:
    rates = (0.02, 0.2)
    x, y = stream(12)
    both = Online(Head(WIDTH), [GradientSettings(rate=r, reserve=3) for r in rates], keys=(3, 3))
    feed(both, x, y)
    for copy, rate in enumerate(rates):
        alone = make("online", rate=rate)
        feed(alone, x, y)
        torch.testing.assert_close(weights(both)[copy], weights(alone)[0], rtol=1e-5, atol=1e-6)
    assert not same(both, make("online", keys=(3, 3)))
