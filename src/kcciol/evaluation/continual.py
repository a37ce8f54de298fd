"""Any learner through streams of novel classes: which examples come when, and what is measured on the way.

All copies of a learner advance together. One stream serves for every number of classes: what a learner knows after k
classes is what it would know had the stream ended there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.errors import UserError
from kcciol.evaluation.metrics import Summary, summarize
from kcciol.evaluation.shown import Images, redrawn
from kcciol.evaluation.stream import Purpose
from kcciol.learners.learner import Learner

Order = Literal["class", "task", "shuffled"]


@dataclass(frozen=True)
class Plan:
    """When each example comes, for every trajectory: `task_classes` classes a task, `samples` examples of each class.

    class: class after class, in the stored order. task: the examples of a task in random order. shuffled: all examples
    in random order, which is no continual learning any more and shows what that costs.
    """

    classes: int
    samples: int
    task_classes: int = 1
    order: Order = "class"
    seed: int = 0
    redraw: int = 0  # if above 0: so many held-out examples of each class are drawn, and those learned, for each stream

    def __post_init__(self) -> None:
        if min(self.classes, self.samples, self.task_classes) < 1:
            raise UserError("An empty stream teaches nothing: classes, samples and task_classes must be at least 1.")
        if self.classes % self.task_classes:
            raise UserError(
                f"{self.classes} classes cannot be split into tasks of {self.task_classes}: "
                "choose a number of classes that can."
            )

    @property
    def tasks(self) -> int:
        return self.classes // self.task_classes

    def positions(self, trajectory: int) -> NDArray[np.int64]:
        """(tasks, examples of a task, 2): position of the class in the stream, and number of the example."""
        size = self.task_classes * self.samples
        label, sample = np.divmod(np.arange(self.classes * self.samples), self.samples)
        pairs = np.stack([label, sample], 1)
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, trajectory])))
        if self.order == "shuffled":
            pairs = pairs[random.permutation(len(pairs))]
        elif self.order == "task":
            pairs = np.concatenate([part[random.permutation(size)] for part in np.split(pairs, self.tasks)])
        return pairs.reshape(self.tasks, size, 2)


@dataclass(frozen=True)
class Streams:
    """What B copies see: which classes, out of images (C, S, ...) to learn and (C, m, ...) held out."""

    plan: Plan
    classes: Tensor  # (B, n) ids of classes, in the order of their labels
    trajectories: Sequence[int]  # of each copy
    train: Tensor | Images
    test: Tensor | Images

    def __post_init__(self) -> None:
        if self.train.shape[1] < self.plan.samples:
            raise UserError(
                f"The stream wants {self.plan.samples} examples of each class, but there are {self.train.shape[1]}."
            )
        for part in (p.pool if isinstance(p, Images) else p for p in (self.train, self.test)):
            if part.is_floating_point() and not bool(part.isfinite().all()):
                raise UserError("The examples hold a value that is not a finite number.")


def streams_of(
    plan: Plan, classes: Tensor, trajectories: Sequence[int], train: Tensor, test: Tensor, purpose: Purpose
) -> Streams:
    """Streams of classes (B, n) out of these images, which are drawn anew for each trajectory if the plan says so."""
    if not plan.redraw:
        return Streams(plan, classes, trajectories, train, test)
    sizes, everything = (plan.samples, plan.redraw), torch.cat([train, test], 1)
    learned, asked, ids = redrawn(everything, classes, trajectories, sizes, plan.seed, purpose)
    return Streams(plan, ids, trajectories, learned, asked)


def feed(learner: Learner, streams: Streams) -> Iterator[int]:
    """Let the learner see everything once; yields the number of tasks seen after each."""
    plan = streams.plan
    where = {t: plan.positions(t) for t in set(streams.trajectories)}
    plans = np.stack([where[t] for t in streams.trajectories], 2)  # (tasks, size, B, 2)
    ids = streams.classes.cpu().numpy()
    everyone = np.arange(len(ids))
    for task in range(plan.tasks):
        labels, samples = plans[task, ..., 0], plans[task, ..., 1]  # (size, B)
        chosen = torch.from_numpy(ids[everyone, labels]).to(streams.train.device)
        places = torch.from_numpy(samples).to(streams.train.device)
        if plan.order == "class":
            for first in range(0, len(labels), plan.samples):
                some = slice(first, first + plan.samples)
                learner.observe_class(streams.train[chosen[some].T, places[some].T], labels[first])
        else:
            for i in range(len(labels)):
                learner.observe(streams.train[chosen[i], places[i]], labels[i])
        learner.end_task()
        yield task + 1


def right_answers(learner: Learner, images: Tensor | Images, classes: Tensor, first: int = 0) -> Tensor:
    """The share (B, k) of the images of each class that are answered with its label; images (C, m, ...), classes (B, k)
    with the labels first, first + 1, ... A learner that has diverged, so that no score is finite, is wrong."""
    some = max(1, learner.model.at_once // (len(classes) * images.shape[1]))  # classes whose images fit into memory
    parts = []
    for start in range(0, classes.shape[1], some):
        mine = classes[:, start : start + some]
        best, answers = learner.predict(images[mine].flatten(1, 2)).max(-1)
        labels = torch.arange(mine.shape[1], device=answers.device)[:, None] + first + start
        right = (answers.view(*mine.shape, -1) == labels) & best.view(*mine.shape, -1).isfinite()
        parts.append(right.double().mean(-1))
    return torch.cat(parts, 1)


def class_accuracy(learner: Learner, images: Tensor | Images, classes: Tensor) -> Tensor:
    """Accuracy (B, k) in percent on each of the first k classes of each copy; images (C, m, ...), classes (B, k)."""
    return 100 * right_answers(learner, images, classes)


def latest_accuracy(learner: Learner, streams: Streams, seen: int) -> Tensor:
    """Accuracy (B,) in percent on the classes of the latest of `seen` tasks."""
    width = streams.plan.task_classes
    first = (seen - 1) * width
    return 100 * right_answers(learner, streams.test, streams.classes[:, first : first + width], first).mean(1)


@dataclass(frozen=True)
class Course:
    """How a learner did: R[b, i, j] is copy b's accuracy on task j after task i; NaN where it was not measured."""

    matrix: Tensor  # (B, points, tasks)
    learned: Tensor  # (B, tasks) right after each task; NaN where it was not measured
    points: tuple[int, ...]  # after how many tasks each row was measured; the last is after all
    by_class: Tensor  # (B, n) at the end
    train: Mapping[int, Tensor]  # (B,) on the examples learned so far, after so many tasks, where it was asked for
    memory: Mapping[str, int]  # bytes that each copy keeps at the end, by kind

    @property
    def accuracy(self) -> Tensor:
        """(B,) over all classes at the end."""
        return self.by_class.mean(-1)

    def at(self, tasks: int) -> Tensor:
        """(B,) over the classes seen after so many tasks."""
        return self.matrix[:, self.points.index(tasks), :tasks].mean(-1)

    def anytime(self) -> Tensor:
        """(B,): the mean over all points of the accuracy on the classes seen so far."""
        return torch.stack([self.at(tasks) for tasks in self.points], 1).mean(1)

    def forgetting(self) -> Tensor:
        """(B, tasks): the best accuracy on each task, right after it or at any point before the end, minus that at the
        end; below zero where a task is better known at the end than ever before."""
        best = torch.cat([self.matrix[:, :-1], self.learned[:, None]], 1).nan_to_num(nan=-1.0).amax(1)
        return best - self.matrix[:, -1]

    def backward_transfer(self) -> Tensor:
        """(B,): the mean over all tasks but the last of the accuracy at the end minus that right after the task; NaN
        where that was not measured."""
        lost = (self.matrix[:, -1] - self.learned)[:, :-1]
        return lost.mean(-1) if lost.shape[1] else torch.zeros(len(lost), dtype=lost.dtype)

    def forward_transfer(self) -> Tensor:
        """(B,): the mean accuracy on a task before its first example. No learner here answers with a class that it has
        never seen, so this is zero by construction, and said so rather than left out."""
        return torch.zeros(len(self.matrix), dtype=torch.float64)

    def summary(self) -> dict[str, Summary]:
        """The numbers of a result, over copies."""
        found = {
            "test": self.accuracy,
            **({"train": self.train[self.points[-1]]} if self.points[-1] in self.train else {}),
            "anytime": self.anytime(),
            "forward_transfer": self.forward_transfer(),
        }
        if not bool(self.learned.isnan().any()):  # without it forgetting could not be compared
            lost = self.forgetting()[:, :-1]
            found["forgetting"] = lost.mean(-1) if lost.shape[1] else torch.zeros_like(self.accuracy)
            found["learned"] = self.learned.mean(-1)
            found["backward_transfer"] = self.backward_transfer()
        return {name: summarize(values) for name, values in found.items()}


