"""Choosing Omniglot's settings without novel classes: train on 763 base classes, evaluate on the other 200.

    python benchmarks/omniglot_settings.py --root data --out results/omniglot-settings.json

Each candidate is a preset with some settings changed. What is chosen goes into the presets.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from kcciol.config import Config, preset
from kcciol.data import load as load_data
from kcciol.data.classset import Splits
from kcciol.encoders.run import Representation
from kcciol.encoders.run import load as load_representation
from kcciol.engine.device import pick_device
from kcciol.engine.record import record
from kcciol.evaluation.measure import measure
from kcciol.files import write_json
from kcciol.meta.methods import with_method
from kcciol.meta.phases import train
from kcciol.serialization import from_dict, to_dict


@dataclass(frozen=True)
class Options:
    root: str = "data"
    """Where Omniglot lies."""
    runs: Path = Path("runs/omniglot-settings")
    """Where the runs are kept."""
    out: Path = Path("results/omniglot-settings.json")
    """The file to write."""
    only: tuple[str, ...] = ()
    """Names of candidates; none means all."""


@dataclass(frozen=True)
class Candidate:
    """A preset with changes; perhaps beginning after the phase 1 of another candidate, or of another method."""

    preset: str
    changes: dict[str, dict[str, Any]]
    start: str | None = None
    method: str = "kcciol"


NO_MORE = {"phase2": {"steps": 0}, "phase3": {"steps": 0}}
FIRST = ((0.01, 1e-4), (0.01, 3e-4), (0.01, 1e-3), (0.03, 3e-4), (0.1, 3e-4), (0.1, 1e-3))
AROUND = ((0.01, 3e-3), (0.003, 1e-3), (0.003, 3e-3), (0.001, 1e-3), (0.0003, 1e-3), (0.0001, 1e-3))  # the best
ANML_RATES = (*FIRST, *AROUND)
PHASE1 = f"{preset('omniglot').data.train_samples} images a class"
CANDIDATES = {
    "15 images a class": Candidate("omniglot", {"data": {"train_samples": 15}, **NO_MORE}),
    "20 images a class": Candidate("omniglot", {"data": {"train_samples": 20}, **NO_MORE}),
    "paper, 15 images a class": Candidate("omniglot-paper", {"data": {"train_samples": 15}}),
    "paper, 20 images a class": Candidate("omniglot-paper", {"data": {"train_samples": 20}}),
    "paper, rows to zero": Candidate("omniglot-paper", {"meta": {"reset": "zero"}}),
    "phases 2 and 3": Candidate("omniglot", {}, PHASE1),
    "control": Candidate("omniglot", {"phase2": {"gamma": 0.0}, "phase3": {"lam": 0.0}}, PHASE1),
    "gamma 2e-4": Candidate("omniglot", {"phase2": {"gamma": 2e-4}}, PHASE1),
    "lambda 5e-3": Candidate("omniglot", {"phase3": {"lam": 5e-3}}, PHASE1),
}
CANDIDATES |= {  # short: one of its steps takes as long as ten of ours
    f"anml, alpha {alpha:g}, beta {beta:g}": Candidate(
        "omniglot-paper", {"phase1": {"steps": 2000, "alpha": alpha, "beta": beta}}, method="anml"
    )
    for alpha, beta in ANML_RATES
}
RULES: tuple[Literal["stream", "holdout", "leaky"], ...] = ("stream", "holdout", "leaky")
CLASSES = (10, 50, 200)
TRAJECTORIES = 100


def main(options: Options) -> None:
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    splits: Splits | None = None
    for name in options.only or CANDIDATES:
        candidate = CANDIDATES[name]
        config = changed(preset(candidate.preset), {"data": {"root": options.root, "validation_classes": 200}})
        config = changed(with_method(config, candidate.method), candidate.changes)
        splits = splits or load_data(config.data)
        start = options.runs / candidate.start / "phase1.safetensors" if candidate.start else None
        clock = time.monotonic()
        path = options.runs / name
        folder = train(config, splits.base, path, (path / "config.toml").exists(), start, quiet=True)
        torch.cuda.empty_cache()
        print(f"{name}: trained in {time.monotonic() - clock:.1f} s", flush=True)
        results[name] = {"config": to_dict(config), "record": record(), "phases": {}}
        for phase in (1, 2, 3):
            if folder.phase(phase).exists():
                representation = load_representation(folder.phase(phase), pick_device("auto"))
                results[name]["phases"][phase] = evaluate(representation, splits)
        write_json(options.out, results)


def evaluate(representation: Representation, splits: Splits) -> dict[str, Any]:
    """Accuracy on held-out images of the base classes kept out of training, by rule for the rate and classes."""
    measured: dict[str, Any] = {}
    evaluation = replace(representation.config.evaluation, classes=CLASSES, trajectories=TRAJECTORIES)
    for rule in RULES:
        cells = measure(representation, splits, replace(evaluation, rule=rule), "validation")["classes"]
        measured[rule] = {n: {**c["test"], "rate": c["choice"]["settings"]["rate"]} for n, c in cells.items()}
        row = " / ".join(f"{c['mean']:.1f} (rate {c['rate']:g})" for c in measured[rule].values())
        print(f"  {rule}: {row}", flush=True)
    return measured


def changed(config: Config, changes: dict[str, dict[str, Any]]) -> Config:
    values = to_dict(config)
    for section, change in changes.items():
        values[section] |= change
    return from_dict(Config, values)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
