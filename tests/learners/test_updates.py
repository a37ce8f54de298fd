"""Whole streams of EWC and DER against their losses, written out with every row and differentiated by autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.learners import LEARNERS
from kcciol.learners.base import Learner
from kcciol.learners.der import DER
from kcciol.learners.gradient import GradientLearner
from kcciol.learners.memory import reservoir_slots
from kcciol.learners.model import ROWS, Head, Parameters
from tests.learners.battery import WIDTH, examples, network
from tests.learners.explicit import to_double

RESERVE, SLOTS, REPLAY, KEYS = 3, 4, 3, (3, 8)
Settings = dict[str, Any]
models = pytest.mark.parametrize("kind", ["head", "network"])
optimizers = pytest.mark.parametrize("optimizer", ["sgd", "adam"])


class Plain:
    """One stream of a learner that has a row of its own for each of the reserve, and nothing but definitions."""

    def __init__(self, learner: GradientLearner, rate: float, optimizer: str) -> None:
        self.model, self.rate, self.adam, self.time = learner.model, rate, optimizer == "adam", 0
        self.p = {n: v[:1].clone() for n, v in learner.parameters.items()}  # at its start: copies are alike
        for name in ROWS:
            self.p[name] = torch.cat([self.p[name]] * RESERVE, 1)
        self.mean, self.square = ({n: torch.zeros_like(v) for n, v in self.p.items()} for _ in range(2))
        self.groups, self.row = [self.p, self.mean, self.square], dict[int, int]()

    def admit(self, label: int) -> None:
        """A new class takes a row of the reserve, and another comes in its place."""
        if label not in self.row:
            self.row[label] = RESERVE + len(self.row)
            for group in self.groups:
                group.update({n: torch.cat([group[n], group[n][:, :1]], 1) for n in ROWS})

    def leaves(self) -> Parameters:
        return {n: v.detach().clone().requires_grad_() for n, v in self.p.items()}

    def logits(self, p: Parameters, x: Tensor) -> Tensor:
        return (self.model.features(p, x[None, None]) @ p["weight"].mT + p["bias"][:, None])[0, 0]

    def loss(self, p: Parameters, x: Tensor, row: int) -> Tensor:
        return -F.log_softmax(self.logits(p, x), 0)[row]

    def descend(self, loss: Tensor, leaves: Parameters) -> None:
        self.time += 1
        for n, g in zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True):
            self.mean[n] = 0.9 * self.mean[n] + 0.1 * g
            self.square[n] = 0.999 * self.square[n] + 0.001 * g * g
            first, second = self.mean[n] / (1 - 0.9**self.time), self.square[n] / (1 - 0.999**self.time)
            self.p[n] = self.p[n] - self.rate * (first / (second.sqrt() + 1e-8) if self.adam else g)

    def check(self, learner: GradientLearner, copy: int) -> None:
        order = [1 + label for label in self.row]
        for name, expected in self.p.items():
            got = learner.parameters[name][copy]
            if name in ROWS:
                got = got[[0] * RESERVE + order]
            torch.testing.assert_close(got, expected[0], rtol=1e-9, atol=1e-10)


def double(name: str, kind: str, settings: Sequence[Settings], **common: Any) -> GradientLearner:
    method = LEARNERS[name]
    made = [method.settings_type(**({"reserve": RESERVE} | common | s)) for s in settings]
    learner = method(Head(WIDTH, torch.float64) if kind == "head" else network(), made, KEYS[: len(made)])
    assert isinstance(learner, GradientLearner)
    to_double(learner)
    return learner


def streams(learner: Learner, count: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """(count, copies, ...) and labels (count, copies); the second copy sees half of the classes."""
    x, y = examples(learner.model, count)
    x = x.double() if x.is_floating_point() else x
    order = np.stack([np.arange(count), np.arange(count) // 2])[: learner.copies].T
    return x[order], np.array([2, 0, 3, 1])[y[order]]


# --- EWC --------------------------------------------------------------------------------------------------------------


class PlainEWC(Plain):
    """Springs of each task apart."""

    def __init__(self, learner: GradientLearner, rate: float, optimizer: str, strength: float, fisher: str) -> None:
        super().__init__(learner, rate, optimizer)
        self.strength, self.own = strength, fisher == "label"
        self.springs: list[tuple[Parameters, Parameters]] = []
        self.squares: list[Parameters] = []

    def learn(self, x: Tensor, label: int) -> None:
        self.admit(label)
        self.squares.append(self.squared(x, self.row[label]))
        self.groups.append(self.squares[-1])
        leaves = self.leaves()
        loss = self.loss(leaves, x, self.row[label])
        for fisher, centre in self.springs:
            for n, v in leaves.items():
                loss = loss + self.strength * (fisher[n] * (v - centre[n]).square()).sum()
        self.descend(loss, leaves)

    def squared(self, x: Tensor, row: int) -> Parameters:
        """The squared gradient of one example, by its label or in the mean over the model's own."""
        leaves = self.leaves()
        chances = dict(enumerate(self.logits(leaves, x).softmax(0).tolist())) if self.own else {row: 1.0}
        total = {n: torch.zeros_like(v) for n, v in leaves.items()}
        for answer, chance in chances.items():
            gradients = torch.autograd.grad(self.loss(leaves, x, answer), list(leaves.values()))
            for n, g in zip(leaves, gradients, strict=True):
                total[n] += chance * g.square()
        return total

    def end_task(self) -> None:
        fisher = {n: torch.stack([s[n] for s in self.squares]).mean(0) for n in self.p}
        self.springs.append((fisher, dict(self.p)))
        self.groups = [g for g in self.groups if not any(g is s for s in self.squares)] + list(self.springs[-1])
        self.squares = []


