from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.er import ER
from kcciol.learners.gss import GSS, GSSIQP, DiverseMemory
from kcciol.learners.model import Head
from kcciol.learners.subset import descend, most_diverse, objective
from tests.learners.battery import WIDTH, examples, feed, knowledge, make, model_of, same
from tests.learners.explicit import Explicit, to_double

both = pytest.mark.parametrize("name", ["gss", "gss-iqp"])
models = pytest.mark.parametrize("kind", ["head", "network"])


class TwoStepER(DiverseMemory):
    """The training of GSS with the reservoir of ER."""

    def _update_memory(self, x: Tensor, label: Tensor) -> None:
        self.kept.add(self.steps, {"x": x, "y": label})


def greedy(**settings: Any) -> GSS:
    learner = make("gss", **settings)
    assert isinstance(learner, GSS)
    return learner


def program(kind: str = "head", **settings: Any) -> GSSIQP:
    learner = make("gss-iqp", model_of(kind), **settings)
    assert isinstance(learner, GSSIQP)
    return learner


# --- the cosines ----------------------------------------------------------------------------------------------------


@models
def test_cosines_are_those_of_gradients_with_every_row_written_out(kind: str) -> None:
    learner = make("gss", model_of(kind), keys=(1, 2))
    assert isinstance(learner, GSS)
    x, y = examples(learner.model, 12)
    for i in range(12):  # the second copy sees fewer classes
        learner.learn(torch.stack([x[i], x[i // 2]]), np.array([y[i], y[i // 2]]))
    to_double(learner)
    xs, ys = torch.stack([x, x]), torch.from_numpy(np.stack([y, y // 2]))
    xs = xs.double() if kind == "head" else xs
    got = learner.cosines(xs, ys)
    for copy in range(2):
        true = Explicit(learner, copy)
        rows = []
        for i in range(12):
            p = true.leaves()
            loss = true.losses(p, xs[copy, i : i + 1], ys[copy, i : i + 1]).sum()
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(p.values()))]))
        unit = torch.nn.functional.normalize(torch.stack(rows))
        torch.testing.assert_close(got[copy], unit @ unit.T, rtol=1e-9, atol=1e-9)


def test_an_example_without_a_gradient_has_cosines_of_0() -> None:
    learner = greedy(reserve=0)  # with a single class and no others there is nothing to learn
    x, _ = examples(learner.model, 9)
    feed(learner, x, np.zeros(9, dtype=np.int64))
    assert not learner.cosines(x[None], torch.zeros(1, 9, dtype=torch.int64)).any()
    assert (learner.kept["score"][0, 1:] == 1).all()


# --- the training ---------------------------------------------------------------------------------------------------


@both
@models
def test_without_replay_it_is_online_learning(name: str, kind: str) -> None:
    x, y = examples(model_of(kind), 20)
    one, two = make(name, model_of(kind), replay=0), make("online", model_of(kind))
    for learner in (one, two):
        feed(learner, x, y)
    ours, theirs = knowledge(one), knowledge(two)
    assert all(torch.equal(ours[n], t) for n, t in theirs.items())


@both
@models
def test_with_room_for_everything_it_is_two_step_replay(name: str, kind: str) -> None:
    x, y = examples(model_of(kind), 20)
    one, er = make(name, model_of(kind), slots=20), make("er", model_of(kind), slots=20)
    plain = TwoStepER(model_of(kind), one.settings, (3,))
    for learner in (one, plain, er):
        feed(learner, x, y)
    ours, theirs, ers = map(knowledge, (one, plain, er))
    assert all(torch.equal(ours[n], t) for n, t in theirs.items())
    assert all(torch.equal(ours[n], ers[n]) for n in ("memory.x", "memory.y"))


@pytest.mark.parametrize("weighting", ["joint", "additive"])
def test_a_pass_is_a_step_on_the_new_example_and_one_on_others(weighting: str) -> None:
    learner, by_hand = (greedy(weighting=weighting, replay_weight=0.5) for _ in range(2))
    x, y = examples(learner.model, 6)
    for one in (learner, by_hand):
        feed(one, x[:5], y[:5])
    learner.learn(x[5:], y[5:])
    by_hand._admit(y[5:])
    slots = by_hand.kept.draw(5, 3)
    assert slots is not None
    new, old = (0.25, 0.25) if weighting == "joint" else (1.0, 0.5 / 3)
    by_hand.error_step(x[5:, None], torch.tensor([[y[5]]]), new)
    by_hand.error_step(by_hand.kept.read("x", slots), by_hand.kept.read("y", slots), old)
    for name, p in by_hand.parameters.items():
        torch.testing.assert_close(learner.parameters[name], p)


def test_passes_walk_through_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = greedy(passes=3, slots=7, replay=3)
    x, _ = examples(learner.model, 8)
    feed(learner, x[:7], np.arange(7))  # the label tells the slot
    steps: list[list[int]] = []
    monkeypatch.setattr(learner, "error_step", lambda x, y, weights: steps.append(y[0].tolist()))
    learner.learn(x[7:], np.array([7]))
    assert [len(s) for s in steps] == [1, 3, 1, 3, 1, 3]
    replayed = list(itertools.chain(*steps[1::2]))
    assert sorted(replayed[:7]) == list(range(7))
    assert replayed[7:] == replayed[:2]


# --- greedy ---------------------------------------------------------------------------------------------------------


def full(**settings: Any) -> GSS:
    learner = greedy(keys=tuple(range(400)), **settings)
    x, y = examples(learner.model, 7)
    feed(learner, x, y)
    return learner


def test_what_points_along_the_memory_never_enters_a_full_one() -> None:
    learner = full()
    assert (learner._slots(torch.linspace(1, 2, 400)) == -1).all()


def test_what_points_away_from_all_always_enters() -> None:
    learner = full()
    slots = learner._slots(torch.zeros(400))
    assert (slots >= 0).all()
    assert set(slots) == set(range(7))


def test_who_gives_way_and_how_often() -> None:
    learner = full()
    scores = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 0.0, 0.0])
    learner.kept["score"][:] = scores
    slots = learner._slots(torch.full((400,), 0.5))
    wanted = scores / scores.sum() * scores / (scores + 0.5)
    got = np.bincount(slots[slots >= 0], minlength=7) / 400
    np.testing.assert_allclose(got, wanted.numpy(), atol=0.08)  # three standard deviations
    assert set(slots) == {-1, 1, 2, 3, 4}
    learner.kept["score"][:] = 0  # all alike: any of them
    assert set(learner._slots(torch.zeros(400))) == set(range(7))


@models
def test_a_score_is_one_plus_the_largest_cosine_to_what_is_there(kind: str) -> None:
    """That of the very first example, which has nothing to be compared with, is 1.1."""
    learner = make("gss", model_of(kind), compared=7)
    assert isinstance(learner, GSS)
    x, y = examples(learner.model, 7)
    expected = [1.1]
    for i in range(7):
        learner.learn(x[i : i + 1], y[i : i + 1])
        if i:
            cosines = learner.cosines(x[None, : i + 1], torch.from_numpy(y[None, : i + 1]))
            expected.append(1 + float(cosines[0, i, :i].max()))
    assert learner.kept["score"][0].tolist() == pytest.approx(expected, abs=1e-5)
    assert min(expected) < 1 < max(expected)


@models
def test_scores_are_from_0_to_2_and_a_duplicate_is_refused(kind: str) -> None:
    learner = make("gss", model_of(kind), compared=7)
    assert isinstance(learner, GSS)
    x, y = examples(learner.model, 40)
    feed(learner, x, y)
    scores = learner.kept["score"]
    assert ((scores >= 0) & (scores <= 2)).all()
    kept_x, kept_y = learner.kept["x"].clone(), learner.kept["y"].clone()
    for slot in range(7):
        torch.testing.assert_close(learner._score(kept_x[:, slot], kept_y[:, slot]), torch.full((1,), 2.0))
        learner.learn(kept_x[:, slot], kept_y[:, slot].numpy())
    assert torch.equal(learner.kept["x"], kept_x)


def test_the_choice_is_not_a_reservoir() -> None:
    x, y = examples(Head(WIDTH), 60, classes=4)
    one, two = greedy(compared=7), make("er")
    assert isinstance(two, ER)
    for learner in (one, two):
        feed(learner, x, y)
    assert not torch.equal(one.kept["x"], two.kept["x"])


# --- the quadratic program ------------------------------------------------------------------------------------------


def cosines(rng: np.random.Generator, count: int, width: int) -> Any:
    v = rng.normal(size=(count, width))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    return v @ v.T


def starts(rng: np.random.Generator, count: int, size: int, restarts: int = 20) -> list[Any]:
    return [np.arange(size), *(rng.permutation(count)[:size] for _ in range(restarts))]


@pytest.mark.parametrize(("count", "size"), [(12, 6), (11, 5), (9, 8), (6, 1)])
def test_the_search_finds_what_trying_everything_finds(count: int, size: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        gram = cosines(rng, count, 5)
        best = min(objective(gram, np.array(s)) for s in itertools.combinations(range(count), size))
        found = most_diverse(gram, starts(rng, count, size))
        assert len(set(found)) == size
        assert objective(gram, found) == pytest.approx(best, abs=1e-9)
        order = rng.permutation(count)  # the same in any order
        again = most_diverse(gram[np.ix_(order, order)], starts(rng, count, size))
        assert objective(gram, order[again]) == pytest.approx(best, abs=1e-9)


def test_the_search_never_ends_above_its_start_and_stays_where_all_are_equal() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 10, 29, 30):
        gram, start = cosines(rng, 30, 4), rng.permutation(30)[:size]
        end = descend(gram, start)
        assert len(end) == size
        assert objective(gram, end) <= objective(gram, start) + 1e-12
    assert most_diverse(np.eye(9), starts(rng, 9, 4)).tolist() == [0, 1, 2, 3]


@models
def test_a_choice_is_never_worse_than_the_old_memory_and_is_the_best(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7 slots and 4 others, at every choice of a stream."""
    learner = program(kind)
    x, y = examples(learner.model, 24)
    choose, choices = learner._choose, []

    def watched() -> None:
        xs = torch.cat([learner.kept["x"], learner.state["memory.recent.x"]], 1)
        ys = torch.cat([learner.kept["y"], learner.state["memory.recent.y"]], 1)
        gram = learner.cosines(xs, ys)[0].double().numpy()
        np.fill_diagonal(gram, 1)
        choose()
        now = learner.cosines(learner.kept["x"], learner.kept["y"])[0].double().numpy()
        np.fill_diagonal(now, 1)
        best = min(objective(gram, np.array(s)) for s in itertools.combinations(range(11), 7))
        choices.append((now.sum(), objective(gram, np.arange(7)), best))

    monkeypatch.setattr(learner, "_choose", watched)
    feed(learner, x, y)
    assert len(choices) == 4
    for now, before, best in choices:
        assert now <= before + 1e-5
        assert now == pytest.approx(best, abs=1e-4)
    assert any(now < before - 1e-3 for now, before, _ in choices)
    stream = x.flatten(1).tolist()
    assert all(row in stream for row in learner.kept["x"][0].flatten(1).tolist())


def test_waiting_examples_count_as_memory() -> None:
    learner = program(slots=7, recent=4)
    x, y = examples(learner.model, 12)
    each = x[0].nbytes + 8
    sizes = []
    for i in range(12):
        learner.learn(x[i : i + 1], y[i : i + 1])
        sizes.append(learner.memory()["memory"] // each)
    assert sizes == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 7, 8]


def test_copies_choose_for_themselves() -> None:
    x, y = examples(Head(WIDTH), 30)
    pair = make("gss-iqp", keys=(3, 8))
    alone = [make("gss-iqp", keys=(key,)) for key in (3, 8)]
    flipped, labels = x.flip(0), y[::-1].copy()
    for i in range(30):
        pair.learn(torch.stack([x[i], flipped[i]]), np.array([y[i], labels[i]]))
        alone[0].learn(x[i : i + 1], y[i : i + 1])
        alone[1].learn(flipped[i : i + 1], labels[i : i + 1])
    for copy, one in enumerate(alone):
        assert torch.equal(pair.state["memory.x"][copy], one.state["memory.x"][0])


# --- settings -------------------------------------------------------------------------------------------------------


@both
def test_settings_that_make_no_sense(name: str) -> None:
    own = {"gss": {"compared": 0}, "gss-iqp": {"recent": 0, "restarts": -1}}[name]
    wrong: dict[str, Any] = {"passes": 0, **own}
    for setting, value in wrong.items():
        with pytest.raises(UserError, match=f"{setting} is {value}"):
            make(name, **{setting: value})
    with pytest.raises(UserError, match="use optimizer 'sgd'"):
        make(name, optimizer="adam")


def test_two_greedy_learners_with_other_draws_differ() -> None:
    x, y = examples(Head(WIDTH), 40)
    one, two = greedy(compared=2), greedy(compared=7)
    for learner in (one, two):
        feed(learner, x, y)
    assert not same(one, two)
