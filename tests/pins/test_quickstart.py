"""The quickstart with fewer steps, lengths and trajectories, through the names of the package alone.

That the README's table is results/quickstart.json to the digit is held by tests/test_docs.py
(`test_tables_are_up_to_date`).
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import kcciol
from kcciol.config import Config
from kcciol.serialization import from_dict
from tests.pins.pinned import pin
from tests.pins.test_algorithm4 import of_result
from tests.pins.test_representations import metrics
from tests.pins.test_results import digest

RESULTS = Path(__file__).parents[2] / "results"

# Adam's first steps in a phase are as long where a gradient is next to nothing, which here is that of most rows of W:
# there rounding decides, and each step of these settings makes ten times as much of it (after ten of them features
# differ by a hundredth from one processor to another). Hence few steps, and features and the constraint to a hundredth;
# the trainings of tests/pins/small.toml are longer and held closer. Of a search's 2 x 5 x 15 images one is 0.7 %.
WITHIN = {"right": 1.0, "share": 0.7, "features": 0.02, "constraint": 0.02, "constraint_share": 0.003}


def test_quickstart_cut_short(tmp_path: Path) -> None:
    """The preset as it is but for these: so its own settings are held too."""
    config = kcciol.preset("quickstart")
    steps = {f"phase{i}": n for i, n in enumerate((2, 1, 1), 1)}
    phases: dict[str, Any] = {name: dataclasses.replace(getattr(config, name), steps=n) for name, n in steps.items()}
    config = dataclasses.replace(
        config,
        **phases,
        engine=dataclasses.replace(config.engine, device="cpu", log_every=1),
        evaluation=dataclasses.replace(
            config.evaluation,
            classes=(5, 20),
            trajectories=3,
            search_trajectories=2,
            rates=config.evaluation.rates[::3],
        ),
    )
    data = kcciol.load_data(config.data)
    scratch = dataclasses.replace(
        config,
        representation="scratch",
        **{name: dataclasses.replace(phase, steps=0) for name, phase in phases.items()},
    )
    kcciol.train(scratch, data.base, tmp_path / "scratch", quiet=True)
    kcciol.train(config, data.base, tmp_path / "run", quiet=True)
    files = {"scratch": tmp_path / "scratch" / "phase1.safetensors"}
    files |= {f"phase {i}": tmp_path / "run" / f"phase{i}.safetensors" for i in (1, 2, 3)}
    found: dict[str, Any] = {"metrics": metrics(tmp_path / "run")}
    for name, file in files.items():
        representation = kcciol.load(file)
        features = representation.split_features(data.novel, 15, 5)
        result = kcciol.evaluate(features, representation.W, config.evaluation).to_dict()
        found[name] = {
            "Theta": [float(representation.Theta.double().sum()), float(representation.Theta.double().abs().sum())],
            "features": features.test[::9, 0, ::40].flatten().tolist(),
            "classes": of_result(result["classes"], train=15),
        }
    pin("quickstart", "cut short", found, WITHIN)


TABLE = """
5   26.2 ± 4.0  94.2 ± 2.3  95.0 ± 2.1  95.0 ± 2.2
10  13.3 ± 1.8  90.2 ± 1.6  89.9 ± 2.1  91.4 ± 1.7
20  9.3 ± 1.9   86.2 ± 1.5  87.0 ± 1.8  87.0 ± 1.5
50  10.3 ± 1.3  79.1 ± 0.9  80.8 ± 0.8  81.3 ± 0.9
"""


def test_the_table_is_the_same_to_the_digit() -> None:
    columns = json.loads((RESULTS / "quickstart.json").read_text(encoding="utf-8"))["columns"]
    assert list(columns) == ["scratch", "phase 1", "phase 2", "phase 3"]
    for line in TABLE.strip().splitlines():
        n, *cells = re.split("  +", line)
        found = [column[n]["test"] for column in columns.values()]
        assert cells == [f"{cell['mean']:.1f} ± {cell['ci95']:.1f}" for cell in found]
    assert all(set(column) == {"5", "10", "20", "50"} for column in columns.values())


def test_every_accuracy_and_rate_is_the_same() -> None:
    """What is not here is measured otherwise than it was: forgetting, and intervals where a spread is nothing."""
    columns = json.loads((RESULTS / "quickstart.json").read_text(encoding="utf-8"))["columns"]
    kept = [
        [length["test"], length["train"], length["by_trajectory"], length["learned"]["mean"], rate_of(length)]
        for column in columns.values()
        for length in column.values()
    ]
    assert digest(kept) == "2ed689a1d48fe2b5f9e2"


def rate_of(length: dict[str, Any]) -> float:
    return float(length["choice"]["settings"]["rate"])


def test_the_numbers_that_are_kept_are_of_the_preset() -> None:
    """Settings that came later have their defaults there."""
    kept = json.loads((RESULTS / "quickstart.json").read_text(encoding="utf-8"))
    now = kcciol.preset("quickstart")
    assert dataclasses.replace(from_dict(Config, kept["config"]), engine=now.engine) == now
