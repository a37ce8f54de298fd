"""Copies of a learner through their streams, and the accuracies that are measured on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.evaluation.metrics import ImagesAsked, class_accuracy
from kcciol.evaluation.selection import Selection
from kcciol.evaluation.stream import Schedule
from kcciol.learners.base import Learner, Settings

GIB = 2**30
BUDGET = {"cpu": GIB}  # bytes; on a GPU half of what is free
MakeCopies = Callable[[Sequence[Settings], Sequence[int]], Learner]  # from each copy's settings and trajectory


@dataclass(frozen=True)
class Streams:
    """What trajectories hold: which classes, out of images (C, S, ...) to learn and (C, m, ...) held out."""

    schedule: Schedule
    classes: Tensor  # (R, n) ids of classes, in the order of their labels
    trajectories: Sequence[int]  # the number of each
    train: Tensor | Selection
    test: Tensor | Selection

    def __post_init__(self) -> None:
        if self.train.shape[1] < self.schedule.samples:
            raise UserError(
                f"The stream wants {self.schedule.samples} examples of each class, but there are {self.train.shape[1]}."
            )

    def of(self, rows: Sequence[int]) -> Streams:
        """The streams of these rows, which may come more than once."""
        return replace(self, classes=self.classes[list(rows)], trajectories=[self.trajectories[i] for i in rows])

    def asked(self, classes: int, train: bool = False) -> ImagesAsked:
        """Of the first so many classes of each trajectory."""
        images = self.train if train else self.test
        part = self.classes[:, :classes]
        found = images if isinstance(images, Selection) else Selection.first(images, images.shape[1])
        return ImagesAsked(found.different(part), part.shape[1] * images.shape[1])


def feed(learner: Learner, streams: Streams) -> Iterator[int]:
    """Let the learner see everything once; yields the number of tasks seen after each."""
    schedule = streams.schedule
    positions = {t: schedule.positions(t) for t in set(streams.trajectories)}
    plans = np.stack([positions[t] for t in streams.trajectories], 2)  # (tasks, size, B, 2)
    ids = streams.classes.cpu().numpy()
    everyone = np.arange(len(ids))
    for task in range(schedule.tasks):
        labels, samples = plans[task, ..., 0], plans[task, ..., 1]  # (size, B)
        chosen = torch.from_numpy(ids[everyone, labels]).to(streams.train.device)
        places = torch.from_numpy(samples).to(streams.train.device)
        if schedule.order == "class":
            for first in range(0, len(labels), schedule.samples):
                whole = slice(first, first + schedule.samples)
                learner.observe_class(streams.train[chosen[whole].T, places[whole].T], labels[first])
        else:
            for i in range(len(labels)):
                learner.observe(streams.train[chosen[i], places[i]], labels[i])
        learner.end_task()
        yield task + 1


@dataclass(frozen=True)
class AccuracyMatrix:
    """How a learner did: matrix[b, i, j] is copy b's accuracy on class j at point i; NaN where it was not measured.

    At point i, points[i] tasks have been learned.
    """

    matrix: Tensor  # (B, points, n)
    learned: Tensor  # (B, n) right after each class's task; NaN where it was not measured
    points: tuple[int, ...]  # the last is after all tasks
    train: Mapping[int, Tensor]  # (B,) on the examples learned so far, after so many tasks, where it was asked for
    memory: Mapping[str, int]  # bytes that each copy keeps at the end, by kind
    task_classes: int = 1

    def until(self, tasks: int) -> AccuracyMatrix:
        """The same of streams that end after so many tasks, one of the points."""
        count, classes = self.points.index(tasks) + 1, tasks * self.task_classes
        matrix, learned = self.matrix[:, :count, :classes], self.learned[:, :classes]
        return replace(self, matrix=matrix, learned=learned, points=self.points[:count])

    @property
    def final(self) -> Tensor:
        """(B, n): the accuracy on each class at the end."""
        return self.matrix[:, -1]

    @property
    def accuracy(self) -> Tensor:
        """(B,) over all classes at the end."""
        return self.final.mean(-1)

    def at(self, tasks: int) -> Tensor:
        """(B,) over the classes seen after so many tasks."""
        return self.matrix[:, self.points.index(tasks), : tasks * self.task_classes].mean(-1)

    def anytime(self) -> Tensor:
        """(B,): the mean over all points of the accuracy on the classes seen so far."""
        return torch.stack([self.at(tasks) for tasks in self.points], 1).mean(1)

    def _by_task(self, values: Tensor) -> Tensor:
        """(..., n) -> (..., tasks)"""
        return values.reshape(*values.shape[:-1], -1, self.task_classes).mean(-1)

    @property
    def knows_forgetting(self) -> bool:
        """Whether every task was measured right after it: else forgetting could not be compared."""
        return not bool(self.learned.isnan().any())

    def forgetting_by_task(self) -> Tensor:
        """(B, tasks): the best accuracy on each task, right after it or at any point before the end, minus that at the
        end; below zero where a task is better known at the end than ever before."""
        measured = self._by_task(torch.cat([self.matrix[:, :-1], self.learned[:, None]], 1))
        return measured.nan_to_num(nan=-1.0).amax(1) - self._by_task(self.final)

    def forgetting(self) -> Tensor:
        """(B,): the mean over all tasks but the last: nothing came after it, so it could not be forgotten."""
        return _mean_but_last(self.forgetting_by_task())

    def backward_transfer(self) -> Tensor:
        """(B,): the mean over all tasks but the last of the accuracy at the end minus that right after the task."""
        return _mean_but_last(self._by_task(self.final) - self._by_task(self.learned))


def _mean_but_last(values: Tensor) -> Tensor:
    return values[:, :-1].mean(-1) if values.shape[1] > 1 else values.new_zeros(len(values))


def run(
    learner: Learner,
    streams: Streams,
    points: Sequence[int] | None = None,
    learned_at: Sequence[int] | None = None,
    each_task: bool = True,
) -> AccuracyMatrix:
    """Learn the streams and measure after these numbers of tasks (None: after each), and always after the last.

    learned_at: those of them after which the examples learned are asked too (None: after the last). each_task: every
    task is measured right after it, without which forgetting is not known. A shuffled stream has no tasks, so it is
    measured at its end only.
    """
    schedule, classes = streams.schedule, streams.classes
    shuffled, width = schedule.order == "shuffled", schedule.task_classes
    wanted = (
        [schedule.tasks]
        if shuffled
        else sorted({*(range(1, schedule.tasks + 1) if points is None else points), schedule.tasks})
    )
    if wanted[0] < 1 or wanted[-1] > schedule.tasks:
        raise UserError(
            f"The stream has {schedule.tasks} tasks, so it cannot be measured after {wanted[0]} or {wanted[-1]}."
        )
    asked = [schedule.tasks] if learned_at is None or (learned_at and shuffled) else learned_at
    whole = streams.train.shape[1] == schedule.samples
    images = streams.train if whole else streams.train[:, : schedule.samples]
    learned = torch.full(classes.shape, torch.nan, dtype=torch.float64)
    matrix, train = [], {}
    for seen in feed(learner, streams):
        known = seen * width
        if each_task and not shuffled and not learner.card.solves:
            latest = slice(known - width, known)
            learned[:, latest] = class_accuracy(learner, streams.test, classes[:, latest], latest.start).cpu()
        if seen in wanted:
            row = torch.full_like(learned, torch.nan)
            row[:, :known] = class_accuracy(learner, streams.test, classes[:, :known]).cpu()
            matrix.append(row)
        if seen in asked:
            train[seen] = class_accuracy(learner, images, classes[:, :known]).mean(-1).cpu()
    return AccuracyMatrix(torch.stack(matrix, 1), learned, tuple(wanted), train, learner.memory(), width)


def run_copies(
    make: MakeCopies,
    settings: Sequence[Settings],
    rows: Sequence[int],
    streams: Streams,
    points: Sequence[int] | None = None,
    learned_at: Sequence[int] | None = None,
    each_task: bool = True,
) -> AccuracyMatrix:
    """Copies with these settings on the streams of these rows, as many at once as memory holds. Copies know nothing of
    each other: how they are split into groups changes nothing."""
    one = make(settings[:1], [streams.trajectories[rows[0]]])
    size = copies_at_once(one, streams.schedule.classes)
    parts = []
    for first in range(0, len(settings), size):
        part = streams.of(rows[first : first + size])
        learner = make(settings[first : first + size], part.trajectories)
        parts.append(run(learner, part, points, learned_at, each_task))
    return replace(
        parts[0],
        matrix=torch.cat([part.matrix for part in parts]),
        learned=torch.cat([part.learned for part in parts]),
        train={tasks: torch.cat([part.train[tasks] for part in parts]) for tasks in parts[0].train},
    )


def copies_at_once(one: Learner, classes: int) -> int:
    """How many copies of a learner fit into its device's budget with all they need to work."""
    needed = one.workspace * footprint(one, classes) + one.model.working(one.settings[0].inputs)
    return max(1, budget(one.device) // max(1, needed))


def footprint(learner: Learner, classes: int) -> int:
    """Bytes of the tensors of one copy that has seen so many classes."""
    rows = sum(t[:, :0].new_zeros(1, *t.shape[2:]).nbytes for t in learner.rows.values())
    return (sum(t.nbytes for t in learner.state.values()) // learner.copies) + classes * rows


def budget(device: torch.device) -> int:
    """Bytes that copies may take together."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else BUDGET["cpu"]
