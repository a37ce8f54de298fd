"""What one example costs each learner on a CPU, beside Avalanche's and river's nearest equivalents, in one run.

    pip install avalanche-lib river            # for this benchmark only; without them our own learners are timed
    python benchmarks/learners.py --out results/bench-learners.json

A head of 200 rows on 2304 features, one class a task, 15 examples each, one step on each, one pass. Every method sees
the same features in the same order and is timed over its learning alone. Slow ones stop after `--seconds`. Ours and
Avalanche are timed in both ways they can be used: a class arrives whole, or each example arrives by itself. Peers take
turns with ours, several times; the ratio is the median of these.

Rows of classes that have not come yet are all alike, and in ours one stands for them; so a second pass, when all have
come, costs more, and is timed too. Avalanche's EWC runs each example twice, the second time for its importances.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor, nn

from kcciol.engine.record import record
from kcciol.errors import UserError
from kcciol.files import require_json, write_json
from kcciol.learners import LEARNERS
from kcciol.learners.base import Learner
from kcciol.learners.model import Head


@dataclass(frozen=True)
class Options:
    out: Path = Path("results/bench-learners.json")
    """The file to write."""
    width: int = 2304
    """Features of an example."""
    classes: int = 200
    """Classes, and rows of the head."""
    samples: int = 15
    """Examples of each class."""
    seconds: float = 20.0
    """Longest time for one method."""
    rounds: int = 3
    """How often a peer and ours are timed in turn."""
    threads: int = 1
    """CPU threads."""


class Clock:
    """Counts examples and the time of their learning."""

    def __init__(self, seconds: float) -> None:
        self.limit, self.spent, self.examples = seconds, 0.0, 0

    @property
    def over(self) -> bool:
        return self.spent >= self.limit

    def run(self, work: Callable[[], None], examples: int) -> None:
        began = time.perf_counter()
        work()
        self.spent += time.perf_counter() - began
        self.examples += examples

    def result(self) -> dict[str, float]:
        return {"ms": 1000 * self.spent / self.examples, "per_second": self.examples / self.spent, "n": self.examples}


Task = tuple[Tensor, int]  # the examples of one class (samples, width), and its number


def tasks(options: Options) -> Iterator[Task]:
    generator = torch.Generator().manual_seed(0)
    for label in range(options.classes):
        centre = torch.rand(options.width, generator=generator)
        yield (centre + torch.rand(options.samples, options.width, generator=generator) - 1.2).relu(), label


# --- ours -------------------------------------------------------------------------------------------------------------


def ours(name: str, options: Options) -> dict[str, Any]:
    """What an example costs that arrives by itself, and one that arrives with its class."""
    found, learner = learned(name, options, "example")
    found |= {"bytes": sum(learner.memory().values()), "classes": learner.classes}
    found["with_its_class_ms"] = learned(name, options, "class")[0]["ms"]
    if learner.classes == options.classes:
        found["all_classes_known_ms"] = run(learner, options, "example")["ms"]
    if learner.card.solves:
        found["with_an_answer_ms"] = answered(learner, options)
    return found


def answered(learner: Learner, options: Options) -> float:
    """Milliseconds with an answer after each example, for those that put off until then what they must solve."""
    clock, x = Clock(options.seconds), next(tasks(options))[0][:1]

    def answer() -> None:
        learner.learn(x, np.array([0]))
        learner.scores(x[None])

    for _ in range(20):
        clock.run(answer, 1)
        if clock.over:
            break
    return clock.result()["ms"]


def learned(name: str, options: Options, arrive: str, examples: float = math.inf) -> tuple[dict[str, Any], Learner]:
    """arrive: a class at a time ("class"), or an example at a time ("example")."""
    method = LEARNERS[name]
    known = {"outputs": options.classes} if "outputs" in method.settings_type.__dataclass_fields__ else {}
    learner = method(Head(options.width), method.settings_type(**known))
    learner.learn(next(tasks(options))[0][:1], np.array([0]))  # set up, not counted
    return run(learner, options, arrive, examples), learner


def run(learner: Learner, options: Options, arrive: str, examples: float = math.inf) -> dict[str, float]:
    """One pass, or the first so many examples of it."""
    clock = Clock(options.seconds)
    for x, label in tasks(options):

        def work(x: Tensor = x, label: int = label) -> None:
            if arrive == "class":
                learner.learn_class(x[None], np.array([label]))
            else:
                for i in range(len(x)):
                    learner.learn(x[i : i + 1], np.array([label]))
            learner.end_task()

        clock.run(work, len(x))
        if clock.over or clock.examples >= examples:
            break
    return clock.result()


# --- Avalanche --------------------------------------------------------------------------------------------------------


def avalanche_strategies(options: Options) -> dict[str, Callable[[], Any]]:
    """Strategies by the name of ours that does the same; metrics and logging are off."""
    from avalanche.training import supervised
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
    from avalanche.training.storage_policy import ReservoirSamplingBuffer

    quiet = EvaluationPlugin(loggers=[])

    def sgd(kind: Any, **more: Any) -> Any:
        net = nn.Linear(options.width, options.classes)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        words = {"train_mb_size": 1, "train_epochs": 1, "evaluator": quiet, **more}
        return kind(model=net, optimizer=optimizer, criterion=nn.CrossEntropyLoss(), **words)

    def replay() -> Any:
        buffer = ReservoirSamplingBuffer(max_size=200)
        plugin = ReplayPlugin(mem_size=200, batch_size=1, batch_size_mem=10, storage_policy=buffer)
        return sgd(supervised.Naive, plugins=[plugin])

    def slda() -> Any:
        sizes = {"input_size": options.width, "num_classes": options.classes, "train_mb_size": 1, "train_epochs": 1}
        return supervised.StreamingLDA(
            slda_model=nn.Identity(), criterion=nn.CrossEntropyLoss(), evaluator=quiet, **sizes
        )

    return {
        "online": lambda: sgd(supervised.Naive),
        "ewc": lambda: sgd(supervised.EWC, ewc_lambda=100.0, mode="online", decay_factor=1.0),
        "er": replay,
        "slda": slda,
    }


def avalanche(name: str, options: Options, arrive: str) -> dict[str, Any]:
    """arrive: a class at a time ("class", 15 minibatches of one example), or an example at a time ("example")."""
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.scenarios.online import split_online_stream
    from avalanche.benchmarks.utils import as_classification_dataset
    from torch.utils.data import TensorDataset

    clock = Clock(options.seconds)
    sets = []
    for x, label in tasks(options):
        data = TensorDataset(x, torch.full((len(x),), label))
        data.targets = torch.full((len(x),), label)  # type: ignore[attr-defined]
        sets.append(as_classification_dataset(data))
    stream: Any = benchmark_from_datasets(train=sets, test=sets[:1]).train_stream
    if arrive == "example":
        stream = split_online_stream(stream, experience_size=1, shuffle=False)
    strategy = avalanche_strategies(options)[name]()
    for experience in stream:
        examples = 1 if arrive == "example" else options.samples
        clock.run(lambda experience=experience: strategy.train(experience, shuffle=False), examples)  # type: ignore[misc]
        if clock.over:
            break
    return clock.result()


# --- river ------------------------------------------------------------------------------------------------------------


def river(name: str, options: Options, arrive: str) -> dict[str, Any]:
    from river import linear_model, naive_bayes

    model: Any = {"online": linear_model.SoftmaxRegression, "gaussian": naive_bayes.GaussianNB}[name]()
    clock = Clock(options.seconds)
    for x, label in tasks(options):
        rows = [dict(enumerate(row)) for row in x.tolist()]

        def work(rows: list[dict[int, float]] = rows, label: int = label) -> None:
            for row in rows:
                model.learn_one(row, label)

        clock.run(work, len(rows))
        if clock.over:
            break
    return clock.result()


def in_turn(
    name: str, measure: Callable[[str, Options, str], dict[str, Any]], options: Options, arrive: str, answers: bool
) -> dict[str, Any]:
    """A peer and ours by turns; medians. answers: a step of the peer's streaming LDA answers too, and so must ours."""
    theirs, mine = [], []
    for _ in range(options.rounds):
        with contextlib.redirect_stderr(io.StringIO()):
            peer = measure(name, options, arrive)
        theirs.append(peer["ms"])
        found, learner = learned(name, options, arrive, peer["n"])
        mine.append(answered(learner, options) if name == "slda" and answers else found["ms"])
    times = [a / b for a, b in zip(theirs, mine, strict=True)]
    return {
        "ms": statistics.median(theirs),
        "n": int(peer["n"]),
        "ours_ms": statistics.median(mine),
        "times_slower_than_ours": statistics.median(times),
        "by_round": times,
    }


