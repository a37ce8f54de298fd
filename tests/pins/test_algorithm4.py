"""Algorithm 4 on the command line: every rule for the rate, optimizer and start, a hidden layer, images redrawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pins.access import algorithm4_results, chosen_rate, command
from tests.pins.conftest import TOML
from tests.pins.pinned import pin

RATES = ("--rates", "0.1", "0.03", "0.01", "0.003")
CASES: dict[str, tuple[str, ...]] = {
    "stream": (*RATES, "--rule", "stream"),
    "holdout": (*RATES, "--rule", "holdout"),
    "base": (*RATES, "--rule", "base"),
    "leaky": (*RATES, "--rule", "leaky"),
    "sgd": ("--optimizer", "sgd", "--rates", "0.3", "0.03", "--rule", "holdout"),
    "kaiming": ("--start", "kaiming"),
    "meta": ("--start", "meta"),
    "so many rows": ("--outputs", "12"),
    "redrawn": (*RATES, "--redraw", "--rule", "base"),
    "another seed": ("--seed", "9"),
    "kept-out base classes": ("--split", "validation", "--classes", "2", "4"),
    "untrained": ("--untrained",),
    "end of phase 1": ("--phase", "1"),
}
HIDDEN = {"last": ("--reinit", "last"), "all": ("--reinit", "all", "--start", "kaiming", "--optimizer", "sgd")}


def of_result(results: dict[str, dict[str, Any]], test: int = 5, train: int = 7) -> dict[str, Any]:
    """All that is said of each number of classes, accuracies as numbers of images."""
    found: dict[str, Any] = {}
    for n, length in results.items():
        images, streams = int(n) * test, len(length["by_trajectory"])
        rate = chosen_rate(length)
        found[n] = {
            "right": [share * images / 100 for share in length["by_trajectory"]],
            "right of all": {"right": length["test"]["mean"] * images * streams / 100},
            "learned": {"right": length["learned"]["mean"] * images * streams / 100},
            "learned images": {"right": length["train"]["mean"] * int(n) * train * streams / 100},
            "forgetting": {"right": length["forgetting"]["mean"] * images * streams / 100},
            "forgetting by class": {
                "right": [lost * test * streams / 100 for lost in length["forgetting"]["by_class"]]
            },
            "curve": {
                str(p["classes_seen"]): {"right": p["mean"] * p["classes_seen"] * test * streams / 100}
                for p in length["curve"]
            },
            "rate": rate["chosen"],
            # of images of the search's own trajectories: a share of them, in percent, and one of 60 is 1.7
            "scores": {"share": rate["scores"]},
        }
    return found


WITHIN = {"right": 1.0, "share": 1.7}


@pytest.mark.parametrize("case", list(CASES))
def test_algorithm_4(case: str, small_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command("evaluate", small_run, *CASES[case], "--device", "cpu", "--out", out)
    pin("algorithm4", case, of_result(algorithm4_results(out)), WITHIN)


@pytest.fixture(scope="module")
def hidden_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose W has a hidden layer."""
    folder = tmp_path_factory.mktemp("pins") / "hidden"
    command("train", TOML, "--net.hidden", "10", "--meta.order", "first", "--out", folder, "--quiet")
    return folder


@pytest.mark.parametrize("case", list(HIDDEN))
def test_a_hidden_layer(case: str, hidden_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command("evaluate", hidden_run, *HIDDEN[case], "--device", "cpu", "--out", out)
    pin("algorithm4", f"hidden, {case}", of_result(algorithm4_results(out)), WITHIN)
