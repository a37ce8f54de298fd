"""A run folder of which a file is damaged or gone: nothing is lost, and what to do is said in a sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from kcciol.cli import main
from kcciol.config import Config
from kcciol.data import load
from kcciol.data.classset import Splits
from kcciol.engine import checkpoint
from kcciol.engine.run_folder import RunFolder
from kcciol.errors import UserError
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
    record = json.loads(after["record.json"])
    assert "versions" in (record if name != "record.json" else record["resumed"][-1])


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


def test_the_record_says_who_went_on_with_a_run(
    tiny: Config, tiny_data: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    for number, commit in enumerate(("first", "second", "third")):
        monkeypatch.setenv("KCCIOL_COMMIT", commit)
        train(tiny, tiny_data.base, run, resume=number > 0, quiet=True, last=number + 1)
    monkeypatch.setenv("KCCIOL_COMMIT", "of nothing")
    train(tiny, tiny_data.base, run, resume=True, quiet=True)
    record = json.loads((run / "record.json").read_text())
    assert record["commit"] == "first"
    went_on = [(part["phase"], part["commit"]) for part in record["resumed"]]
    assert went_on == [(1, "second"), (2, "third")]


def test_the_record_of_version_1_is_gone_on_with(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tiny, tiny_data.base, run, quiet=True, last=1)
    (run / "record.json").write_text('{"command": "kcciol train", "commit": "old"}\n')
    train(tiny, tiny_data.base, run, resume=True, quiet=True)
    record = json.loads((run / "record.json").read_text())
    assert record["commit"] == "old"
    assert len(record["resumed"]) == 1


def test_a_run_that_another_begins_at_the_same_time_is_left_to_it(
    tiny: Config, tiny_data: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fcntl", reason="this system has no such locks")
    run, other = tmp_path / "run", dataclasses.replace(tiny, seed=5)
    locked = RunFolder.locked
    started: list[RunFolder] = []

    def while_another_trains(folder: RunFolder) -> contextlib.AbstractContextManager[None]:
        if not started:  # this one has looked, found nothing, and has not begun
            started.append(folder)
            train(other, tiny_data.base, run, quiet=True)
        return locked(folder)

    monkeypatch.setattr(RunFolder, "locked", while_another_trains)
    with pytest.raises(UserError, match="There is a run in"):
        train(tiny, tiny_data.base, run, quiet=True)
    assert RunFolder(run).own_config().seed == checkpoint.load(run / "phase3.safetensors").config.seed == 5


def test_other_classes_are_refused_where_a_run_goes_on(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    run, base = tmp_path / "run", tiny_data.base
    train(tiny, base, run, quiet=True, last=1)
    before = contents(run)
    other = dataclasses.replace(base, names=("zebra", *base.names[1:]))
    with pytest.raises(UserError, match="started with other classes"):
        train(tiny, other, run, resume=True, quiet=True)
    with pytest.raises(UserError, match="was trained on other classes"):
        train(tiny, other, tmp_path / "other", start=run / "phase1.safetensors", quiet=True)
    assert contents(run) == before
    assert not (tmp_path / "other").exists()


def test_other_images_are_refused_where_a_run_goes_on(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    run, base = tmp_path / "run", tiny_data.base
    train(tiny, base, run, quiet=True, last=1)
    before, images = contents(run), base.images.clone()
    images[0, 0] = 255 - images[0, 0]
    other = dataclasses.replace(base, images=images)
    with pytest.raises(UserError, match="was started with other images than these"):
        train(tiny, other, run, resume=True, quiet=True)
    assert contents(run) == before
    (run / "record.json").unlink()
    train(tiny, other, run, resume=True, quiet=True, last=2)
    with pytest.raises(UserError, match="was started with other images than these"):
        train(tiny, base, run, resume=True, quiet=True)  # now it is of those
    train(tiny, other, run, resume=True, quiet=True)
    assert (run / "phase3.safetensors").exists()


def test_classes_of_ones_own_may_be_of_no_data_set(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    config = dataclasses.replace(tiny, data=dataclasses.replace(tiny.data, name="mine"))
    assert train(config, tiny_data.base, tmp_path / "run", quiet=True).phase(3).exists()


@pytest.mark.parametrize("inside", ["", "a", "new"])
def test_a_run_does_not_go_among_the_pictures_that_it_trains_on(inside: str, tiny: Config, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        for number in range(8):
            Image.new("L", (14, 14), 20 * number).save(tmp_path / name / f"{number}.png")
    data = dataclasses.replace(tiny.data, name="folder", root=str(tmp_path), novel_classes=1, base_classes=0)
    config = dataclasses.replace(tiny, data=data)
    with pytest.raises(UserError, match="choose a folder outside of it"):
        train(config, load(data).base, tmp_path / inside, quiet=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]
    assert len(list((tmp_path / "a").iterdir())) == 8
