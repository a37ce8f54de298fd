"""Files that were written before the modules moved: they load for ever, and say what they said.

They lie in tests/data/today and are never made anew: how they came about is in the README there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import kcciol
from tests.pins.access import command, config_of, sine_results, tensors_of
from tests.pins.pinned import pin
from tests.pins.test_learners import said, stream
from tests.pins.test_representations import metrics, sums

TODAY = Path(__file__).parents[1] / "data" / "today"


@pytest.mark.parametrize("phase", [1, 3])
def test_a_representation(phase: int) -> None:
    representation = kcciol.load(TODAY / "trained" / f"phase{phase}.safetensors")
    data = kcciol.load_data(representation.config.data)
    features = representation.features(data.novel.images[:3, :2])
    result = kcciol.evaluate(
        representation.split_features(data.novel, 7, 5), representation.W, representation.config.evaluation
    )
    found = {
        "names": list(representation.base_names),
        "features": features.flatten()[::20].tolist(),
        "Theta": representation.Theta[::50].tolist(),
        "W": sorted(representation.W),
        "right": {str(n): length.test.mean * n * 20 / 100 for n, length in result.classes.items()},
    }
    pin("today", f"representation {phase}", found)


def test_a_checkpoint_in_the_middle_of_a_phase_goes_on(tmp_path: Path) -> None:
    """Step 4 of 6 of phase 3, where there is a mask and Adam has moments."""
    run = tmp_path / "run"
    shutil.copytree(TODAY / "cut", run)
    before = kcciol.load(run / "checkpoint.safetensors")
    config = config_of(run)
    kcciol.train(config, kcciol.load_data(config.data).base, run, resume=True, quiet=True)
    after = tensors_of(run / "checkpoint.safetensors")
    assert not torch.equal(kcciol.load(run / "phase3.safetensors").Theta, before.Theta)
    found = {
        "before": before.Theta[::20].tolist(),
        "metrics": metrics(run)[-1],
        "adam": [after["adam.m"][::20].tolist(), after["adam.v"][::20].tolist()],
        "held": int(after["mask"].sum()),
    }
    pin("today", "checkpoint", found | sums(run))


def test_members_of_the_regression(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(TODAY / "sine", run)
    command("evaluate", run, "--runs", "3", "--device", "cpu", "--out", tmp_path / "out.json")
    errors = [[row["mean"] for row in one["functions"].values()] for one in sine_results(tmp_path / "out.json")]
    Theta = tensors_of(run / "phase3.safetensors")["Theta"]
    pin("today", "sine", {"errors": errors, "Theta": Theta[:, ::30].tolist()})


@pytest.mark.parametrize("kind", ["closed-form", "replay"])
def test_a_learner_goes_on(kind: str, tmp_path: Path) -> None:
    """What it says, written again too, and what it says once it has learned six classes more."""
    file = TODAY / f"{kind}.safetensors"
    learner = kcciol.OnlineLearner.load(file)
    learner.save(tmp_path / "again.safetensors")
    again = kcciol.OnlineLearner.load(tmp_path / "again.safetensors")
    learned, held_out = stream()
    answers = learner.predict_many(held_out[:6].reshape(-1, held_out.shape[-1]))
    scores = learner.scores_one(held_out[2, 1])
    assert again.scores_one(held_out[2, 1]) == scores
    for number in range(6, 12):
        learner.learn_many(learned[number], [f"class {number}"] * len(learned[number]))
    right = sum(answer == f"class {i // 4}" for i, answer in enumerate(answers))
    found = {"name": learner.name, "settings": vars(learner.settings), "right": right, "scores": scores}
    pin("today", kind, found | {"later": said(learner, held_out)})
