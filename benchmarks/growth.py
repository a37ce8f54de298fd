"""How the time of `learn_one` and `predict_one` grows with the number of classes, beside one matrix-vector product.

    python benchmarks/growth.py --out results/bench-growth.json

One stream, one thread. Classes are learned, then examples of known classes are learned one by one, each followed by two
predictions: the first has to take in what was learned, the later one does not. By turns with these a float32 product
of a matrix (classes, width) and a vector is timed, and the ratios are to its median. The product of the head's own size
is timed too, and gives ratios of its own: `ridge` works on more features than it is given, and has to read as many
numbers of each class. `learn_alone` is an example among many that nobody asks between.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # numpy's products are timed too, and read this when they are loaded

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from kcciol.engine.record import record
from kcciol.files import require_json, write_json
from kcciol.learner import OnlineLearner
from kcciol.learners.statistics import ClassMeans

LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ncm": ("ncm", {}),
    "ncm, cosine": ("ncm", {"distance": "cosine"}),
    "gaussian": ("gaussian", {}),
    "gaussian, map": ("gaussian", {"form": "map"}),
    "slda": ("slda", {}),
    "ridge": ("ridge", {}),
    "ridge, no random features": ("ridge", {"units": 0}),
    "online": ("online", {}),
}


@dataclass(frozen=True)
class Options:
    out: Path = Path("results/bench-growth.json")
    """The file to write."""
    width: int = 256
    """Features of an example."""
    classes: tuple[int, ...] = (10, 100, 1000, 10_000)
    """How many classes are known."""
    learners: tuple[str, ...] = tuple(LEARNERS)
    """Which learners are timed."""
    samples: int = 2
    """Examples of each class that are learned before."""
    repeats: int = 100
    """Examples that are learned and asked for, one by one."""
    seconds: float = 20.0
    """Longest time for these."""
    seed: int = 0
    """Of the examples."""


def examples(classes: int, options: Options) -> Tensor:
    """(classes, samples + 1, width): not below zero and of unit length, as a network's features often are."""
    random = torch.Generator().manual_seed(options.seed)
    centres = torch.rand(classes, 1, options.width, generator=random)
    noise = torch.rand(classes, options.samples + 1, options.width, generator=random)
    return F.normalize((centres + noise - 0.8).relu(), dim=-1)


def microseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1e6 * (time.perf_counter() - began)


def measured(name: str, classes: int, options: Options) -> dict[str, dict[str, float]]:
    """Medians in microseconds, and their ratios to both products."""
    method, settings = LEARNERS[name]
    learner, xs = OnlineLearner(method, options.width, settings), examples(classes, options)
    learned = xs[:, :-1].flatten(0, 1)
    learner.learn_many(learned, [number // options.samples for number in range(len(learned))])
    matrix, vector = xs[:, 0].clone(), xs[0, -1].clone()
    array, other = matrix.numpy(), vector.numpy()
    query = prepared(learner, vector)
    head = torch.rand(classes, len(query), generator=torch.Generator().manual_seed(options.seed))
    learner.predict_one(vector)
    times: dict[str, list[float]] = {}
    until = time.perf_counter() + options.seconds
    for number in range(options.repeats):
        x, label = xs[number * 7919 % classes, -1], number * 7919 % classes
        asked = xs[number * 104729 % classes, -1]
        work: dict[str, Callable[[], object]] = {
            "product": lambda: matrix @ vector,
            "product_numpy": lambda: array @ other,
            "product_head": lambda: head @ query,
            "learn": lambda x=x, label=label: learner.learn_one(x, label),  # type: ignore[misc]
            "predict_first": lambda asked=asked: learner.predict_one(asked),  # type: ignore[misc]
            "predict": lambda asked=asked: learner.predict_one(asked),  # type: ignore[misc]
        }
        _ = matrix @ vector  # so that it is in the cache, as what the later prediction reads is
        for kind, step in work.items():
            times.setdefault(kind, []).append(microseconds(step))
        if time.perf_counter() > until:
            break
    alone = microseconds(lambda: [learner.learn_one(xs[i % classes, -1], i % classes) for i in range(options.repeats)])
    found = {kind: statistics.median(values) for kind, values in times.items()}
    found["learn_alone"] = alone / options.repeats
    ratios = {
        f"times_{product}": {kind: value / found[product] for kind, value in found.items()}
        for product in ("product", "product_head")
    }
    return {"us": found, **ratios}


def prepared(learner: OnlineLearner, vector: Tensor) -> Tensor:
    """What the weights of a class are multiplied with."""
    if not isinstance(learner.learner, ClassMeans):
        return vector
    return learner.learner.form().prepare(vector[None])[0].float()


def main(options: Options) -> None:
    require_json(options.out)
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    for name in options.learners:
        for classes in options.classes:
            found = measured(name, classes, options)
            result.setdefault(name, {})[str(classes)] = found
            shown = {
                kind: f"{value:.0f} us ({found['times_product'][kind]:.1f}, {found['times_product_head'][kind]:.1f})"
                for kind, value in found["us"].items()
            }
            print(f"{name}, {classes} classes: " + ", ".join(f"{k} {v}" for k, v in shown.items()), flush=True)
    config = {key: value for key, value in asdict(options).items() if key not in ("out", "seed")}
    write_json(options.out, {"learners": result, "config": config, "seed": options.seed, "record": record()})
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
