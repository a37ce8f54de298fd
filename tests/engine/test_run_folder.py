"""A run folder of which a file is damaged or gone: nothing is lost, and what to do is said in a sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kcciol.cli import main
from kcciol.config import Config
from kcciol.data.classset import Splits
from kcciol.engine import checkpoint
from kcciol.engine.run_folder import RunFolder
from kcciol.meta.phases import train
from kcciol.serialization import to_toml

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda data: data[: len(data) // 2],
    "nothing": lambda data: b"",
    "noise": lambda data: bytes(range(255, 0, -1)) + b"\n" + data[255:],
}
THEN = {
    "config.toml": "it is made again from what was saved last",
    "record.json": "another one is written",
    "metrics.jsonl": "training goes on without the metrics so far",
    "checkpoint.safetensors": "training goes on from the end of phase 3",
    "phase1.safetensors": "training goes on without it",
    "phase3.safetensors": "it is made again",
}


@pytest.fixture(scope="module")
def whole(tiny: Config, tiny_data: Splits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    train(tiny, tiny_data.base, path, quiet=True)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", THEN)
def test_what_is_damaged_is_refused_and_moved_away_it_is_no_matter(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, how: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / name).write_bytes(DAMAGES[how]((run / name).read_bytes()))
    before = contents(run)
    if name == "metrics.jsonl" and how != "noise":  # as a process leaves it that is killed while it writes a line
        assert main(["train", str(run), "--resume", "--quiet"]) == 0
        return
    assert main(["train", str(run), "--resume", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{run / name}" in said
    assert said.endswith(f"(Or move it away and resume, kcciol train FOLDER --resume: {THEN[name]}.)\n")
    assert contents(run) == before
    (run / name).unlink()
    assert main(["train", str(run), "--resume", "--quiet"]) == 0
    after = contents(run)
    assert after.keys() >= before.keys() - {"checkpoint.safetensors", "phase1.safetensors", "metrics.jsonl"}
    for file in ("config.toml", "phase3.safetensors"):
        assert after[file] == (whole / file).read_bytes()
    assert "versions" in json.loads(after["record.json"])


def test_without_its_checkpoint_a_run_goes_on_from_the_end_of_a_phase(
    tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(tiny, tiny_data.base, run, quiet=True, last=1)
    (run / "checkpoint.safetensors").unlink()
    train(tiny, tiny_data.base, run, resume=True, quiet=True)
    for name in ("phase1", "phase2", "phase3", "checkpoint"):
        assert (run / f"{name}.safetensors").read_bytes() == (whole / f"{name}.safetensors").read_bytes()


def test_a_folder_with_nothing_to_go_on_from_is_refused(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for path in run.glob("*.safetensors"):
        path.unlink()
    before = contents(run)
    assert main(["train", str(run), "--resume", "--quiet"]) == 2
    assert "There is no checkpoint" in capsys.readouterr().err
    assert contents(run) == before


def test_a_damaged_representation_is_no_traceback(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "phase3.safetensors").write_bytes(b"half")
    assert main(["evaluate", str(run)]) == 2
    assert "Or move it away and resume, kcciol train FOLDER --resume: that of the last" in capsys.readouterr().err


def test_the_config_of_a_run_says_all(tiny: Config, whole: Path) -> None:
    assert RunFolder(whole).own_config() == tiny == checkpoint.load(whole / "checkpoint.safetensors").config
    assert (whole / "config.toml").read_text() == to_toml(tiny)


def test_of_what_is_damaged_twice_the_earlier_phase_is_offered(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "checkpoint.safetensors").unlink()
    (run / "phase3.safetensors").write_bytes(b"half")
    assert main(["train", str(run), "--resume", "--quiet"]) == 2
    assert "training goes on from the end of phase 2" in capsys.readouterr().err
    (run / "phase3.safetensors").unlink()
    assert main(["train", str(run), "--resume", "--quiet"]) == 0
    assert (run / "phase3.safetensors").read_bytes() == (whole / "phase3.safetensors").read_bytes()
