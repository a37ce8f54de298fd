"""Many threads that teach one learner: nothing is lost."""

from __future__ import annotations

import dataclasses
import threading
import time

import numpy as np
from trials import SMALL, WIDTH, Findings, Options, peak_mib

from kcciol.learner import OnlineLearner
from kcciol.learners import fitting, learner_type


def try_threads(options: Options, found: Findings, until: int) -> None:
    """Every learner taught by many threads at once, each asking now and then: nothing may be lost."""
    names = fitting("head")
    while found.done < min(until, len(names)):
        name = names[found.done]
        began, before = time.perf_counter(), peak_mib()
        wrong = taught_at_once(name, options.threads, options.learns)
        seconds = time.perf_counter() - began
        found.add(name, "lost" if wrong else "whole", seconds, peak_mib() - before, wrong)


def taught_at_once(name: str, threads: int, learns: int) -> str:
    """What was lost of so many examples from so many threads; nothing when it is well."""
    fields = {f.name for f in dataclasses.fields(learner_type(name).settings_type)}
    settings = {key: value for key, value in SMALL.items() if key in fields}
    learner = OnlineLearner(name, WIDTH, settings)
    xs = np.random.default_rng(0).random((threads, learns, WIDTH))
    errors: list[str] = []

    def teach(thread: int) -> None:
        try:
            for i, x in enumerate(xs[thread]):
                learner.learn_one(x, f"class {thread if i % 2 else i % 20}")
                if i % 50 == 0:
                    learner.predict_one(x)
        except Exception as error:  # that is what is looked for
            errors.append(f"{type(error).__name__}: {str(error)[:200]}")

    workers = [threading.Thread(target=teach, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        return f"{len(errors)} threads failed: {errors[0]}"
    if learner.learner.steps != threads * learns:
        return f"{threads * learns - learner.learner.steps} of {threads * learns} examples lost"
    counts = learner.learner.state_dict().get("mean.count")
    if counts is not None and float(counts.sum()) != threads * learns:
        return f"{threads * learns - float(counts.sum()):g} of {threads * learns} examples are in no mean"
    return ""
