"""Every learner with every setting given: as `OnlineLearner` on a stream of numbers, and on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kcciol
from tests.pins.access import command, learner_names, learner_results, learner_settings
from tests.pins.pinned import pin
from tests.pins.settings import OTHERS, SETTINGS, words

WIDTH, CLASSES, EACH, ASKED = 16, 12, 6, 4
Rows = NDArray[np.float32]
CASES = {**{name: (name, values) for name, values in SETTINGS.items() if name != "podnet"}, **OTHERS}


def stream() -> tuple[Rows, Rows]:
    """Features (classes, each, width) to learn and held-out ones: not below zero, as those of a network, and so near
    to each other that no learner is always right."""
    random = np.random.Generator(np.random.Philox(7))
    centres = random.random((CLASSES, 1, WIDTH))
    drawn = np.maximum(centres + 1.2 * (random.random((CLASSES, EACH + ASKED, WIDTH)) - 0.5), 0)
    drawn[drawn < 0.2] = 0
    return drawn[:, :EACH].astype(np.float32), drawn[:, EACH:].astype(np.float32)


def said(learner: kcciol.OnlineLearner, held_out: Rows) -> dict[str, Any]:
    """Right answers, and the scores of three examples."""
    answers = learner.predict_many(held_out.reshape(-1, WIDTH))
    labels = [f"class {number}" for number in range(CLASSES) for _ in range(ASKED)]
    scores = [list(learner.scores_one(held_out[number, 0]).values()) for number in (0, 5, CLASSES - 1)]
    right = sum(a == b for a, b in zip(answers, labels, strict=True))
    return {"right": right, "scores": scores, "bytes": learner.memory_bytes()}


def test_every_learner_is_here_with_all_its_settings() -> None:
    assert set(SETTINGS) == {*learner_names("head"), *learner_names("all")}
    for name, values in [*SETTINGS.items(), *OTHERS.values()]:
        assert set(values) == learner_settings(name), name


@pytest.mark.parametrize("case", list(CASES))
def test_one_after_another(case: str) -> None:
    """Class after class, a task for three of them, then some of the first ones again."""
    name, values = CASES[case]
    learned, held_out = stream()
    learner = kcciol.OnlineLearner(name, WIDTH, values, seed=11)
    for number in range(CLASSES):
        for x in learned[number, :-1]:
            learner.learn_one(x, f"class {number}")
        if number % 3 == 2:
            learner.end_task()
    for number in range(4):
        learner.learn_one(learned[number, -1], f"class {number}")
    pin("learners", f"{case}: learn_one", said(learner, held_out))


@pytest.mark.parametrize("case", list(CASES))
def test_many_at_once(case: str) -> None:
    """All classes class after class, each of them at once."""
    name, values = CASES[case]
    learned, held_out = stream()
    learner = kcciol.OnlineLearner(name, WIDTH, values, seed=12)
    for number in range(0, CLASSES, 2):
        some = learned[number : number + 2].reshape(-1, WIDTH)
        learner.learn_many(some, [f"class {number + i // EACH}" for i in range(len(some))]).end_task()
    pin("learners", f"{case}: learn_many", said(learner, held_out))


STREAM = ("--classes", "3", "8", "--trajectories", "4", "--train-samples", "7", "--test-samples", "5")
FEW = ("--classes", "2", "4", "--trajectories", "2", "--train-samples", "4", "--test-samples", "5")


def of_stream(result: dict[str, Any], asked: int) -> dict[str, Any]:
    """Right answers on held-out images, stream by stream, for each number of classes, and what else is said at the
    end, as numbers of images."""
    rows: dict[str, Any] = {}
    for n, cell in result["classes"].items():
        images, streams = int(n) * asked, len(cell["by_trajectory"])
        rows[n] = {"right": [share * images / 100 for share in cell["by_trajectory"]]}
        rows[n]["right of all"] = {"right": cell["mean"] * images * streams / 100}
    summary = {name: value["mean"] * images * streams / 100 for name, value in result["summary"].items()}
    learned = {n: {"right": cell["train"]["mean"] * int(n) * streams / 100} for n, cell in result["classes"].items()}
    return {"classes": rows, "learned": learned, "summary": {"right": summary}, "bytes": result["bytes"]}


def on_cpu(name: str, out: Path, given: Sequence[str] | None = None) -> list[str | Path]:
    """A learner with all of its settings, or with those that are given, on a CPU; and where its results go."""
    settings = words(SETTINGS[name]) if given is None else given
    return ["--learner", name, "--device", "cpu", "--out", out, *(["--set", *settings] if settings else [])]


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "podnet"])
def test_heads_on_the_command_line(name: str, small_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command("evaluate", small_run, *STREAM, *on_cpu(name, out))
    pin("heads", name, of_stream(learner_results(out)[name], asked=5))


@pytest.mark.parametrize("name", learner_names("all"))
def test_whole_networks_on_the_command_line(name: str, small_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command("evaluate", small_run, *FEW, "--trains", "all", *on_cpu(name, out))
    pin("networks", name, of_stream(learner_results(out)[name], asked=5))


PROTOCOLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "task, two classes each": ("er", ("--order", "task", "--task-classes", "2", "--classes", "4", "8")),
    "shuffled": ("ewc", ("--order", "shuffled")),
    "another seed": ("slda", ("--seed", "9")),
    "redrawn": ("der++", ("--redraw",)),
    "kept-out base classes": ("online", ("--split", "validation", "--classes", "2", "4")),
    "untrained": ("ridge", ("--untrained",)),
}


@pytest.mark.parametrize("case", list(PROTOCOLS))
def test_other_streams_on_the_command_line(case: str, small_run: Path, tmp_path: Path) -> None:
    name, more = PROTOCOLS[case]
    out = tmp_path / "out.json"
    command("evaluate", small_run, *STREAM, *more, *on_cpu(name, out))
    pin("streams", case, of_stream(learner_results(out)[name], asked=5))


@pytest.mark.parametrize("name", ["online", "slda", "gaussian", "der"])
def test_settings_that_are_chosen(name: str, small_run: Path, tmp_path: Path) -> None:
    """Of some learners, the settings that base classes choose; of the others that is the same code."""
    fixed = {"online": ["optimizer=sgd", "outputs=0"], "slda": [], "gaussian": ["form=exact"], "der": []}[name]
    if name == "der":  # few of its many combinations
        free = ("alpha", "weighting")
        fixed = words({key: value for key, value in SETTINGS["der"].items() if key not in free})
    out = tmp_path / "out.json"
    command("evaluate", small_run, *STREAM, *on_cpu(name, out, fixed))
    result = learner_results(out)[name]
    choice = result["choice"]
    images = choice["classes"] * choice["trajectories"] * 5
    scores = {" ".join(words(one["settings"])): one["score"] * images / 100 for one in choice["scores"]}
    found = of_stream(result, asked=5) | {"settings": choice["settings"], "scores": {"right": scores}}
    pin("chosen", name, found)
