from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Labels
from kcciol.learners.hal import ANCHOR, FEATURE, HAL, LABEL, MADE, MEAN, HALSettings
from kcciol.learners.model import Head, Parameters
from kcciol.learners.ring import COUNT, KEPT, RingLearner
from tests.learners.battery import WIDTH, examples, feed, knowledge, make, model_of, same
from tests.learners.explicit import Explicit, to_double

models = pytest.mark.parametrize("kind", ["head", "network"])


class RingER(RingLearner):
    """ER with the ring, and nothing else."""

    def _learn(self, x: Tensor, y: Labels) -> None:
        label = self.labels(y)
        self.error_step(*self.with_replay(x[:, None], label[:, None]))
        self.keep(x, label)


def hal(kind: str = "head", **settings: Any) -> HAL:
    learner = make("hal", model_of(kind), **settings)
    assert isinstance(learner, HAL)
    return learner


# --- the gradient ---------------------------------------------------------------------------------------------------


def objective(true: Explicit, p: Parameters, batch: tuple[Tensor, ...], strength: float, rate: float) -> Tensor:
    """The loss with the look-ahead in it, as a function of every row."""
    x, y, weights, anchors, parts = batch
    leaves = {n: v.detach().requires_grad_() for n, v in p.items()} if not p["weight"].requires_grad else p
    with torch.enable_grad():
        loss = (weights * true.losses(leaves, x, y)).sum()
        first = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
        ahead = {n: v - rate * g for (n, v), g in zip(leaves.items(), first, strict=True)}
        moved = (true.logits(leaves, anchors) - true.logits(ahead, anchors))[:, true.spare :]
        total = loss + strength * (parts * moved.square().sum(1)).sum()
    return total if p["weight"].requires_grad else total.detach()


