"""Training end to end on a tiny setting: files, resume, signals, divergence."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from kcciol.config import Config
from kcciol.data.classset import Splits
from kcciol.engine import checkpoint
from kcciol.engine.loop import Diverged
from kcciol.engine.run_folder import RunFolder
from kcciol.engine.stop import Stopped, watch_signals
from kcciol.errors import Busy, UserError
from kcciol.files import file_lock
from kcciol.meta.phases import train
from kcciol.meta.step import MetaStep
from kcciol.serialization import to_toml


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
        ".lock",
        *(f"phase{i}.safetensors" for i in (1, 2, 3)),
    }
    record = json.loads((whole / "record.json").read_text())
    assert record["versions"]["torch"] == torch.__version__
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [(m["phase"], m["step"]) for m in lines] == [
        *((1, s) for s in (2, 3, 4, 6, 7)),  # every second step, every checkpoint, and the last
        *((2, s) for s in (2, 3, 4)),
        *((3, s) for s in (2, 3, 4, 5)),
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
start = config.Path(sys.argv[4]) if sys.argv[4] else None
phases.train(c, data.load(c.data).base, sys.argv[2], start=start, quiet=True)
"""


def kill(config: Config, folder: Path, at: int, start: Path | None = None) -> Path:
    """Train in another process, which kills itself before its step number `at`."""
    (folder / "killed.toml").write_text(to_toml(config))
    words = [sys.executable, "-c", KILLER, str(folder / "killed.toml"), str(folder / "run"), str(at), str(start or "")]
    assert subprocess.run(words, check=False, capture_output=True).returncode == -signal.SIGKILL
    return folder / "run"


def without_speed(path: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "steps_per_second"} for line in lines]


@pytest.mark.parametrize("at", [0, 1, 2, 3, 6, 7, 8, 11, 13, 15])
def test_killed_at_any_step_and_resumed_ends_in_the_same_weights(
    tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path, at: int
) -> None:
    run = kill(tiny, tmp_path, at)
    train(tiny, tiny_data.base, run, resume=True, quiet=True)
    for name in ("phase1", "phase2", "phase3", "checkpoint"):
        assert_same(whole / f"{name}.safetensors", run / f"{name}.safetensors")
    assert without_speed(run) == without_speed(whole)


def test_a_run_that_another_process_trains_is_not_even_read(
    tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "checkpoint.safetensors").write_bytes(b"half of one")
    metrics = (run / "metrics.jsonl").read_text()
    with file_lock(run / ".lock") as mine:
        assert mine
        with pytest.raises(Busy, match="Another process"):
            train(tiny, tiny_data.base, run, resume=True, quiet=True)
    assert (run / "metrics.jsonl").read_text() == metrics


