"""EWC: parameters that earlier tasks needed are held by springs (Kirkpatrick et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Labels
from kcciol.learners.bounds import bounded
from kcciol.learners.card import Card
from kcciol.learners.gradient import GradientLearner, GradientSettings
from kcciol.learners.grid import RATES, Grid
from kcciol.learners.model import Dense, Head, LowRank, per_copy

FISHER, CENTRE, TASK = "fisher.", "centre.", "task."
_TINY = 1e-38


@dataclass(frozen=True)
class EWCSettings(GradientSettings):
    strength: float = bounded(1.0, low=0)
    """Stiffness of the springs, which pull from the first end of a task on; 0 is plain online learning. With SGD, rate
    times strength must stay small, or they overshoot."""
    fisher: Literal["stream", "label"] = "stream"
    """What tells how much a parameter matters: the mean of squared gradients, taken of each example as it arrives
    (stream), or of the model's own answer, each class by its probability (label; linear heads only)."""


class EWC(GradientLearner):
    """The penalty strength * sum_t F_t (p - p_t)^2 over all earlier tasks t, where p_t are the parameters at its end.

    A sum of such penalties is, but for a constant, one penalty with F = sum F_t around the F-weighted mean of the p_t:
    two numbers for each parameter are enough for any number of tasks.
    """

    card = Card(
        "holds parameters that earlier tasks needed",
        "Kirkpatrick et al. 2017",
        keeps="three numbers for each weight",
        tasks=True,
    )
    settings_type = EWCSettings
    grid: ClassVar[Grid] = {"rate": RATES, "strength": (1e-3, 0.1, 10.0, 1e3, 1e5), "reserve": (0, 100)}

    def _setup(self) -> None:
        super()._setup()
        self.strength = self.column("strength")
        if self.choice("fisher") == "label" and not isinstance(self.model, Head):
            raise UserError("EWC's fisher 'label' is for linear heads on a frozen network: choose 'stream'.")
        self.minus = torch.full_like(self.rate, -1)
        for prefix in (FISHER, CENTRE, TASK):
            self.add_group(prefix)
        self.state["task.examples"] = torch.zeros(self.copies, dtype=torch.int64, device=self.device)

    def _learn(self, x: Tensor, y: Labels) -> None:
        if self.single and self.choice("fisher") == "stream":
            self._learn_alone(x, int(y[0]))
            return
        logits, tape = self.model.forward(self.parameters, x[:, None])
        gradient = self.pull_back(tape, self.cross_entropy_error(logits, self.labels(y)[:, None]))
        squared = LowRank(*self._own_fisher(x, logits)) if self.choice("fisher") == "label" else gradient.squared()
        squared.descend_(self.group(TASK), self.minus)  # adds
        self.state["task.examples"] += 1
        if self.adam:
            dense = gradient.dense()
            springs = zip(self.parameters, self.springs(), strict=True)
            self.descend(Dense({name: dense[name] + spring for name, spring in springs}))
            return
        self._pull()
        self.descend(gradient)  # which was taken before the springs pulled

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        if self.single and self.choice("fisher") == "stream":
            self._learn_alone(x[0], int(y[0]))
        else:
            super()._learn_class(x, y)

    def _learn_alone(self, z: Tensor, label: int) -> None:
        """The same for examples (m, d) of one class in one stream of features; their squares are added at the end."""
        errors = []
        for one in z:
            errors.append(self.error_of_one(one, label))
            self._pull()
            self.descend_one(errors[-1], one)
        squares = torch.stack(errors).square()
        task = self.group(TASK)
        task["weight"][0].addmm_(squares.mT, z.square())
        task["bias"][0] += squares.sum(0)
        self.state["task.examples"] += len(z)

    def _pull(self) -> None:
        """A step of SGD on the springs."""
        for p, (stay, pull) in zip(self.parameters.values(), self._pulls(), strict=True):
            torch.addcmul(pull, p, stay, out=p)

    def springs(self) -> list[Tensor]:
        """The gradient of the penalty."""
        fisher, centre = self.group(FISHER), self.group(CENTRE)
        return [
            (p - centre[n]).mul_(fisher[n]).mul_(2 * per_copy(self.strength, p)) for n, p in self.parameters.items()
        ]

    def _pulls(self) -> list[tuple[Tensor, Tensor]]:
        """What a step of SGD on the springs makes of parameters p, as p * stay + pull: the same until a task ends."""
        if self._pull_cache is None:
            fisher, centre = self.group(FISHER), self.group(CENTRE)
            self._pull_cache = []
            for name in self.parameters:
                part = fisher[name] * per_copy(2 * self.strength * self.rate, fisher[name])
                self._pull_cache.append((1 - part, part * centre[name]))
        return self._pull_cache

    def _forget_views(self) -> None:
        super()._forget_views()
        self._pull_cache = None

    _pull_cache: list[tuple[Tensor, Tensor]] | None = None

    def _own_fisher(self, x: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The mean over labels drawn from the model itself of the squared gradient, for a linear head: row c's error is
        p_c - 1 with probability p_c and p_c otherwise, whose mean square is p_c (1 - p_c)."""
        offset, count = self._offset()
        p = (logits + offset).softmax(-1)[:, 0]
        p = torch.cat([p[:, :1] / count, p[:, 1:]], 1)
        return (p * (1 - p))[:, None], x[:, None].square()

    def end_task(self) -> None:
        """Fold the task that ends into F and the centre."""
        if not self.steps:
            return
        fisher, centre, task = self.group(FISHER), self.group(CENTRE), self.group(TASK)
        count = self.state["task.examples"].clamp_min(1).to(self.rate)
        for name, p in self.parameters.items():
            new = task[name].div_(per_copy(count, p))
            fisher[name] += new
            share = new.div_(fisher[name].clamp_min(_TINY))  # of this task in F; where F is zero nothing is held anyway
            centre[name].lerp_(p, share)
            task[name].zero_()
        self.state["task.examples"].zero_()
        self._pull_cache = None
