"""One rule for the settings of all learners: the best on streams of held-out base classes, fixed for all lengths."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.evaluation.continual import Course, Plan, run, streams_of
from kcciol.evaluation.learning import budget
from kcciol.evaluation.stream import Purpose, draw
from kcciol.learners import learner_type
from kcciol.learners.learner import Learner, Settings
from kcciol.learners.model import Model

RATES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
# What is tried: half decades of the rate, the reserve, and one or two settings of the method's own.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "online": {"rate": RATES, "reserve": (0, 100)},
    "approx-iid": {"rate": RATES, "reserve": (0, 100)},
    "ewc": {"rate": RATES, "strength": (1e-3, 0.1, 10.0, 1e3, 1e5), "reserve": (0, 100)},
    "er": {"rate": RATES, "reserve": (0, 100)},
    "mer": {"rate": RATES[1:], "across": (0.03, 0.1, 0.3, 1.0), "reserve": (0, 100)},
    "der": {"rate": RATES, "alpha": (1e-3, 0.01, 0.1, 1.0), "weighting": ("joint", "additive"), "reserve": (0, 100)},
    "der++": {"rate": RATES, "alpha": (0.01, 0.1), "beta": (1.0, 10.0), "reserve": (0, 100)},
    "hal": {"rate": RATES[1:], "strength": (1e-3, 0.1, 10.0), "reserve": (0, 100)},
    "gss": {"rate": RATES[1:], "reserve": (0, 100)},
    "gss-iqp": {"rate": RATES[1:], "reserve": (0, 100)},
    "merlin": {"rate": (0.1, 0.01), "tune_rate": (0.01, 0.001)},
    "podnet": {"rate": RATES[2:], "margin": (0.0, 0.6)},
    "ncm": {},
    "gaussian": {},
    "slda": {"shrinkage": (0.001, 0.01, 0.1, 0.5, 1.0)},
    "ridge": {"penalty": (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)},
}


# The whole network costs a thousand times a head, so fewer combinations are tried there.
FEW = {"rate": RATES[2:11], "reserve": (100,)}


def grid_of(name: str, trains: str) -> dict[str, Sequence[Any]]:
    """What is tried for a head ("head") or the whole network ("all")."""
    grid = GRIDS[name]
    return grid if trains == "head" else {k: FEW.get(k, _middle(v)) for k, v in grid.items()}


def _middle(values: Sequence[Any]) -> Sequence[Any]:
    """Two of them.

    >>> _middle((1, 2)), _middle((1, 2, 3)), _middle((1, 2, 3, 4))
    ((1, 2), (1, 2), (2, 3))
    """
    start = max(0, len(values) // 2 - 1)
    return values[start : start + 2]


@dataclass(frozen=True)
class Examples:
    """What classes show: (C, S, ...) to learn from and (C, m, ...) held out, features or images, on one device."""

    train: Tensor
    test: Tensor

    def __len__(self) -> int:
        return len(self.train)


def candidates(name: str, fixed: Mapping[str, Any], grid: Mapping[str, Sequence[Any]] | None = None) -> list[Settings]:
    """Every combination of the method's grid, but for settings that are fixed."""
    kind = learner_type(name).settings_type
    known = {f.name for f in dataclasses.fields(kind)}
    if unknown := sorted(set(fixed) - known):
        raise UserError(f"{unknown[0]} is not a setting of {name}; it has: {', '.join(sorted(known)) or 'none'}.")
    tried = {k: v for k, v in (GRIDS[name] if grid is None else grid).items() if k not in fixed}
    return [
        kind(**dict(fixed), **dict(zip(tried, values, strict=True))) for values in itertools.product(*tried.values())
    ]


@dataclass(frozen=True)
class Choice:
    """Which settings were chosen, and what of."""

    settings: Settings
    scores: list[tuple[Settings, float]]  # accuracy in percent on held-out images of base classes
    classes: int
    trajectories: int
    seconds: float

    def at_edge(self) -> list[str]:
        """The settings whose best value is the smallest or largest of three or more: a better one may lie outside."""
        found = []
        for name, value in dataclasses.asdict(self.settings).items():
            tried = {getattr(s, name) for s, _ in self.scores}
            if len(tried) > 2 and isinstance(value, float) and value in (min(tried), max(tried)):
                found.append(name)
        return found

    def to_dict(self) -> dict[str, Any]:
        scores = [{"settings": dataclasses.asdict(s), "score": value} for s, value in self.scores]
        size = {"classes": self.classes, "trajectories": self.trajectories, "seconds": self.seconds}
        return {
            "rule": "best at the end of streams of base classes" if self.scores else "nothing to choose",
            "settings": dataclasses.asdict(self.settings),
            "at_edge": self.at_edge(),
            **size,
            "scores": scores,
        }