def run(
    learner: Learner, streams: Streams, points: Sequence[int] | None = None, shown: Sequence[int] | None = None
) -> Course:
    """Learn the streams and measure after these numbers of tasks (None: after each), and always after the last.

    shown: those of them after which the examples learned are asked too (None: after the last).
    A shuffled stream has no tasks, so it is measured at its end only.
    """
    plan = streams.plan
    wanted = sorted({*(points or range(1, plan.tasks + 1)), plan.tasks})
    if plan.order == "shuffled":
        wanted = [plan.tasks]
    if wanted[0] < 1 or wanted[-1] > plan.tasks:
        raise UserError(
            f"The stream has {plan.tasks} tasks, so it cannot be measured after {wanted[0]} or {wanted[-1]}."
        )
    asked = [plan.tasks] if shown is None or (shown and plan.order == "shuffled") else shown
    images = streams.train if streams.train.shape[1] == plan.samples else streams.train[:, : plan.samples]
    rows, learned = [], torch.full((len(streams.classes), plan.tasks), torch.nan, dtype=torch.float64)
    train: dict[int, Tensor] = {}
    for seen in feed(learner, streams):
        if plan.order != "shuffled" and not learner.card.solves:
            learned[:, seen - 1] = latest_accuracy(learner, streams, seen).cpu()
        if seen in wanted:
            by_class = class_accuracy(learner, streams.test, streams.classes[:, : seen * plan.task_classes])
            by_task = by_class.view(len(by_class), -1, plan.task_classes).mean(-1)
            rows.append(torch.nn.functional.pad(by_task, (0, plan.tasks - by_task.shape[1]), value=torch.nan))
        if seen in asked:
            right = class_accuracy(learner, images, streams.classes[:, : seen * plan.task_classes])
            train[seen] = right.mean(-1).cpu()
    matrix = torch.stack(rows, 1).cpu()
    return Course(matrix, learned, tuple(wanted), by_class.cpu(), train, learner.memory())
