"""Sine functions and generated digits: a few steps of two members together, and what they have learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.pins.access import command, generate, sine_results, train_digits, train_sine
from tests.pins.pinned import pin

ENGINE = {"device": "cpu", "precision": "float32", "graph": False, "checkpoint_every": 5, "log_every": 2}
SINE: dict[str, Any] = {
    "seed": 3,
    "clamp": 5.0,
    "clip": 0.5,
    "retreat": False,
    "sine": {"functions": 12, "novel": 8, "slots": 3, "batches": 3, "batch": 4, "query": 4, "count": 2},
    "net": {"width": 8, "features": 12, "theta": 2, "W": 3},
    "mask": {"delta": 0.4, "scope": "global"},
    "order": "first",
    "constraint": "same",
    "loss": "end",
    "decay": 0.3,
    "milestones": [4],
    "rise": 2,
    "phase1": {"steps": 6, "alpha": 0.02, "beta": 1e-2, "gamma": 0.0, "lam": 0.0},
    "phase2": {"steps": 3, "alpha": 0.02, "beta": 1e-3, "gamma": 1e-3, "lam": 0.0},
    "phase3": {"steps": 4, "alpha": 0.03, "beta": 1e-3, "gamma": 0.0, "lam": 1e-2},
    "engine": ENGINE,
}
DIGITS: dict[str, Any] = {
    "seed": 3,
    "gan": {
        "noise": 3,
        "labels": 6,
        "generator": [6, 5],
        "critic": [7, 6],
        "strength": 10.0,
        "slope": 0.2,
        "penalty": 10.0,
    },
    "trajectory": {"support": 3, "query": 2, "remember": 3, "count": 2},
    "clamp": 0.0,
    "clip": 0.0,
    "retreat": False,
    "beta1": 0.5,
    "beta2": 0.9,
    "mask": {"delta": 0.6, "scope": "global"},
    "phase1": {"steps": 6, "alpha": 0.1, "beta": 1e-3, "gamma": 0.0, "lam": 0.0},
    "phase2": {"steps": 2, "alpha": 0.1, "beta": 1e-3, "gamma": 1e-3, "lam": 0.0},
    "phase3": {"steps": 3, "alpha": 0.1, "beta": 1e-3, "gamma": 0.0, "lam": 1e-2},
    "engine": ENGINE,
}


def of_run(folder: Path, Theta: Tensor) -> dict[str, Any]:
    """What was logged, but for the speed, and sum and absolute sum of each member's Theta."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = [{key: value for key, value in line.items() if key != "steps_per_second"} for line in lines]
    every = Theta.double()
    return {"metrics": logged, "Theta": [every.sum(1).tolist(), every.abs().sum(1).tolist()]}


@pytest.mark.parametrize("change", ["first", "exact", "exact, constraint of first order", "loss every"])
def test_sine_functions(change: str, tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "first": {},
        "exact": {"order": "exact"},
        "exact, constraint of first order": {"order": "exact", "constraint": "first"},
        "loss every": {"loss": "every"},
    }
    one = SINE | changes[change]
    other = one | {"seed": 8, "phase2": {**SINE["phase2"], "gamma": 0.0}, "phase3": {**SINE["phase3"], "lam": 0.0}}
    Theta = train_sine([one, other], tmp_path / "run")
    command("evaluate", tmp_path / "run", "--runs", "4", "--device", "cpu", "--out", tmp_path / "out.json")
    errors = [[row["by_run"] for row in result["functions"].values()] for result in sine_results(tmp_path / "out.json")]
    pin("members", f"sine, {change}", of_run(tmp_path / "run", Theta) | {"errors": errors})


def images(seed: int, classes: int) -> Tensor:
    """Images (classes, 9, 1, 4, 4) of noise around a picture of each class."""
    random = np.random.Generator(np.random.Philox(seed))
    centres = random.integers(40, 216, (classes, 1, 1, 4, 4))
    return torch.from_numpy((centres + random.integers(-30, 31, (classes, 9, 1, 4, 4))).astype(np.uint8))


def test_digits(tmp_path: Path) -> None:
    other = DIGITS | {"seed": 8, "phase3": {**DIGITS["phase3"], "lam": 0.0}}
    Theta = train_digits([DIGITS, other], images(1, 3), [0, 2, 3], tmp_path / "run")
    made = [generate(DIGITS, one, images(2, 2), [1, 4], rate=0.01) for one in Theta]
    found = of_run(tmp_path / "run", Theta) | {"made": [[part.flatten().tolist() for part in one] for one in made]}
    pin("members", "digits", found)