ARTICLE = {"class": "a", "example": "an"}


def main(options: Options) -> None:
    require_json(options.out)
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    result: dict[str, Any] = {"ours": {}}
    for name in LEARNERS:
        try:
            result["ours"][name] = ours(name, options)
        except UserError as refused:
            print(f"{name}: left out ({refused})", flush=True)
            continue
        print(f"{name}: {result['ours'][name]['ms']:.3f} ms an example", flush=True)
    peers: list[tuple[str, str, Callable[[str, Options, str], dict[str, Any]], str, tuple[str, ...]]] = [
        ("avalanche", "avalanche-lib", avalanche, "class", ("online", "ewc", "er", "slda")),
        ("avalanche", "avalanche-lib", avalanche, "example", ("online", "er")),
        ("river", "river", river, "example", ("online", "gaussian")),
    ]
    for peer, package, measure, arrive, names in peers:
        if importlib.util.find_spec(peer) is None:
            print(f"{peer} is not installed: left out", flush=True)
            continue
        part = result.setdefault(
            f"{peer}, {ARTICLE[arrive]} {arrive} at a time", {"version": importlib.metadata.version(package)}
        )
        for name in names:
            part[name] = in_turn(name, measure, options, arrive, answers=peer == "avalanche")
            print(
                f"{peer}, {ARTICLE[arrive]} {arrive} at a time: {name} {part[name]['ms']:.2f} ms, "
                f"{part[name]['times_slower_than_ours']:.1f} times ours",
                flush=True,
            )
    sizes = {n: getattr(options, n) for n in ("width", "classes", "samples", "seconds", "rounds", "threads")}
    write_json(options.out, {**result, "config": sizes, "seed": 0, "record": record()})
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
