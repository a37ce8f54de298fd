"""Training end to end on a tiny setting: files, resume, signals, divergence."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from kcciol.config import Config, to_toml
from kcciol.data.classset import Splits
from kcciol.engine import checkpoint
from kcciol.errors import UserError
from kcciol.meta.phases import Diverged, train


def weights(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(path).tensors


def assert_same(a: Path, b: Path) -> None:
    one, two = weights(a), weights(b)
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name


@pytest.fixture(scope="module")
def whole(tiny: Config, tiny_data: Splits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from beginning to end."""
    path = tmp_path_factory.mktemp("whole") / "run"
    train(tiny, tiny_data.base, path, quiet=True)
    return path


def test_run_folder_holds_everything(tiny: Config, whole: Path) -> None:
    names = {p.name for p in whole.iterdir()}
    assert names == {
        "config.toml",
        "record.json",
        "metrics.jsonl",
        "checkpoint.safetensors",
        *(f"phase{i}.safetensors" for i in (1, 2, 3)),
    }
    record = json.loads((whole / "record.json").read_text())
    assert record["versions"]["torch"] == torch.__version__
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [(m["phase"], m["step"]) for m in lines] == [
        *((1, s) for s in (2, 4, 6, 7)),
        *((2, s) for s in (2, 4)),
        *((3, s) for s in (2, 4, 5)),
    ]
    assert all(m["constraint"] > 0 and m["constraint_share"] > 0 for m in lines if m["phase"] == 3)
    saved = checkpoint.load(whole / "phase3.safetensors")
    assert saved.config == tiny
    assert (saved.phase, saved.step) == (3, tiny.phase3.steps)


def test_each_phase_moves_the_weights(whole: Path) -> None:
    one, two, three = (weights(whole / f"phase{i}.safetensors")["theta.conv2.weight"] for i in (1, 2, 3))
    assert not torch.equal(one, two)
    assert not torch.equal(two, three)


def test_same_seed_same_weights_other_seed_others(tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path) -> None:
    train(tiny, tiny_data.base, tmp_path / "again", quiet=True)
    assert_same(whole / "phase3.safetensors", tmp_path / "again" / "phase3.safetensors")
    train(dataclasses.replace(tiny, seed=1), tiny_data.base, tmp_path / "other", quiet=True)
    a, b = weights(whole / "phase3.safetensors"), weights(tmp_path / "other" / "phase3.safetensors")
    assert not torch.equal(a["theta.conv1.weight"], b["theta.conv1.weight"])


KILLER = """
import os, signal, sys
from kcciol import config, data
from kcciol.meta import phases, step
at, done, real = int(sys.argv[3]), 0, step.MetaStep.__call__
def dying(self):
    global done
    if done == at:
        os.kill(os.getpid(), signal.SIGKILL)
    done += 1
    real(self)
step.MetaStep.__call__ = dying
c = config.read(config.Path(sys.argv[1]))
phases.train(c, data.load(c.data).base, sys.argv[2], quiet=True)
"""


@pytest.mark.parametrize("at", [0, 1, 3, 6, 7, 8, 11, 13, 15])
def test_killed_at_any_step_and_resumed_ends_in_the_same_weights(
    tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path, at: int
) -> None:
    (tmp_path / "tiny.toml").write_text(to_toml(tiny))
    run = tmp_path / "run"
    words = [sys.executable, "-c", KILLER, str(tmp_path / "tiny.toml"), str(run), str(at)]
    assert subprocess.run(words, check=False, capture_output=True).returncode == -signal.SIGKILL
    train(tiny, tiny_data.base, run, resume=True, quiet=True)
    for name in ("phase1", "phase2", "phase3", "checkpoint"):
        assert_same(whole / f"{name}.safetensors", run / f"{name}.safetensors")
    strip = [
        [{k: v for k, v in json.loads(m).items() if k != "steps_per_second"} for m in text.splitlines()]
        for text in ((whole / "metrics.jsonl").read_text(), (run / "metrics.jsonl").read_text())
    ]
    assert [(m["phase"], m["step"]) for m in strip[0]] == [(m["phase"], m["step"]) for m in strip[1]]


def test_sigterm_saves_and_resume_continues(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    config = dataclasses.replace(tiny, phase1=dataclasses.replace(tiny.phase1, steps=100_000))
    (tmp_path / "long.toml").write_text(to_toml(config))
    words = [sys.executable, "-m", "kcciol", "train", str(tmp_path / "long.toml"), "--out", str(tmp_path / "run")]
    process = subprocess.Popen([*words, "--quiet"], stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "--resume" in errors
    saved = checkpoint.load(tmp_path / "run" / "checkpoint.safetensors")
    assert saved.phase == 1
    assert saved.step > 0


def test_start_from_a_phase_skips_it(tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path) -> None:
    train(tiny, tiny_data.base, tmp_path / "on", start=whole / "phase1.safetensors", quiet=True)
    assert not (tmp_path / "on" / "phase1.safetensors").exists()
    assert_same(whole / "phase3.safetensors", tmp_path / "on" / "phase3.safetensors")


def test_a_loss_that_is_not_finite_stops_and_keeps_the_checkpoint(
    tiny: Config, tiny_data: Splits, tmp_path: Path
) -> None:
    train(dataclasses.replace(tiny, phase2=tiny.phase3, phase3=tiny.phase3), tiny_data.base, tmp_path / "a", quiet=True)
    bad = dataclasses.replace(tiny, phase1=dataclasses.replace(tiny.phase1, beta=1e30))
    with pytest.raises(Diverged, match="phase 1"):
        train(bad, tiny_data.base, tmp_path / "b", quiet=True)
    assert not (tmp_path / "b" / "phase1.safetensors").exists()


def test_folder_errors(tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--resume"):
        train(tiny, tiny_data.base, whole, quiet=True)
    with pytest.raises(UserError, match="no run"):
        train(tiny, tiny_data.base, tmp_path / "none", resume=True, quiet=True)
    other = dataclasses.replace(tiny, net=dataclasses.replace(tiny.net, channels=7))
    with pytest.raises(UserError, match="another config: net"):
        train(other, tiny_data.base, whole, resume=True, quiet=True)
    with pytest.raises(UserError, match="another network"):
        train(other, tiny_data.base, tmp_path / "start", start=whole / "phase1.safetensors", quiet=True)