def test_a_checkpoint_is_read_at_once(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "checkpoint.safetensors", Path.read_bytes
    shutil.copy(whole / "phase1.safetensors", path)

    def replaced(self: Path) -> bytes:
        data = real(self)
        if self == path:  # as another process does that saves a newer one
            shutil.copy(whole / "phase3.safetensors", path)
        return data

    monkeypatch.setattr(Path, "read_bytes", replaced)
    found = checkpoint.load(path)
    monkeypatch.undo()
    wanted = checkpoint.load(whole / "phase1.safetensors")
    assert found.phase == wanted.phase == 1
    assert all(torch.equal(tensor, wanted.tensors[name]) for name, tensor in found.tensors.items())


@pytest.mark.parametrize("reset", ["draw", "all"])
def test_killed_and_resumed_with_a_random_reset(tiny: Config, tiny_data: Splits, tmp_path: Path, reset: Any) -> None:
    config = dataclasses.replace(tiny, meta=dataclasses.replace(tiny.meta, reset=reset))
    train(config, tiny_data.base, tmp_path / "whole", quiet=True)
    run = kill(config, tmp_path, 5)
    train(config, tiny_data.base, run, resume=True, quiet=True)
    assert_same(tmp_path / "whole" / "phase3.safetensors", run / "phase3.safetensors")


def test_a_killed_run_that_began_after_a_phase_resumes_there(
    tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path
) -> None:
    run = kill(tiny, tmp_path, 1, start=whole / "phase1.safetensors")  # before its first own checkpoint
    train(tiny, tiny_data.base, run, resume=True, quiet=True)
    assert not (run / "phase1.safetensors").exists()
    assert_same(whole / "phase3.safetensors", run / "phase3.safetensors")


def test_cut_between_the_last_step_of_a_phase_and_its_file(
    tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(tiny, tiny_data.base, run, quiet=True)
    (run / "phase3.safetensors").unlink()
    train(tiny, tiny_data.base, run, resume=True, quiet=True)
    assert_same(whole / "phase3.safetensors", run / "phase3.safetensors")


@pytest.mark.parametrize("at", [3, 6])  # the last step of phase 1, where a checkpoint is due too; any other
def test_a_signal_at_any_step_loses_nothing(tiny: Config, tiny_data: Splits, tmp_path: Path, at: int) -> None:
    config = dataclasses.replace(tiny, phase1=dataclasses.replace(tiny.phase1, steps=3))
    train(config, tiny_data.base, tmp_path / "whole", quiet=True)
    real, done = MetaStep.__call__, 0

    def interrupted(self: MetaStep) -> None:
        nonlocal done
        real(self)
        done += 1
        if done == at:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetaStep, "__call__", interrupted)
        with pytest.raises(Stopped, match="saved there"):
            train(config, tiny_data.base, tmp_path / "run", quiet=True)
    train(config, tiny_data.base, tmp_path / "run", resume=True, quiet=True)
    for name in ("phase1", "phase2", "phase3"):
        assert_same(tmp_path / "whole" / f"{name}.safetensors", tmp_path / "run" / f"{name}.safetensors")


def long_training(tiny: Config, tmp_path: Path) -> list[str]:
    """A command that does not end by itself."""
    config = dataclasses.replace(tiny, phase1=dataclasses.replace(tiny.phase1, steps=100_000))
    (tmp_path / "long.toml").write_text(to_toml(config))
    return [sys.executable, "-m", "kcciol", "train", str(tmp_path / "long.toml"), "--out", str(tmp_path / "run")]


def wait_for_steps(run: Path, terminal: int | None = None) -> None:
    deadline = time.monotonic() + 60
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
        if terminal is not None and select.select([terminal], [], [], 0)[0]:
            os.read(terminal, 4096)  # the progress bar waits to be read


def assert_saved(run: Path) -> None:
    saved = checkpoint.load(run / "checkpoint.safetensors")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (saved.phase, saved.step) == (last["phase"], last["step"])
    assert saved.step > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_saves(tiny: Config, tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen([*long_training(tiny, tmp_path), "--quiet"], stderr=subprocess.PIPE, text=True)
    wait_for_steps(tmp_path / "run")
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "--resume` continues." in errors
    assert_saved(tmp_path / "run")


def test_a_terminal_that_closes_ends_the_command_and_saves(tiny: Config, tmp_path: Path) -> None:
    words = long_training(tiny, tmp_path)
    process, terminal = pty.fork()
    if process == 0:
        os.execv(words[0], words)
    wait_for_steps(tmp_path / "run", terminal)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 128 + signal.SIGHUP
    assert_saved(tmp_path / "run")


def test_behind_nohup_a_run_goes_on_without_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with watch_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.signal_number is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_start_from_a_phase_skips_it(tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path) -> None:
    train(tiny, tiny_data.base, tmp_path / "on", start=whole / "phase1.safetensors", quiet=True)
    assert not (tmp_path / "on" / "phase1.safetensors").exists()
    assert_same(whole / "phase3.safetensors", tmp_path / "on" / "phase3.safetensors")


def test_a_loss_that_is_not_finite_stops_and_keeps_what_was_saved(
    tiny: Config, tiny_data: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MetaStep.__call__

    def poisoned(self: MetaStep) -> None:
        if self.number == 2 and int(self.step) == 3:
            self.Theta.mul_(float("nan"))
        real(self)

    monkeypatch.setattr(MetaStep, "__call__", poisoned)
    with pytest.raises(Diverged, match=r"phase 2 near step 4.*--start .*phase1.safetensors"):
        train(tiny, tiny_data.base, tmp_path / "run", quiet=True)
    saved = checkpoint.load(tmp_path / "run" / "checkpoint.safetensors")
    assert (saved.phase, saved.step) == (2, 3)
    assert (tmp_path / "run" / "phase1.safetensors").exists()
    assert not (tmp_path / "run" / "phase2.safetensors").exists()


def test_a_state_that_is_not_finite_is_never_saved(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    bad = dataclasses.replace(tiny, phase1=dataclasses.replace(tiny.phase1, beta=1e38))
    with pytest.raises(Diverged, match="phase 1"):
        train(bad, tiny_data.base, tmp_path / "run", quiet=True)
    assert checkpoint.load(tmp_path / "run" / "checkpoint.safetensors").step in (0, 3)
    assert not (tmp_path / "run" / "phase1.safetensors").exists()


@pytest.mark.parametrize(
    ("number", "name"), [(1, "alpha"), (1, "beta"), (2, "alpha"), (2, "gamma"), (3, "beta"), (3, "lam")]
)
def test_settings_beyond_all_measure_are_named(
    tiny: Config, tiny_data: Splits, tmp_path: Path, number: int, name: str
) -> None:
    change: Any = {name: 3e38}
    phase = dataclasses.replace(tiny.phases[number - 1], **change)
    bad: Any = {f"phase{number}": phase, "meta": dataclasses.replace(tiny.meta, clamp=0.0)}
    with pytest.raises(Diverged, match=rf"phase {number} near step .*lower .*phase{number}\.{name}"):
        train(dataclasses.replace(tiny, **bad), tiny_data.base, tmp_path / "run", quiet=True)


@pytest.mark.parametrize("last", [0, 4, -1])
def test_a_phase_that_is_none_is_refused_before_anything_is_written(
    tiny: Config, tiny_data: Splits, tmp_path: Path, last: int
) -> None:
    with pytest.raises(UserError, match="last must be 1, 2 or 3"):
        train(tiny, tiny_data.base, tmp_path / "run", last=last)
    assert not (tmp_path / "run").exists()


def test_a_foreign_checkpoint_is_refused_and_nothing_is_touched(
    tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path
) -> None:
    other = dataclasses.replace(tiny, seed=5)
    train(other, tiny_data.base, tmp_path / "run", quiet=True)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    own = (tmp_path / "run" / "phase2.safetensors").read_bytes()
    for foreign, words in (((whole / "checkpoint.safetensors").read_bytes(), "seed = 0"), (own, "not a checkpoint")):
        (tmp_path / "run" / "checkpoint.safetensors").write_bytes(foreign)
        with pytest.raises(UserError, match=words):
            train(other, tiny_data.base, tmp_path / "run", resume=True, quiet=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_two_processes_cannot_train_in_one_folder(tiny: Config, tiny_data: Splits, whole: Path) -> None:
    pytest.importorskip("fcntl", reason="this system has no such locks")
    before = (whole / "metrics.jsonl").read_bytes() + b"a line of the other process\n"
    (whole / "metrics.jsonl").write_bytes(before)
    with RunFolder(whole).locked(), pytest.raises(UserError, match="Another process"):
        train(tiny, tiny_data.base, whole, resume=True, quiet=True)
    assert (whole / "metrics.jsonl").read_bytes() == before
    train(tiny, tiny_data.base, whole, resume=True, quiet=True)  # free again, and the stray line is gone
    assert b"other" not in (whole / "metrics.jsonl").read_bytes()


def test_tensorboard_events(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    config = dataclasses.replace(tiny, engine=dataclasses.replace(tiny.engine, tensorboard=True))
    train(config, tiny_data.base, tmp_path / "run", quiet=True)
    assert sum(p.stat().st_size for p in (tmp_path / "run").glob("events.out.tfevents.*")) > 500


def test_folder_errors(tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--resume"):
        train(tiny, tiny_data.base, whole, quiet=True)
    with pytest.raises(UserError, match="no run"):
        train(tiny, tiny_data.base, tmp_path / "none", resume=True, quiet=True)
    other = dataclasses.replace(tiny, net=dataclasses.replace(tiny.net, channels=7))
    with pytest.raises(UserError, match=r"net.channels = 6, now it is 7"):
        train(other, tiny_data.base, whole, resume=True, quiet=True)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "phase1.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="holds files of a run"):
        train(tiny, tiny_data.base, tmp_path / "bare", quiet=True)
    with pytest.raises(UserError, match="no phase comes after it"):
        train(tiny, tiny_data.base, tmp_path / "start", start=whole / "phase3.safetensors", quiet=True)
    with pytest.raises(UserError, match="another network"):
        train(other, tiny_data.base, tmp_path / "start", start=whole / "phase1.safetensors", quiet=True)