def choose(
    name: str, model: Model, options: Sequence[Settings], base: Examples, plan: Plan, trajectories: int = 5
) -> Choice:
    """The best of the options on streams of base classes; of equal ones the last, as rates fall along a grid. With one
    option nothing is run."""
    if len(options) == 1:
        return Choice(options[0], [], 0, 0, 0.0)
    began = time.perf_counter()
    if plan.classes > len(base):  # as many as there are
        plan = dataclasses.replace(plan, classes=len(base) // plan.task_classes * plan.task_classes)
    scores: dict[int, float] = {}
    for _, group in itertools.groupby(sorted(range(len(options)), key=lambda i: _kind(options[i])), _kind_of(options)):
        members = list(group)
        copies = [options[i] for i in members for _ in range(trajectories)]
        course = run_copies(name, model, copies, list(range(trajectories)) * len(members), base, plan, "search", [], [])
        found = course.accuracy.view(len(members), trajectories).mean(1).tolist()
        scores |= dict(zip(members, found, strict=True))
    best = max(range(len(options)), key=lambda i: (scores[i], i))
    taken = time.perf_counter() - began
    return Choice(
        options[best], [(options[i], scores[i]) for i in range(len(options))], plan.classes, trajectories, taken
    )


def _kind(settings: Settings) -> str:
    """What copies that run together must share: all settings but the numbers with a fraction."""
    return repr([(k, v) for k, v in dataclasses.asdict(settings).items() if type(v) is not float])


def _kind_of(options: Sequence[Settings]) -> Any:
    return lambda i: _kind(options[i])


def run_copies(
    name: str,
    model: Model,
    settings: Sequence[Settings],
    trajectories: Sequence[int],
    examples: Examples,
    plan: Plan,
    purpose: Purpose,
    points: Sequence[int],
    shown: Sequence[int] | None = None,
) -> Course:
    """Copies with these settings on these trajectories, as many at once as memory holds; measured after `points` tasks
    and at the end, on the examples learned after `shown` tasks (None: at the end)."""
    if plan.classes > len(examples):
        raise UserError(f"The stream has {plan.classes} classes, but there are {len(examples)}: ask for fewer.")
    drawn = draw(plan.seed, purpose, len(examples), plan.classes, max(trajectories) + 1)
    courses = []
    for part in _parts(name, model, settings, plan.classes, examples.train.device):
        mine = list(trajectories[part])
        keys = [plan.seed * 2**20 + number for number in mine]
        learner = learner_type(name)(model, list(settings[part]), keys, examples.train.device)
        classes = drawn[mine].to(examples.train.device)
        streams = streams_of(plan, classes, mine, examples.train, examples.test, purpose)
        courses.append(run(learner, streams, points or [plan.tasks], shown))
    return Course(
        torch.cat([c.matrix for c in courses]),
        torch.cat([c.learned for c in courses]),
        courses[0].points,
        torch.cat([c.by_class for c in courses]),
        {tasks: torch.cat([c.train[tasks] for c in courses]) for tasks in courses[0].train},
        courses[0].memory,
    )


def _parts(
    name: str, model: Model, settings: Sequence[Settings], classes: int, device: torch.device
) -> Iterator[slice]:
    """Slices of the copies that fit into the device's budget with all they need to work."""
    one = learner_type(name)(model, settings[0], (0,))
    replayed = 2 * int(getattr(settings[0], "replay", 0))  # DER++ takes two draws
    size = max(1, budget(device) // max(1, 4 * footprint(one, classes) + model.working(1 + replayed)))
    for first in range(0, len(settings), size):
        yield slice(first, min(first + size, len(settings)))


def footprint(learner: Learner, classes: int) -> int:
    """Bytes of the tensors of one copy that has seen so many classes."""
    rows = sum(t[:, :0].new_zeros(1, *t.shape[2:]).nbytes for t in learner.rows.values())
    return (sum(t.nbytes for t in learner.state.values()) // learner.copies) + classes * rows