def two_streams(kind: str) -> tuple[HAL, tuple[Tensor, ...]]:
    """Two copies of which the second has seen fewer classes, in float64, and what they would learn from next."""
    settings = [HALSettings(rate=0.05, reserve=3, replay=3, ring=2, strength=s) for s in (40.0, 7.0)]
    learner = HAL(model_of(kind), settings, (3, 8))
    x, y = examples(learner.model, 13)
    for i in range(12):
        learner.learn(torch.stack([x[i], x[i // 2]]), np.array([y[i], y[i // 2]]))
        if i % 3 == 2:
            learner.end_task()
    to_double(learner)
    label = torch.tensor([[3], [1]])
    new = x[[12, 5]][:, None]
    xs, ys, weights = learner.with_replay(new.double() if kind == "head" else new, label)
    if kind == "head":
        xs = xs.double()
    return learner, (xs, ys, weights.double(), *learner._draw_anchors())


@models
def test_the_gradient_is_exact_in_every_row(kind: str) -> None:
    """Against finite differences of the objective with all spare rows written out, each free to move by itself."""
    learner, batch = two_streams(kind)
    got = learner.gradient(*batch).dense()
    generator = torch.Generator().manual_seed(0)
    for copy, setting in enumerate(learner.settings):
        true, own = Explicit(learner, copy), tuple(t[copy] for t in batch)
        strength, rate = float(setting.strength), float(learner.rate[copy])  # type: ignore[attr-defined]
        mine = true.unfold({n: g[copy : copy + 1] for n, g in got.items()})
        plain = true.leaves()
        exact = torch.autograd.grad(objective(true, plain, own, strength, rate), list(plain.values()))
        for g, name in zip(exact, plain, strict=True):
            torch.testing.assert_close(mine[name], g, rtol=1e-8, atol=1e-10)
        for _ in range(4):
            way = {n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in plain.items()}
            ends = []
            for eps in (1e-6, -1e-6):
                p = {n: (v + eps * way[n]).detach() for n, v in plain.items()}
                ends.append(float(objective(true, p, own, strength, rate)))
            slope = sum(float((mine[n] * way[n]).sum()) for n in way)
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope, rel=1e-5, abs=1e-7)


Stream = tuple[Tensor, np.ndarray[Any, Any]]


def two_tasks(kind: str) -> tuple[HAL, list[Stream]]:
    """Two copies before the end of their second task, in float64, and their streams; all that is kept is replayed, all
    anchors are looked at, and tuning is on all that is kept of earlier tasks."""
    all_of_it: dict[str, Any] = {"replay": 99, "anchors": 99, "tune_batch": 99, "tune_steps": 3, "anchor_steps": 4}
    settings = [
        HALSettings(rate, reserve=3, ring=2, strength=strength, closeness=closeness, anchor_rate=2**-7, **all_of_it)
        for rate, strength, closeness in ((0.0625, 40.0, 0.5), (0.125, 7.0, 2.0))
    ]
    learner = HAL(Head(WIDTH, torch.float64) if kind == "head" else model_of(kind), settings, (3, 8))
    to_double(learner)
    x, y = examples(learner.model, 12)
    x = x.double() if kind == "head" else x
    streams = [(x, y), (x[np.arange(12) // 2], y[np.arange(12) // 2])]
    for i in range(12):
        if i == 6:
            learner.end_task()
        learner.learn(torch.stack([xs[i] for xs, _ in streams]), np.array([ys[i] for _, ys in streams]))
    return learner, streams


def ring_of(stream: Stream, classes: list[int]) -> tuple[Tensor, Tensor]:
    """The last two examples of these classes."""
    x, y = stream
    last = np.concatenate([np.flatnonzero(y == c)[-2:] for c in classes])
    return x[last], torch.from_numpy(y[last])


@models
def test_a_step_descends_on_the_loss_with_the_look_ahead(kind: str) -> None:
    learner, streams = two_tasks(kind)
    learner.end_task()
    before = [Explicit(learner, copy) for copy in range(2)]
    new, label = torch.stack([x[4] for x, _ in streams]), np.array([y[4] for _, y in streams])
    learner.learn(new, label)
    for copy, (true, stream) in enumerate(zip(before, streams, strict=True)):
        kept, known = ring_of(stream, true.seen.tolist())
        xs, ys = torch.cat([new[copy : copy + 1], kept]), torch.cat([torch.from_numpy(label[copy : copy + 1]), known])
        anchors = learner.rows[ANCHOR][copy, true.seen]
        weights, parts = (torch.full((len(v),), 1 / len(v), dtype=torch.float64) for v in (xs, anchors))
        setting: Any = learner.settings[copy]
        p = true.leaves()
        loss = objective(true, p, (xs, ys, weights, anchors, parts), setting.strength, setting.rate)
        after = Explicit(learner, copy).parameters
        for (name, v), g in zip(p.items(), torch.autograd.grad(loss, list(p.values())), strict=True):
            torch.testing.assert_close(after[name], v.detach() - setting.rate * g, rtol=1e-9, atol=1e-10)


@models
def test_the_anchors_change_the_step_and_are_changed_less_by_the_next(kind: str) -> None:
    learner, batch = two_streams(kind)
    x, y, weights, anchors, parts = batch

    def change() -> Tensor:
        """How far a step would move the anchors' logits, (B,)."""
        before = {n: p.clone() for n, p in learner.parameters.items()}
        old = learner._scores(anchors)
        learner.error_step(x, y, weights)
        moved = learner._scores(anchors) - old
        for name, p in learner.parameters.items():
            p.copy_(before[name])
        return (parts * moved.square().sum(-1)).sum(1)

    at_first = {n: p.clone() for n, p in learner.parameters.items()}
    learner.error_step(x, y, weights)
    without, plain = change(), {n: p.clone() for n, p in learner.parameters.items()}
    for name, p in learner.parameters.items():
        p.copy_(at_first[name])
    learner.descend(learner.gradient(*batch))
    assert not torch.equal(learner.parameters["weight"], plain["weight"])
    assert (change() < without).all()


@models
def test_strength_0_is_replay_from_the_ring(kind: str) -> None:
    x, y = examples(model_of(kind), 24)
    learner = hal(kind, strength=0.0, ring=2)
    plain = RingER(model_of(kind), learner.settings, (3,))
    with_anchors = hal(kind, ring=2)
    for one in (learner, plain, with_anchors):
        feed(one, x, y)
    ours, theirs, others = map(knowledge, (learner, plain, with_anchors))
    assert all(torch.equal(ours[n], t) for n, t in theirs.items())
    assert not torch.equal(ours["parameters.weight"], others["parameters.weight"])


@models
def test_without_anchors_it_is_replay_from_the_ring(kind: str) -> None:
    x, y = examples(model_of(kind), 24)
    learner, none = hal(kind), hal(kind, anchors=0)
    plain = RingER(model_of(kind), learner.settings, (3,))
    feed(learner, x, y, tasks=False)
    feed(none, x, y)
    feed(plain, x, y)
    for one in (learner, none):
        state = one.state_dict()
        assert all(torch.equal(state[n], t) for n, t in knowledge(plain).items())


@models
def test_with_room_for_everything_the_ring_is_er(kind: str) -> None:
    """Both replay all that has come, in another order."""
    x, y = examples(model_of(kind), 16)
    learner, er = hal(kind, strength=0.0, ring=16, replay=16), make("er", model_of(kind), slots=16, replay=16)
    for one in (learner, er):
        feed(one, x, y)
    a, b = learner.scores(x[None]), er.scores(x[None])
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


# --- memory ---------------------------------------------------------------------------------------------------------


def test_the_ring_keeps_the_last_of_each_class() -> None:
    learner = hal(ring=3)
    x, _ = examples(learner.model, 14)
    y = np.array([0, 1, 0, 0, 0, 1, 4, 0, 1, 1, 1, 1, 4, 0])
    feed(learner, x, y, tasks=False)
    for c in (0, 1):
        kept = {tuple(row) for row in learner.rows[KEPT][0, c].tolist()}
        assert kept == {tuple(row) for row in x[np.flatnonzero(y == c)[-3:]].tolist()}
    assert learner.rows[COUNT][0, :5].tolist() == [6, 6, 0, 0, 2]
    drawn, labels, real = learner.draw_kept(learner._seen_mask(), 99, purpose=7)
    assert sorted(labels[real].tolist()) == [0, 0, 0, 1, 1, 1, 4, 4]
    assert all(row in x.tolist() for row in drawn[real].tolist())


def test_copies_that_hold_unequally_many_do_as_they_would_alone() -> None:
    pair, alone = hal(keys=(3, 8), ring=2), [hal(keys=(key,), ring=2) for key in (3, 8)]
    x, y = examples(pair.model, 24)
    streams = [(x, y), (x.flip(0), y[::-1] // 2)]
    for i in range(24):
        if i in (6, 12, 18):
            for one in (pair, *alone):
                one.end_task()
        pair.learn(torch.stack([xs[i] for xs, _ in streams]), np.array([ys[i] for _, ys in streams]))
        for one, (xs, ys) in zip(alone, streams, strict=True):
            one.learn(xs[i : i + 1], ys[i : i + 1])
    for copy, one in enumerate(alone):
        n = one.classes
        assert torch.equal(pair.rows[KEPT][copy, :n], one.rows[KEPT][0, :n])
        for name in (ANCHOR, "parameters.weight"):
            torch.testing.assert_close(pair.rows[name][copy, :n], one.rows[name][0, :n], rtol=1e-4, atol=1e-4)


def test_the_bytes_by_kind() -> None:
    learner = hal(ring=2)
    x, y = examples(learner.model, 20)
    image = x[0].nbytes
    feed(learner, x[:10], y[:10])  # two classes, the second of which is not at its end
    assert learner.memory() == {
        "memory": 2 * (2 * image + 8),
        "anchors": 2 * (image + 1),
        "task": image + 4 * learner.model.width + 8,
    }
    learner.end_task()
    assert learner.memory()["task"] == 0


# --- anchors --------------------------------------------------------------------------------------------------------


@models
def test_the_first_anchor_is_an_example_and_later_ones_are_made(kind: str) -> None:
    learner = hal(kind, ring=2)
    x, y = examples(learner.model, 12, classes=2)
    real = x.float() / 255 if kind == "network" else x
    feed(learner, x[:6], y[:6])
    learner.end_task()
    assert torch.equal(learner.rows[ANCHOR][0, 0], real[5])
    feed(learner, x[6:], y[6:])
    assert learner.rows[MADE][0, :2].tolist() == [True, False]
    before, start = learner.state_dict(), learner.state[MEAN][0, 0].clone()
    learner.end_task()
    anchor = learner.rows[ANCHOR][0, 1]
    assert learner.rows[MADE][0, :2].tolist() == [True, True]
    assert 0 < float((anchor - start).abs().max()) < 0.0051  # five steps of at most the rate
    assert min(float((anchor - r).abs().max()) for r in real) > 1e-3
    for name, p in learner.parameters.items():
        assert torch.equal(p[:, :3] if name in ("weight", "bias") else p, before["parameters." + name])
    assert torch.equal(learner.rows[ANCHOR][0, 0], real[5])


def test_the_running_means() -> None:
    learner = hal()
    x, _ = examples(learner.model, 4)
    feed(learner, x, np.array([2, 5, 2, 2]), tasks=False)
    assert learner.state[LABEL].tolist() == [[2, 5]]
    torch.testing.assert_close(learner.state[MEAN][0, 0], 0.81 * x[0] + 0.09 * x[2] + 0.1 * x[3])
    torch.testing.assert_close(learner.state[FEATURE][0, 0], 0.25 * x[0] + 0.25 * x[2] + 0.5 * x[3])
    assert torch.equal(learner.state[MEAN][0, 1], x[1])


@models
def test_each_step_of_an_anchor_lowers_its_loss(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = hal(kind, anchor_steps=20, anchor_rate=1e-4, closeness=0.5, tune_steps=10)
    x, y = examples(learner.model, 24)
    feed(learner, x, y)
    loss, seen = learner.anchor_loss, []

    def watched(e: Tensor, tuned: Parameters, labels: Tensor) -> Tensor:
        value = loss(e, tuned, labels)
        seen.append(float(value.detach().sum()))
        return value

    monkeypatch.setattr(learner, "anchor_loss", watched)
    learner.end_task()
    assert len(seen) == 20
    assert all(later < sooner for sooner, later in pairwise(seen))


@models
def test_an_anchor_is_what_adam_makes_of_the_objective(kind: str) -> None:
    """A small loss now, a large one after tuning on earlier classes, and features close to those of the class."""
    learner, streams = two_tasks(kind)
    before = [Explicit(learner, copy) for copy in range(2)]
    labels, means, phis = (learner.state[name].clone() for name in (LABEL, MEAN, FEATURE))
    assert labels.tolist() == [[2, 3], [1, -1]]
    learner.end_task()
    for copy, (true, stream) in enumerate(zip(before, streams, strict=True)):
        setting: Any = learner.settings[copy]
        x, y = ring_of(stream, [[0, 1], [0]][copy])
        now, tuned = true.parameters, true.leaves()
        for _ in range(3):
            g = torch.autograd.grad(true.losses(tuned, x, y).mean(), list(tuned.values()))
            tuned = {n: v - setting.rate * d for (n, v), d in zip(tuned.items(), g, strict=True)}
        for place, label in enumerate(labels[copy].tolist()):
            if label < 0:
                continue
            e, c = means[copy, place].clone().requires_grad_(), torch.tensor([label])
            adam = torch.optim.Adam([e], lr=2**-7)
            for _ in range(4):
                near = F.cosine_similarity(true.model.features(now, e[None, None])[0, 0], phis[copy, place], dim=0)
                known = true.losses(now, e[None], c) - true.losses(tuned, e[None], c)
                (e.grad,) = torch.autograd.grad(known.sum() + setting.closeness * (1 - near), e)
                adam.step()
            expected = e.detach().clamp(0, 1) if kind == "network" else e.detach()
            torch.testing.assert_close(learner.rows[ANCHOR][copy, label], expected, rtol=1e-8, atol=1e-8)


def test_tuning_on_earlier_tasks_loses_the_last_and_is_undone() -> None:
    learner = hal(ring=3)
    x, y = examples(learner.model, 24)
    feed(learner, x, y)
    earlier = torch.tensor([[True, True, True, False]])
    now, label = learner.parameters["weight"].clone(), torch.full((1, 6), 3)
    with torch.no_grad():
        tuned = learner._fine_tuned(earlier)
    assert torch.equal(learner.parameters["weight"], now)
    last = x[18:][None]
    before = learner.cross_entropy(learner.model.logits(learner.parameters, last), label)
    after = learner.cross_entropy(learner.model.logits(tuned, last), label)
    assert (after > before).all()


def test_a_task_of_several_classes_and_a_class_that_comes_back() -> None:
    learner = hal()
    x, _ = examples(learner.model, 8)
    feed(learner, x[:3], np.array([0, 1, 0]), tasks=False)
    learner.end_task()
    assert torch.equal(learner.rows[ANCHOR][0, :2], x[[2, 1]])
    feed(learner, x[3:7], np.array([4, 1, 4, 1]), tasks=False)
    learner.end_task()
    learner.end_task()  # nothing has come since
    assert learner.rows[MADE][0, :5].tolist() == [True, True, False, False, True]
    assert torch.equal(learner.rows[ANCHOR][0, 0], x[2])
    assert not torch.equal(learner.rows[ANCHOR][0, 1], x[1])
    again = hal()
    again.load_state_dict(learner.state_dict())
    for one in (learner, again):
        one.learn(x[7:], np.array([0]))
    assert same(learner, again)


def test_settings_that_make_no_sense() -> None:
    for settings, words in (
        ({"optimizer": "adam"}, "use optimizer 'sgd'"),
        ({"ring": 0}, "ring is 0"),
        ({"replay": -1}, "replay is -1"),
        ({"strength": -1.0}, "strength is -1"),
        ({"tune_steps": -1}, "tune_steps is -1"),
    ):
        with pytest.raises(UserError, match=words):
            hal(**settings)
