"""One choice of settings for every learner: those of a grid that do best on trajectories which are not reported.

Only the rule "leaky" looks at held-out images of novel classes.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.data.examples import Examples
from kcciol.errors import UserError
from kcciol.evaluation.selection import Selection, never_held_out, redrawn
from kcciol.evaluation.stream import Order, Purpose, Schedule, draw, draw_filled
from kcciol.evaluation.trace import MakeCopies, Streams, run_copies
from kcciol.learners import learner_type
from kcciol.learners.base import Settings
from kcciol.learners.grid import Grid

T = TypeVar("T")
MARGIN = 2  # options that must be tried on either side of the best
DIGITS = 9  # scores that agree so far are equal


def run_grid(config: EvaluationConfig) -> Grid:
    """What is tried for the head of Algorithm 4, whose settings are the run's own. Rates fall, as in other grids; with
    outputs = 0, W has a row for each class of the trajectory."""
    rates = tuple(sorted(set(config.rates), reverse=True))
    return {"rate": rates, "optimizer": (config.optimizer,), "outputs": (config.outputs,), "reserve": (0,)}


def candidates(name: str, fixed: Mapping[str, Any], grid: Grid) -> list[Settings]:
    """Every combination of a grid, but for settings that are fixed."""
    kind = learner_type(name).settings_type
    known = {f.name for f in dataclasses.fields(kind)}
    if unknown := sorted(set(fixed) - known):
        raise UserError(f"{unknown[0]} is not a setting of {name}; it has: {', '.join(sorted(known)) or 'none'}.")
    tried = {k: v for k, v in grid.items() if k not in fixed}
    return [
        kind(**dict(fixed), **dict(zip(tried, values, strict=True))) for values in itertools.product(*tried.values())
    ]


@dataclass(frozen=True)
class Rule:
    """What settings are chosen on."""

    images: str
    """In words; of the rule for base classes whoever gives them says it."""
    of_base: bool = False
    """Trajectories of base classes, not of novel ones."""
    held_out: bool = False
    """Held-out images are asked."""
    part: Callable[[int], int] = lambda samples: samples
    """Else: how many of a class's images to learn from are learned; the others are asked, or all, where there are
    none."""


def holdout_part(samples: int) -> int:
    """How many of a class's training images the rule holdout learns: four fifths, rounded up, but leaving one.

    >>> holdout_part(15), holdout_part(4), holdout_part(2)
    (12, 3, 1)
    """
    if samples < 2:
        raise UserError(
            f"evaluation.train_samples is {samples}, but the rule 'holdout' needs 2 or more: choose the rule 'base'."
        )
    return min(-(-4 * samples // 5), samples - 1)


RULES = {
    "stream": Rule("learned images"),
    "holdout": Rule("held-back training images", part=holdout_part),
    "leaky": Rule("held-out images", held_out=True),
    "base": Rule("", of_base=True, held_out=True),
}


@dataclass(frozen=True)
class Choice:
    """Which settings were chosen, by which rule, and out of which."""

    rule: str
    settings: Settings
    options: Sequence[Settings]  # the whole grid
    scores: Mapping[Settings, float]  # of those tried: accuracy in percent, mean over the search trajectories
    trajectories: int = 0
    classes: int = 0  # in each of them
    samples: int = 0  # images of each class that were learned there
    seconds: float = dataclasses.field(default=0.0, compare=False)

    @property
    def at_edge(self) -> list[str]:
        """The settings whose best value is the lowest or highest of three or more: a better one may lie outside."""
        found = []
        for name, value in dataclasses.asdict(self.settings).items():
            grid = {getattr(s, name) for s in self.options}
            if self.scores and len(grid) > 2 and isinstance(value, float) and value in (min(grid), max(grid)):
                found.append(name)
        return found

    @property
    def rate(self) -> float:
        """The rate chosen, of learners that have one."""
        return float(getattr(self.settings, "rate"))  # noqa: B009

    def to_dict(self) -> dict[str, Any]:
        size = {"classes": self.classes, "trajectories": self.trajectories, "samples": self.samples}
        return {
            "rule": self.rule if self.scores else "nothing to choose",
            "settings": dataclasses.asdict(self.settings),
            "at_edge": self.at_edge,
            **size,
            "seconds": self.seconds,
            "scores": [{"settings": dataclasses.asdict(s), "score": score} for s, score in self.scores.items()],
        }


def choose(
    options: Sequence[Settings],
    make: MakeCopies,
    sources: Sources,
    config: EvaluationConfig,
    order: Order,
    classes: int,
    near: float | None = None,
) -> Choice:
    """The best of the options on trajectories of so many classes, by the config's rule; of equal ones the last, as
    rates fall along a grid. With one option only there is nothing to choose, and nothing is run.

    near is a rate that is good for other trajectories: the search begins around it (see `search_around`).
    """
    if len(options) == 1:
        return Choice(config.rule, options[0], options, {})
    began, count = time.perf_counter(), config.search_trajectories
    streams, scored = sources.search(config, order, classes)

    def score(tried: Sequence[Settings]) -> list[float]:
        found: dict[Settings, float] = {}
        for _, group in itertools.groupby(sorted(tried, key=_kind), _kind):
            alike = list(group)
            copies = [option for option in alike for _ in range(count)]
            rows = list(range(count)) * len(alike)
            final = run_copies(make, copies, rows, streams, points=[], learned_at=[], each_task=False).final
            right = final.view(len(alike), count, classes) * scored
            means = (right.sum(-1) / scored.sum(-1)).mean(-1)
            found |= dict(zip(alike, (round(mean, DIGITS) for mean in means.tolist()), strict=True))
        return [found[option] for option in tried]

    begin = None if near is None else _of_rate(options, near)
    scores = search_around(options, score, begin)
    best = max((option for option in options if option in scores), key=lambda o: (scores[o], options.index(o)))
    seconds = time.perf_counter() - began
    return Choice(config.rule, best, options, scores, count, classes, streams.schedule.samples, seconds)


def _of_rate(options: Sequence[Settings], rate: float) -> Settings:
    found = [option for option in options if getattr(option, "rate", None) == rate]
    if len(found) != 1:
        raise UserError(f"The rate to begin with, {rate:g}, is not one of the grid.")
    return found[0]


def _kind(settings: Settings) -> str:
    """What copies that run together must share: all settings but the numbers with a fraction."""
    return repr([(k, v) for k, v in dataclasses.asdict(settings).items() if type(v) is not float])


def search_around(options: Sequence[T], score: Callable[[Sequence[T]], list[float]], near: T | None) -> dict[T, float]:
    """The scores of options that stand in a row: of all, or of those around `near`, until on either side of the best
    (of equal ones: of all of them) two worse ones have been tried, or the row ends.

    >>> search_around([1, 2, 3, 4, 5, 6, 7, 8], lambda tried: [-abs(option - 5) for option in tried], near=4)
    {2: -3, 3: -2, 4: -1, 5: 0, 6: -1, 7: -2}
    """
    if near is None:
        return dict(zip(options, score(options), strict=True))
    at = options.index(near)
    low, high = max(at - MARGIN, 0), min(at + MARGIN + 1, len(options))
    scores = score(options[low:high])
    while True:
        best = [low + i for i, value in enumerate(scores) if value == max(scores)]
        first, last = max(best[0] - MARGIN, 0), min(best[-1] + MARGIN + 1, len(options))
        if first < low:
            scores, low = score(options[first:low]) + scores, first
        elif last > high:
            scores, high = scores + score(options[high:last]), last
        else:
            return dict(zip(options[low:high], scores, strict=True))


@dataclass(frozen=True)
class Sources:
    """The classes that trajectories are drawn from."""

    novel: Examples
    base: Examples | None = None  # to choose settings on
    filler: Examples | None = None  # further base classes, which fill up longer trajectories by the rule "base"

    def search_length(self, config: EvaluationConfig, classes: int) -> int:
        """How many classes the rule's trajectories hold; refuses what the rule cannot do."""
        rule = RULES[config.rule]
        rule.part(config.train_samples)
        wanted = min(classes, config.search_classes or classes)
        if rule.of_base:
            if self.base is None:
                raise UserError(
                    "evaluation.rule is 'base', but no base classes were given: give them, or choose 'holdout'."
                )
            filler = 0 if config.search_classes or self.filler is None else len(self.filler)
            known = min(wanted, len(self.base))
            self.base.require("base", known, config.train_samples, config.test_samples)
            wanted = min(wanted, len(self.base) + filler)  # fewer than asked for where there are fewer
        whole = wanted // config.task_classes * config.task_classes
        if not whole:
            raise UserError(
                f"The settings are to be chosen on {wanted} classes, which is less than a task of "
                f"{config.task_classes}: ask for a higher evaluation.search_classes, or for another rule."
            )
        return whole

    def search(self, config: EvaluationConfig, order: Order, classes: int) -> tuple[Streams, Tensor]:
        """The rule's streams, and which of their classes are scored, (R, n) ones and zeros."""
        examples, scored, count = self.novel, len(self.novel), config.search_trajectories
        rule = RULES[config.rule]
        if rule.of_base and self.base is not None:
            examples, scored = self.base.followed_by(self.filler if classes > len(self.base) else None), len(self.base)
        if classes > scored:
            fillers = classes - scored
            drawn = draw_filled(config.seed, "search", scored, len(examples) - scored, fillers, count)
        else:
            drawn = draw(config.seed, "search", scored, classes, count)
        ids = drawn.to(examples.train.device)
        if rule.held_out:
            learned, asked, ids = images_of(examples, ids, config, "search")
        else:
            shown, ids = self._images_to_learn(ids, config)
            samples = shown.shape[1]
            part = rule.part(samples)
            learned = shown.columns(0, part)
            asked = shown.columns(part, samples) if part < samples else shown
        schedule = Schedule(classes, learned.shape[1], config.task_classes, order, config.seed)
        return Streams(schedule, ids, range(count), learned, asked), (drawn < scored).double()

    def _images_to_learn(self, streams: Tensor, config: EvaluationConfig) -> tuple[Selection, Tensor]:
        """Images of novel classes that no reported trajectory holds out, and the streams in terms of these."""
        wanted = config.train_samples
        if not config.redraw:
            return Selection.first(self.novel.train, wanted), streams
        images = torch.cat([self.novel.train, self.novel.test], 1)
        sizes = wanted, config.test_samples
        free = never_held_out(len(images), images.shape[1], sizes, config.trajectories, config.seed)
        few = int(free.sum(1).min())
        if few < (least := min(wanted, 2)):
            raise UserError(
                f"evaluation.redraw: a novel class has {few} images that no reported trajectory holds out, but the "
                f"rule {config.rule!r} needs {least}: choose the rule 'base', fewer trajectories, or redraw = false."
            )
        counts = (min(few, wanted), 0)
        found, _, ids = redrawn(images, streams, range(len(streams)), counts, config.seed, "search", free)
        return found, ids


def images_of(
    examples: Examples, streams: Tensor, config: EvaluationConfig, purpose: Purpose
) -> tuple[Selection, Selection, Tensor]:
    """What trajectories (R, n) learn and are asked of their classes, and the trajectories in terms of these."""
    sizes = config.train_samples, config.test_samples
    if config.redraw:
        images = torch.cat([examples.train, examples.test], 1)
        return redrawn(images, streams, range(len(streams)), sizes, config.seed, purpose)
    return Selection.first(examples.train, sizes[0]), Selection.first(examples.test, sizes[1]), streams
