"""Mutated files of learners and of training: each is loaded and used, or refused by a `UserError`."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import mutations
import numpy as np
import torch
from trials import SMALL, WIDTH, Findings, Options, alarm, limits, peak_mib, training_config, waves_config

from kcciol.data import load as load_data
from kcciol.encoders import run as encoders
from kcciol.engine import checkpoint
from kcciol.errors import UserError
from kcciol.learner import OnlineLearner
from kcciol.learners import fitting, learner_type
from kcciol.meta.phases import train
from kcciol.paper.sine.train import load_sine, train_sine

TODAY = Path(__file__).parents[1] / "tests" / "data" / "today"  # of the first version of each format


def learner_files(folder: Path) -> list[Path]:
    """A file of each learner, and those of an earlier version."""
    random = np.random.default_rng(0)
    for name in fitting("head"):
        fields = {f.name for f in dataclasses.fields(learner_type(name).settings_type)}
        settings = {key: value for key, value in SMALL.items() if key in fields}
        learner = OnlineLearner(name, WIDTH, settings, seed=3, encoder="sha256 of an encoder")
        for i, label in enumerate(["a", 1, "é\n", 2.5] * 3):
            learner.learn_one(random.random(WIDTH) + i % 4, label)
            if i % 4 == 3 and i < 9:
                learner.end_task()
        learner.save(folder / f"{name}.safetensors")
    return sorted([*folder.glob("*.safetensors"), *TODAY.glob("*.safetensors")])


def use_learner(path: Path) -> None:
    """Load a learner and ask it, and teach it, if its settings are the usual ones."""
    learner = OnlineLearner.load(path)
    usual = {f.name: f.default for f in dataclasses.fields(learner.settings)} | SMALL
    if all(usual[name] == value for name, value in vars(learner.settings).items()) and learner.width < 100:
        x = np.full(learner.width, 0.5)
        with contextlib.suppress(UserError):  # nothing learned, or diverged
            learner.predict_one(x)
        learner.learn_one(x, "new").learn_one(x, "new").predict_one(x)


def training_files(folder: Path) -> list[Path]:
    """Checkpoints and representations of a classification and of sine functions, and those of an earlier version."""
    config = training_config()
    train(config, load_data(config.data).base, folder / "run", quiet=True)
    waves = waves_config()
    train_sine([waves, dataclasses.replace(waves, seed=1)], folder / "waves", quiet=True)
    found = [*folder.glob("*/*.safetensors"), *TODAY.glob("*/*.safetensors")]
    return sorted(path for path in found if not path.name.startswith("phase2"))


def use_training(path: Path) -> None:
    """Load whatever is there, and use it."""
    if "waves" in path.name or "sine" in path.name:
        load_sine(path)
        return
    found = encoders.load(path)
    if found.problem.encoder.features < 10_000:
        found.features(torch.zeros(1, *found.problem.encoder.image_shape, dtype=torch.uint8))
    assert len(found.identity) > 60
    at = checkpoint.load(path)
    if "adam.m" in at.tensors:
        at.require_state(found.problem.layout, "mask" in at.tensors, path)


def try_files(
    part: str, sources: Sequence[Path], use: Callable[[Path], None], options: Options, found: Findings, until: int
) -> None:
    """Mutants from where the findings end, up to number `until`."""
    whole = [path.read_bytes() for path in sources]
    with tempfile.TemporaryDirectory() as folder, limits(options.mebibytes):
        while found.done < until:
            number = options.first + found.done
            rng = mutations.draw(options.seed, part, number)
            which = rng.randrange(len(whole))
            kind, data = mutations.mutated(whole[which], rng)
            source = sources[which]
            path = Path(folder) / f"{source.parent.name}-{source.name}"
            path.write_bytes(data)
            name = f"{number} ({path.name}, {kind})"
            began, before, fault = time.perf_counter(), peak_mib(), ""
            try:
                with alarm(5 * options.seconds):
                    use(path)
                outcome = "loaded"
            except UserError:
                outcome = "refused"
            except BaseException as error:  # that is what is looked for
                if isinstance(error, KeyboardInterrupt):
                    raise
                last = traceback.extract_tb(error.__traceback__)[-1]
                outcome = "fault"
                fault = f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"
            seconds, mebibytes = time.perf_counter() - began, peak_mib() - before
            if not fault and seconds > options.seconds:
                outcome, fault = "slow", f"{seconds:.1f} s"
            found.add(name, outcome, seconds, mebibytes, fault)
            path.unlink()
