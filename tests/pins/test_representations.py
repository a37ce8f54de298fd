"""Every way to learn theta: a few steps, then Algorithm 4 at one rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kcciol
from tests.pins.access import algorithm4_results, command, representation_names
from tests.pins.conftest import TOML
from tests.pins.pinned import pin
from tests.pins.test_algorithm4 import of_result

# The steps of each phase that a method has, the others it leaves out; and what it asks of trajectories.
STEPS: dict[str, tuple[int, ...]] = {
    "scratch": (),
    "pretrained": (6,),
    "srnn": (5, 3),
    "maml-rep": (5,),
    "mrcl": (6,),
    "oml": (6,),
    "anml": (5,),
    "kcciol": (6, 5, 5),
    "kcciol-o": (4, 3, 3),
    "phase1": (4, 5),
    "gamma0": (4, 3, 3),
    "lambda0": (4, 3, 3),
    "control": (4, 3, 3),
}
MORE: dict[str, tuple[str, ...]] = {
    "pretrained": ("--trajectory.remember", "16"),
    "srnn": ("--trajectory.remember", "16"),
    "anml": ("--trajectory.support", "5", "--trajectory.remember", "8"),
}
# Other settings of the trainer, with which `kcciol` goes another way through the code.
SETTINGS: dict[str, tuple[str, ...]] = {
    "two trajectories": ("--trajectory.count", "2"),
    "plain": ("--meta.inner", "plain"),
    "first order": ("--meta.order", "first"),
    "rows drawn": ("--meta.reset", "draw"),
    "all drawn": ("--meta.reset", "all"),
    "a threshold for each tensor": ("--mask.scope", "tensor", "--mask.delta", "0.3"),
    "hidden layer": ("--net.hidden", "10"),
    "another seed": ("--seed", "4"),
    "unclamped": ("--meta.clamp", "0"),
}


def metrics(folder: Path) -> list[dict[str, Any]]:
    """What was logged, but for the speed; nothing where no step was taken."""
    path = folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{key: value for key, value in line.items() if key != "steps_per_second"} for line in lines]


def sums(folder: Path) -> dict[str, list[float]]:
    """Sum and absolute sum of theta, and some features, after the last phase."""
    representation = kcciol.load(max(folder.glob("phase?.safetensors")))
    images = kcciol.load_data(representation.config.data).novel.images[:2, 0]
    features = representation.features(images).double()
    every = representation.Theta.double()
    return {
        "Theta": [float(every.sum()), float(every.abs().sum())],
        "features": [float(features.sum()), float(features.abs().max()), float(features.square().mean())],
        "some": features[:, ::7].flatten().tolist(),
    }


def pinned_run(words: tuple[str, ...], folder: Path, name: str) -> None:
    """Train in a folder, evaluate, and hold all numbers."""
    command("train", TOML, *words, "--out", folder, "--quiet")
    command("evaluate", folder, "--device", "cpu", "--out", folder / "out.json")
    found = {"metrics": [{"step": [line.pop("phase"), line.pop("step")], **line} for line in metrics(folder)]}
    pin("representations", name, found | sums(folder) | {"classes": of_result(algorithm4_results(folder / "out.json"))})


def test_every_representation_is_here() -> None:
    assert list(STEPS) == representation_names()


@pytest.mark.parametrize("name", list(STEPS))
def test_representation(name: str, tmp_path: Path) -> None:
    steps = tuple(word for i, n in enumerate(STEPS[name], 1) for word in (f"--phase{i}.steps", str(n)))
    pinned_run(("--representation", name, *steps, *MORE.get(name, ())), tmp_path / "run", name)


@pytest.mark.parametrize("case", list(SETTINGS))
def test_settings_of_the_trainer(case: str, tmp_path: Path) -> None:
    pinned_run(SETTINGS[case], tmp_path / "run", case)
