"""Algorithm 4, with any learner: many trajectories of each length, and what is measured on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.data.examples import Examples
from kcciol.errors import UserError, require_kind
from kcciol.evaluation.choose import RULES, Choice, Sources, candidates, choose, images_of, run_grid
from kcciol.evaluation.metrics import Summary, curve_points, summarize
from kcciol.evaluation.start import Start
from kcciol.evaluation.stream import Order, Purpose, Schedule, draw
from kcciol.evaluation.trace import AccuracyMatrix, MakeCopies, Streams, run_copies
from kcciol.learners import learner_type
from kcciol.learners.base import Learner, Settings
from kcciol.learners.head import StartedHead
from kcciol.learners.model import Head, Model

Trained = Literal["head", "all"]
Which = Literal["novel", "validation"]  # classes
HEAD = "online"  # the learner that is the head of Algorithm 4: by default with the settings of a run's `evaluation`


@dataclass(frozen=True)
class Scenario:
    """What learners are measured on: classes, the model that learns them, and where it begins."""

    novel: Examples
    model: Model
    base: Examples | None = None
    """Base classes, to choose settings on and to fit a prior to."""
    filler: Examples | None = None
    """Further base classes, which fill up longer trajectories by the rule "base", unscored."""
    W: Mapping[str, Tensor] | None = None
    """W as meta-learned, for the head of Algorithm 4."""
    trains: Trained = "head"
    split: Which = "novel"
    chosen_among: str = "base classes"
    image_bytes: int = 0
    """Of one image, which budgets are counted in."""

    @property
    def sources(self) -> Sources:
        return Sources(self.novel, self.base, self.filler)

    def chosen_on(self, rule: str) -> str:
        """What settings are chosen on, in words."""
        found = RULES[rule]
        return self.chosen_among if found.of_base else f"{found.images} of {self.split} classes"


@dataclass(frozen=True)
class LengthResult:
    """What was measured on trajectories of one length. Accuracies are in percent, forgetting in percentage points."""

    test: Summary
    train: Summary
    learned: Summary | None  # held-out accuracy of each class right after it was learned; None where not measured
    forgetting: Summary | None
    forgetting_by_class: list[Summary]  # for each position in the trajectory (of tasks: each task)
    by_trajectory: list[float]  # test, for each trajectory
    curve: list[tuple[int, Summary]]  # classes seen, held-out accuracy over all of them
    choice: Choice
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; those of `test` stand at the top too."""
        found: dict[str, Any] = {**self.test.to_dict(), "test": self.test.to_dict(), "train": self.train.to_dict()}
        if self.learned is not None and self.forgetting is not None:
            found["learned"] = self.learned.to_dict()
            found["forgetting"] = {
                **self.forgetting.to_dict(),
                "by_class": [s.mean for s in self.forgetting_by_class],
                "by_class_ci95": [s.ci95 for s in self.forgetting_by_class],
            }
        return {
            **found,
            "choice": self.choice.to_dict(),
            "by_trajectory": self.by_trajectory,
            "curve": [{"classes_seen": seen, "mean": s.mean, "ci95": s.ci95} for seen, s in self.curve],
            "seconds": self.seconds,
        }

    def describe(self, n: int) -> str:
        """One line for people."""
        choice = self.choice
        several = [name for name in vars(choice.settings) if len({getattr(o, name) for o in choice.options}) > 1]
        values = ", ".join(f"{name} {getattr(choice.settings, name)}" for name in several)
        edge = f", {' and '.join(choice.at_edge)} at the edge of the grid" if choice.at_edge else ""
        chosen = f" ({values} by {choice.rule}{edge})" if values else ""
        few = "" if self.test.images is None else f" (interval of {self.test.images} images)"
        return (
            f"{n} classes: {self.test} % of held-out images{few}, {self.train.mean:.1f} % of learned images{chosen}, "
            f"{self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class Evaluation:
    """The result for each number of classes."""

    classes: dict[int, LengthResult]
    longest: AccuracyMatrix = field(repr=False)
    summary: dict[str, Summary] = field(repr=False)  # of the longest trajectories

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        found: dict[str, Any] = {
            "classes": {str(n): result.to_dict() for n, result in self.classes.items()},
            "images": "held-out images are 'test', learned images are 'train'",
            "summary": {name: value.to_dict() for name, value in self.summary.items()},
            "choice": self.classes[max(self.classes)].choice.to_dict(),
            "bytes": dict(self.longest.memory),
        }
        if self.longest.knows_forgetting:
            found["forgetting_by_task"] = self.longest.forgetting_by_task().mean(0).tolist()
        return found


def evaluate(
    novel: Examples,
    W: Mapping[str, Tensor],
    config: EvaluationConfig,
    base: Examples | None = None,
    progress: Callable[[str], None] | None = None,
    more: Examples | None = None,
    near: float | None = None,
) -> Evaluation:
    """Learn novel classes online and measure, for each number of classes in the config (Algorithm 4).

    W is as meta-learned: weight (outputs, d) and bias (outputs,); with a hidden layer of h units, hidden.weight (h, d)
    and hidden.bias (h,) too, and weight is (outputs, h). base is needed by the rule "base" only; `more` are
    base classes that fill up its longer trajectories. progress is given a line for each number of classes. near is a
    rate to begin each search with (see `search_around`); without it every rate is tried.
    """
    require_kind(config, EvaluationConfig, "config", "config.evaluation")
    scenario = Scenario(novel, Head(novel.width, novel.train.dtype), base, more, W)
    options = candidates(HEAD, {}, run_grid(config))
    return evaluate_learner(scenario, learner_type(HEAD), config, options, progress, near)


def choose_settings(scenario: Scenario, config: EvaluationConfig, classes: int, near: float | None = None) -> Choice:
    """The settings of the head of Algorithm 4 for trajectories of so many classes, by the config's rule."""
    options, protocol = candidates(HEAD, {}, run_grid(config)), Protocol(scenario, learner_type(HEAD), config)
    return protocol.choose(options, scenario.sources.search_length(config, classes), near)


def evaluate_learner(
    scenario: Scenario,
    method: type[Learner],
    config: EvaluationConfig,
    options: Sequence[Settings],
    progress: Callable[[str], None] | None = None,
    near: float | None = None,
    order: Order | None = None,
) -> Evaluation:
    """The same with any learner, whose settings are chosen out of the options. order: another one than the config's."""
    protocol = Protocol(scenario, method, config, order or config.order)
    for n in config.classes:  # all mistakes at once, before hours of work
        scenario.novel.require(scenario.split, n, config.train_samples, config.test_samples)
        protocol.start(n, "report", check=True)
        scenario.sources.search_length(config, n)
    results: dict[int, LengthResult] = {}
    choices: dict[int, Choice] = {}  # by the classes they were made on: base classes may be fewer than asked for
    longest = max(config.classes)
    with torch.no_grad():
        for lengths in protocol.groups():
            began, n = time.perf_counter(), max(lengths)
            search = scenario.sources.search_length(config, n if config.lengths == "apart" else longest)
            if search not in choices:
                choices[search] = protocol.choose(options, search, near)
            streams, trace = protocol.report(n, lengths, choices[search].settings)
            if n == longest:
                matrix, whole = trace, streams
            for k in lengths:
                result = protocol.result(k, streams, trace, choices[search], time.perf_counter() - began)
                results[k] = result
                if progress is not None:
                    progress(result.describe(k))
    summary = protocol.summary(results[longest], whole, matrix)
    return Evaluation({n: results[n] for n in config.classes}, matrix, summary)


@dataclass(frozen=True)
class Protocol:
    """How a learner is put through the trajectories of a scenario."""

    scenario: Scenario
    method: type[Learner]
    config: EvaluationConfig
    order: Order = "class"

    def groups(self) -> list[list[int]]:
        """Lengths that are measured on the same trajectories. A shuffled stream has no prefixes."""
        if self.config.lengths == "apart" or self.order == "shuffled":
            return [[n] for n in self.config.classes]
        return [sorted(self.config.classes)]

    def start(self, classes: int, purpose: Purpose, check: bool = False) -> Start | None:
        """Where W begins, if the learner is the head of Algorithm 4."""
        if self.scenario.W is None:
            return None
        start = Start(self.scenario.W, self.config, classes, purpose, self.scenario.model.width)
        if check:
            start.check()
            if self.order != "class" and not start.from_zero:
                raise UserError(
                    f"With evaluation.order = {self.order!r} the head is one matrix that starts from zero: evaluation."
                    "start must be 'zero', and W without a hidden layer."
                )
        return start

    def make(self, classes: int, purpose: Purpose) -> MakeCopies:
        """What makes copies of the learner for trajectories of so many classes."""
        scenario, start = self.scenario, self.start(classes, purpose)
        device = scenario.novel.train.device

        def copies(settings: Sequence[Settings], trajectories: Sequence[int]) -> Learner:
            keys = [(self.config.seed * 2**20 + number) % 2**63 for number in trajectories]
            if start is not None:
                settings = [replace(one, outputs=start.outputs) for one in settings]  # type: ignore[call-arg]
            model = scenario.model
            if start is not None and not start.from_zero:
                model = StartedHead(model.width, start.layers(torch.tensor(trajectories), scenario.novel.train))
            alike = self.order == "class"  # all copies meet the same label at the same time
            kind = self.method.in_step(model, settings[0], classes) if alike else self.method
            return kind(model, settings, keys, device)

        return copies

    def choose(self, options: Sequence[Settings], classes: int, near: float | None = None) -> Choice:
        """The best of the options on search trajectories of so many classes."""
        make = self.make(classes, "search")
        return choose(options, make, self.scenario.sources, self.config, self.order, classes, near)

    def report(self, n: int, lengths: Sequence[int], settings: Settings) -> tuple[Streams, AccuracyMatrix]:
        """The trajectories that are reported, all of n classes, measured after each of the lengths, too."""
        config, novel = self.config, self.scenario.novel
        count, device = config.trajectories, novel.train.device
        drawn = draw(config.seed, "report", len(novel), n, count).to(device)  # Algorithm 4, line 2
        train, test, ids = images_of(novel, drawn, config, "report")  # line 3
        schedule = Schedule(n, config.train_samples, config.task_classes, self.order, config.seed)
        streams = Streams(schedule, ids, range(count), train, test)
        asked = [k // config.task_classes for k in lengths]
        points = {*asked} if self.method.card.solves else {*asked, *curve_points(schedule.tasks, config.curve_points)}
        make = self.make(n, "report")
        return streams, run_copies(make, [settings] * count, range(count), streams, sorted(points), asked)

    def result(self, n: int, streams: Streams, trace: AccuracyMatrix, choice: Choice, seconds: float) -> LengthResult:
        """What trajectories say when they end after n classes."""
        width = self.config.task_classes
        trace, asked = trace.until(n // width), streams.asked(n)
        knows = trace.knows_forgetting
        start = self.start(n, "report")
        if start is not None:
            choice = replace(choice, settings=replace(choice.settings, outputs=start.outputs))  # type: ignore[call-arg]
        return LengthResult(
            test=summarize(trace.accuracy, asked),
            train=summarize(trace.train[n // width], streams.asked(n, train=True)),
            learned=summarize(trace.learned.mean(-1), asked) if knows else None,
            forgetting=summarize(trace.forgetting()) if knows else None,
            forgetting_by_class=[summarize(lost) for lost in trace.forgetting_by_task().unbind(1)] if knows else [],
            by_trajectory=trace.accuracy.tolist(),
            curve=[(p * width, summarize(trace.at(p), streams.asked(p * width))) for p in trace.points],
            choice=choice,
            seconds=seconds,
        )

    def summary(self, result: LengthResult, streams: Streams, trace: AccuracyMatrix) -> dict[str, Summary]:
        """The numbers of the longest trajectories."""
        found = {"test": result.test, "train": result.train}
        found["anytime"] = summarize(trace.anytime(), streams.asked(streams.schedule.classes))
        if result.learned is not None and result.forgetting is not None:
            found |= {"forgetting": result.forgetting, "learned": result.learned}
            found["backward_transfer"] = summarize(trace.backward_transfer())
        return found