@pytest.mark.parametrize("copies", [1, 2])
@optimizers
@pytest.mark.parametrize(("kind", "fisher"), [("head", "stream"), ("head", "label"), ("network", "stream")])
def test_ewc_descends_on_the_loss_and_a_spring_for_each_task(
    kind: str, fisher: str, optimizer: str, copies: int
) -> None:
    """Tasks of unequally many examples, so that a mean is no sum."""
    own: list[Settings] = [{"rate": 0.125, "strength": 1.5}, {"rate": 0.0625, "strength": 4.0}][:copies]
    learner = double("ewc", kind, own, optimizer=optimizer, fisher=fisher)
    plain = [PlainEWC(learner, s["rate"], optimizer, s["strength"], fisher) for s in own]
    x, y = streams(learner, 12)
    for i in range(12):
        if i in (3, 8):
            learner.end_task()
            for one in plain:
                one.end_task()
        learner.learn(x[i], y[i])
        for copy, one in enumerate(plain):
            one.learn(x[i, copy], int(y[i, copy]))
            one.check(learner, copy)


# --- DER --------------------------------------------------------------------------------------------------------------


class PlainDER(Plain):
    """A memory of examples with their labels and the logits of the classes that were known when they came."""

    def __init__(self, learner: GradientLearner, rate: float, optimizer: str, alpha: float, beta: float) -> None:
        super().__init__(learner, rate, optimizer)
        self.alpha, self.beta = alpha, beta
        self.memory: dict[int, tuple[Tensor, int, dict[int, Tensor]]] = {}

    def learn(self, x: Tensor, label: int, first: list[int], second: list[int], joint: bool, slot: int) -> None:
        self.admit(label)
        leaves = self.leaves()
        loss, distance, again = self.loss(leaves, x, self.row[label]), torch.zeros(()), torch.zeros(())
        for old, _, kept in (self.memory[s] for s in first):
            logits = self.logits(leaves, old)
            distance = distance + sum((logits[self.row[c]] - was) ** 2 for c, was in kept.items())
        for old, known, _ in (self.memory[s] for s in second):
            again = again + self.loss(leaves, old, self.row[known])
        n = len(first)
        more = self.alpha * distance + self.beta * again
        now = self.logits(self.p, x)
        self.descend((loss + more) / (1 + n) if joint else loss + more / max(n, 1), leaves)
        if slot >= 0:
            self.memory[slot] = x, label, {c: now[row] for c, row in self.row.items()}


@models
@optimizers
@pytest.mark.parametrize("weighting", ["joint", "additive"])
@pytest.mark.parametrize("name", ["der", "der++"])
def test_der_descends_on_the_loss_and_the_distance_to_kept_logits(
    name: str, weighting: str, optimizer: str, kind: str
) -> None:
    """More examples than slots; classes that come after an example was kept have no part in its distance."""
    own: list[Settings] = [{"rate": 0.125, "alpha": 0.25}, {"rate": 0.0625, "alpha": 0.5}]
    if name == "der++":
        own = [s | {"beta": beta} for s, beta in zip(own, (0.75, 2.0), strict=True)]
    common = {"slots": SLOTS, "replay": REPLAY, "optimizer": optimizer, "weighting": weighting}
    learner = double(name, kind, own, **common)
    assert isinstance(learner, DER)
    plain = [PlainDER(learner, s["rate"], optimizer, s["alpha"], s.get("beta", 0.0)) for s in own]
    x, y = streams(learner, 9)
    for i in range(9):
        drawn = [learner.kept.draw(i, REPLAY, purpose) for purpose in (1, 0)]
        slots = reservoir_slots(learner.keys, i, SLOTS)
        learner.learn(x[i], y[i])
        for copy, one in enumerate(plain):
            first, second = ([] if d is None else d[copy].tolist() for d in drawn)
            one.learn(x[i, copy], int(y[i, copy]), first, second, weighting == "joint", int(slots[copy]))
            one.check(learner, copy)
