"""kcciol train and evaluate of problems whose runs train side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kcciol import cli
from kcciol.cli.problems import _error
from kcciol.config import MaskConfig
from kcciol.data import mnist
from kcciol.files import file_lock
from kcciol.files.tensors import read_tensors, write_tensors
from kcciol.paper.ensemble.train import FORMAT
from kcciol.paper.gan import digits
from kcciol.paper.sine.train import train_sine
from kcciol.serialization import to_toml
from tests.data.test_mnist import idx
from tests.paper.sine.test_sine_training import OTHER, TINY

SMALL = ["--gan.generator", "8", "8", "--gan.critic", "8", "8", "--trajectory.count", "2"]
NO_STEPS = [word for i in (1, 2, 3) for word in (f"--phase{i}.steps", "0")]
SHORT = ["--phase1.steps", "3", "--phase3.steps", "2", "--engine.device", "cpu", "--quiet"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "waves.toml"
    path.write_text(to_toml(TINY))
    return path


def test_functions_are_learned_and_measured(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", str(file), "--seeds", "1", "4", "--quiet"]) == 0
    run = Path("runs/waves-seed1-4")
    assert read_tensors(run / "phase3.safetensors", FORMAT)[1]["Theta"].shape[0] == 2
    assert f"kcciol evaluate {run}" in capsys.readouterr().out
    assert cli.main(["evaluate", str(run), "--runs", "3", "--out", str(run / "evaluation-phase3.json")]) == 0
    said = capsys.readouterr().out
    assert "seed 1" in said
    assert "seed 4" in said
    result = json.loads((run / "evaluation-phase3.json").read_text())
    assert [r["seed"] for r in result["results"]] == [1, 4]
    assert list(result["results"][0]["functions"]) == ["1", "2", "3"]
    assert result["results"][0]["rate"] == TINY.phase1.alpha != TINY.phase3.alpha
    assert cli.main(["evaluate", str(run), "--phase", "1", "--runs", "2", "--rate", "0.5"]) == 0
    first = json.loads((run / "evaluation-phase1-runs2-rate0.5.json").read_text())
    assert first["results"][1]["rate"] == 0.5
    assert "Measured at the end of phase 1." in capsys.readouterr().out
    (run / "phase3.safetensors").unlink()
    assert cli.main(["evaluate", str(run), "--runs", "2"]) == 0
    assert "of phase 2; the run has not come to the end of phase 3." in capsys.readouterr().out


def test_a_run_of_functions_begins_in_a_folder_of_its_own(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pictures" / "cat").mkdir(parents=True)
    assert cli.main(["train", str(file), "--quiet", "--out", str(tmp_path / "pictures")]) == 2
    assert "is no folder of a run, as 'cat' lies in it" in capsys.readouterr().err


def test_the_whole_help_is_where_a_mistake_says(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "sine", "--nothing"]) == 2
    assert "kcciol train sine --help" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "sine", "--help"])
    assert ended.value.code == 0
    assert "--retreat" in capsys.readouterr().out


def test_errors_of_any_size_are_short() -> None:
    cells = [{"mean": m, "ci95": m / 8, "diverged": 0} for m in (7.143e24, 0.25, 0.0006)]
    assert [_error(cell) for cell in cells] == ["7.1e+24 ± 8.9e+23", "0.250 ± 0.031", "0.0006 ± 7.5e-05"]


def test_a_run_of_functions_goes_on_where_it_was(file: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        assert cli.main(["train", str(file), "--out", str(folder), "--quiet", "--seeds", "3", "5"]) == 0
    meta, tensors = read_tensors(cut / "phase2.safetensors", FORMAT)  # as if it had been cut there
    Theta = tensors["Theta"]
    write_tensors(cut / "checkpoint.safetensors", FORMAT, meta, {"Theta": Theta, "m": Theta * 0, "v": Theta * 0})
    (cut / "phase3.safetensors").unlink()
    assert cli.main(["train", str(cut), "--resume", "--quiet"]) == 0
    one, two = (read_tensors(folder / "phase3.safetensors", FORMAT)[1]["Theta"] for folder in (whole, cut))
    assert one.equal(two)


def test_runs_that_differ_go_on_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train_sine([TINY, OTHER, replace(TINY, phase1=OTHER.phase1, mask=MaskConfig(delta=1.0))], run, quiet=True)
    before = read_tensors(run / "phase3.safetensors", FORMAT)[1]["Theta"]
    assert cli.main(["train", str(run), "--resume", "--quiet", "--engine.log-every", "7"]) == 0
    assert read_tensors(run / "phase3.safetensors", FORMAT)[1]["Theta"].equal(before)
    assert cli.main(["evaluate", str(run), "--runs", "2"]) == 0
    assert "1, seed 3" in capsys.readouterr().out
    assert cli.main(["train", str(run), "--out", str(tmp_path / "new"), "--phase1.steps", "2"]) == 2
    assert "differ in more than the seed" in capsys.readouterr().err


def test_two_processes_do_not_train_in_one_folder(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.main(["train", str(file), "--out", str(run), "--quiet"]) == 0
    with file_lock(run / ".lock") as mine:
        assert mine
        assert cli.main(["train", str(run), "--resume"]) == 2
    assert "Another process is training" in capsys.readouterr().err


def test_digits_are_learned_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    random = np.random.default_rng(0)
    monkeypatch.setattr(mnist.load, "__defaults__", ((400, 400),))
    for name in ("train", "t10k"):
        (raw / f"{name}-images-idx3-ubyte").write_bytes(idx(random.integers(0, 256, (400, 28, 28), dtype=np.uint8)))
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(idx((np.arange(400) % 10).astype(np.uint8)))
    monkeypatch.setattr(digits, "RATES", (1e-3,))
    root = ["--root", str(tmp_path / "data")]
    run = tmp_path / "run"
    assert cli.main(["train", "mnist-gan", "--out", str(run), *root, *SMALL, *SHORT]) == 0
    assert cli.main(["evaluate", str(run), *root, "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "seed 0: 5" in said
    assert f"kcciolevaluate{run}--root{tmp_path / 'data'}`" in "".join(said.split())
    result = json.loads((run / "evaluation-phase3.json").read_text())["results"][0]
    assert [len(row) for row in result["rates"]["0.001"]["right"]] == [1, 2, 3]
    for words, says in (
        (["evaluate", str(run), *root, "--runs", "3"], "--runs is for functions"),
        (["train", "mnist-gan", *root, *SMALL, *SHORT, "--gan.labels", "3"], "gan.labels is 3"),
        (["train", "mnist-gan", *root, *SMALL, *SHORT, "--trajectory.support", "90"], "but one has only 80"),
    ):
        assert cli.main(words) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "{file}", "--seeds", "1", "1"], "--seeds must be different numbers"),
        (["train", "{file}", "--seeds", "-1"], "--seeds must be different numbers"),
        (["train", "{file}", "--seeds", "1", "2", "--seed", "7"], "--seed is for one run"),
        (["train", "{bad}"], "There is no problem 'chess'"),
        (["train", "{list}"], "There is no problem ['a']"),
        (["train", "{empty}"], "names no members"),
        (["train", "mnist-gan", "--root", "{nowhere}"], "does not exist"),
        (["evaluate", "{folder}"], "holds no representation of any phase"),
        (["evaluate", "{folder}", "--phase", "2"], "holds no representation of phase 2"),
        (["evaluate", "{run}", "--learner", "ncm"], "--learner is for classes"),
        (["evaluate", "{run}", "--root", "x"], "--root is for digits"),
        (["evaluate", "{run}", "--rate", "nan"], "--rate is nan, but must be between 0 and 3e+38"),
        (["evaluate", "{run}", "--rate", "-0.1"], "--rate is -0.1, but must be between"),
        (["evaluate", "{run}", "--rate", "3.5e38"], "--rate is 3.5e+38, but must be between"),
        (["evaluate", "{run}", "--rate", "1e300"], "--rate is 1e+300, but must be between"),
        (["evaluate", "{run}/phase3.safetensors"], "give their folder"),
        (["train", "{file}", "--phase1.alpha", "nan"], "phase1.alpha is nan"),
        (["train", "{file}", "--phase1.steps", "-1"], "phase1.steps is -1"),
        (["train", "{file}", "--decay", "-1"], "decay is -1.0"),
        (["train", "{file}", "--clamp", "-1"], "clamp is -1.0"),
        (["train", "{file}", "--clip", "inf"], "clip is inf, but must be between 0 and 3e+38"),
        (["train", "{file}", "--rise", "-1"], "rise is -1"),
        (["train", "{file}", "--out", "{bad}"], "cannot be written (File exists): choose another folder"),
        (["train", "{file}", "--seeds", "99999999999999999999"], "below 2^63"),
        (["train", "{file}", "--engine.tensorboard"], "metrics.jsonl only"),
        (["train", "{file}", *NO_STEPS], "nothing to train"),
        (["train", "{file}", "--out", "{other}"], "a run of another kind"),
        (["train", "{file}", "--phase1.beta", "1e30", "--quiet"], "lower its rates"),
        (["train", "mnist-gan", "--beta1", "1"], "beta1 is 1.0"),
        (["train", "mnist-gan", "--gan.penalty", "nan"], "gan.penalty is nan, but must be between 0 and 3e+38"),
        (["evaluate", "{broken}"], "is damaged"),
        (["evaluate", "{newer}"], "reads up to version 1: install a newer one."),
        (["evaluate", "{strange}"], "members.json cannot be used: There is no problem 'chess'"),
        (["evaluate", "{listless}"], "members.json names no members that train in this folder"),
        (["evaluate", "{numbers}"], "members.json names no members that train in this folder"),
        (["evaluate", "{run}", "--runs", "0"], "--runs is 0, but must be between 1 and 100,000"),
        (["evaluate", "{run}", "--runs", "99999999999999999999"], "--runs is 99999999999999999999, but must be"),
    ],
)
def test_mistakes_are_said_in_one_sentence(
    words: list[str],
    says: str,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('problem = "chess"\n')
    places = {"file": file, "bad": bad, "nowhere": tmp_path / "nowhere"}
    (tmp_path / "list.toml").write_text('problem = ["a"]\n')
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "members.json").write_text('{"members": []}')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text("")
    places |= {"list": tmp_path / "list.toml", "empty": tmp_path / "empty", "other": tmp_path / "other"}
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("newer", {"format": "list of members 2", "members": []}),
        ("strange", {"members": [{"problem": "chess"}]}),
        ("listless", {}),
        ("numbers", {"members": [1]}),
    ):
        places[name] = tmp_path / name
        places[name].mkdir()
        (places[name] / "members.json").write_text(json.dumps(value))
    for name in ("folder", "broken", "run"):
        places[name] = tmp_path / name
        places[name].mkdir()
        (places[name] / "members.json").write_text(
            "half" if name == "broken" else json.dumps({"members": [{"problem": "regression", "seed": 0}]})
        )
    (places["run"] / "phase3.safetensors").write_bytes(b"")
    assert cli.main([word.format(**places) for word in words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
