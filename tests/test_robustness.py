"""Files and command lines that are nearly right, and what a small file may ask for (`benchmarks/robustness.py`)."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import robustness
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from trial_commands import try_commands
from trial_files import TODAY
from trials import SMALL, Findings, Options, limits, peak_mib

from kcciol.cli import main
from kcciol.config import Config, read
from kcciol.encoders import run as encoders
from kcciol.encoders.run import Representation
from kcciol.engine import checkpoint
from kcciol.engine.record import commit_of
from kcciol.engine.run_folder import RunFolder
from kcciol.errors import UserError
from kcciol.files import remove_stale_parts, replacing
from kcciol.files import tensors as files
from kcciol.files.tensors import Format, read_tensors, sealed, write_tensors
from kcciol.learner import OnlineLearner
from kcciol.learner.saving import FORMAT
from kcciol.learners import fitting, learner_type
from kcciol.learners.model import Head
from kcciol.learners.ncm import NCM, NCMSettings
from kcciol.learners.ring import KEPT
from kcciol.serialization import to_toml
from kcciol.testing.case import equal
from tests.saved import WIDTH, header_of, kept, rewritten

OPTIONS = Options(seconds=10.0)  # a busy machine is no failure


# --- mutants ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["learners", "checkpoints"])
def test_mutated_files_are_loaded_or_refused(part: Any, tmp_path: Path) -> None:
    found = Findings()
    robustness.part_of(part, tmp_path, OPTIONS)(found, 500)
    assert found.faults == []
    assert found.done == 500
    assert 0 < found.outcomes["loaded"] < found.outcomes["refused"]


def test_mutated_command_lines_end_without_a_traceback() -> None:
    found = Findings()
    try_commands(Options(seconds=20.0), found, 30)
    assert found.faults == []
    assert found.outcomes["refused"] > 10


def test_kept_logits_of_another_type_are_refused() -> None:
    learner = OnlineLearner("der", 4)
    learner.learn_one([1.0] * 4, "a")
    state = learner.learner.state_dict()
    name = next(name for name in state if name.startswith("logits"))
    with pytest.raises(UserError, match="does not fit"):
        OnlineLearner("der", 4).learner.load_state_dict(
            state | {name: torch.zeros_like(state[name], dtype=torch.uint8)}
        )


# --- what a file may ask for ------------------------------------------------------------------------------------------


def whole_settings(name: str) -> list[str]:
    """Settings of a learner that are whole numbers."""
    fields = dataclasses.fields(learner_type(name).settings_type)
    return [field.name for field in fields if type(field.default) is int]


@pytest.mark.parametrize("name", fitting("head"))
def test_a_small_file_does_not_ask_for_a_large_machine(name: str, tmp_path: Path) -> None:
    """Each whole number, and each two, as large as can be or below zero: loaded or refused, in little memory."""
    path = kept(tmp_path, name)
    header, tensors = header_of(path), load_file(path)
    settings, large = whole_settings(name), [2**31 - 1, -(10**7), 10**4299, -(10**4299)]
    changes = [{setting: value} for setting in settings for value in large]
    pairs = [(1 - 2**31, 2**27), (2**27, 1 - 2**31), (-(10**7), 10**8), (10**8, -(10**7)), (2**27, 2**27)]
    changes += [{a: x, b: y} for a, b in itertools.combinations(settings, 2) for x, y in pairs]
    before = peak_mib()
    with limits(1024):
        for change in changes:
            text = json.dumps(header | {"settings": header["settings"] | change})
            save_file(tensors, path, sealed(text, tensors))
            with contextlib.suppress(UserError):
                OnlineLearner.load(path)
                assert all(0 <= value < 2**31 for value in change.values())
    assert peak_mib() - before < 300


@pytest.mark.parametrize("value", [10**4299 - 1, 10**4299, -(10**4299)], ids=["shorter", "longer", "negative"])
@pytest.mark.parametrize(("name", "setting"), [("er", "slots"), ("er", "rate"), ("ridge", "units")])
def test_numbers_of_thousands_of_digits_are_refused(name: str, setting: str, value: int, tmp_path: Path) -> None:
    path = kept(tmp_path, name)
    rewritten(path, lambda header, tensors: header["settings"].update({setting: value}))
    with pytest.raises(UserError, match=setting) as raised:
        OnlineLearner.load(path)
    assert len(str(raised.value)) < 400


def test_the_rows_of_classes_to_come_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "hal.safetensors"
    OnlineLearner("hal", WIDTH, {"ring": 2**17}).learn_one([1.0] * WIDTH, "a").save(path)  # 2.5 MiB
    with pytest.raises(UserError, match=r"asks for 18,[\d,]+ bytes beyond"):
        OnlineLearner.load(path, most_extra=2**20)
    learner = OnlineLearner.load(path).learner
    assert learner.rows[KEPT].shape[1] == 1
    taken = learner.rows[KEPT].nbytes
    learner.learn(torch.ones(1, WIDTH), np.array([1]))
    assert learner.rows[KEPT].nbytes - taken <= learner.bytes_to_come(1)


def test_what_there_is_no_room_for_is_not_known() -> None:
    for settings in ({"ring": 2**31 - 1}, {"ring": 5 * 10**8}):
        learner = OnlineLearner("hal", 4, settings)
        with limits(1024):
            for label in ("a", "b"):
                with pytest.raises(UserError, match="cannot be learned here"):
                    learner.learn_one([1.0] * 4, label)
                with pytest.raises(UserError, match="cannot be learned here"):
                    learner.learn_many([[1.0] * 4], [label])
        assert (learner.classes_, learner.learner.classes, learner.learner.steps) == ((), 0, 0)
        with pytest.raises(UserError, match="Nothing has been learned"):
            learner.predict_one([1.0] * 4)


def test_who_loads_a_file_may_allow_more(tmp_path: Path) -> None:
    path = kept(tmp_path, "er", {"slots": 1000})
    with pytest.raises(UserError, match="most_extra"):
        OnlineLearner.load(path, most_extra=1000)
    assert OnlineLearner.load(path, most_extra=10**6).classes_ == ("a", "b")


@pytest.mark.parametrize("name", fitting("head"))
def test_what_fails_while_it_is_learned_is_not_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't allocate memory")

    fields = learner_type(name).settings_type.__dataclass_fields__
    settings = {key: value for key, value in SMALL.items() if key in fields}
    learner, other = (OnlineLearner(name, WIDTH, settings) for _ in range(2))
    for number in range(12):  # with room for the next class, and without
        x = torch.arange(WIDTH) / 9 + number
        for one in (learner, other):
            one.learn_one(x, number)
            one.predict_one(x)
        with monkeypatch.context() as patch:
            for method in ("_learn", "_learn_class"):
                patch.setattr(learner.learner, method, fail)
            with pytest.raises(UserError, match="cannot be learned here"):
                learner.learn_one(x, "new")
            with pytest.raises(UserError, match="cannot be learned here"):
                learner.learn_many(torch.stack([x, x]), ["new", "new"])
        assert learner.classes_ == other.classes_
        assert learner.scores_one(x) == other.scores_one(x)
    assert equal(learner.learner.state_dict(), other.learner.state_dict())


@pytest.mark.parametrize("steps", [0, 5, 63, 64])
@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize(
    ("name", "where", "call"),
    [
        *((name, "add_to", 1) for name in ("ncm", "gaussian", "slda", "ridge")),
        ("gaussian", "add_to", 2),
        ("slda", "scatter", 1),
        ("ridge", "scatter", 1),
    ],
)
def test_what_fails_in_the_middle_is_not_learned_in_part(
    name: str, where: str, call: int, together: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"units": 7} if name == "ridge" else {}
    random = torch.Generator().manual_seed(steps)
    xs = torch.rand(steps + together, WIDTH, generator=random)
    learner, other = (OnlineLearner(name, WIDTH, settings) for _ in range(2))
    for one in (learner, other):
        for number, x in enumerate(xs[:steps]):
            one.learn_one(x, number % 4)
    target, method = (learner.learner.scatter, "add") if where == "scatter" else (learner.learner, where)  # type: ignore[attr-defined]
    whole, calls = getattr(target, method), []

    def fail(*arguments: object) -> None:
        calls.append(whole(*arguments))
        if len(calls) == call:
            raise MemoryError

    for label in (0, "new"):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(target, method, fail)
            with pytest.raises(UserError, match="cannot be learned here"):
                learner.learn_many(xs[steps:], [label] * together)
        assert len(calls) == call
        assert equal(learner.learner.state_dict(), other.learner.state_dict())
        assert learner.classes_ == other.classes_
    for one in (learner, other):
        one.learn_many(xs[steps:], [0] * together)
    assert learner.scores_one(xs[0]) == other.scores_one(xs[0])


@pytest.mark.parametrize(("name", "settings", "width"), [("ridge", {"units": 300}, 4), ("slda", {}, 300)])
def test_what_is_in_a_file_is_not_asked_for_beyond_it(
    name: str, settings: dict[str, Any], width: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    OnlineLearner(name, width, settings).learn_one(torch.ones(width), "a").save(path)
    assert path.stat().st_size > 300_000
    assert OnlineLearner.load(path, most_extra=150_000).classes_ == ("a",)


def test_without_locks_nobody_takes_a_part_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def none(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    path = tmp_path / "a.txt"
    with replacing(path) as part:
        part.write_text("whole")
        remove_stale_parts(tmp_path)
    assert path.read_text() == "whole"


@pytest.mark.parametrize("what", ["pipe", "device", "folder", "loop", "large", "zero"])
def test_only_files_are_opened(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "thing"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "loop":
        path.symlink_to(path)
    elif what == "device":
        path = Path("/dev/zero")
    elif what == "zero":
        path = Path("a\0b")
    else:
        kept(tmp_path).rename(path)
        monkeypatch.setenv("KCCIOL_LARGEST_FILE", "100")
    loads: list[Callable[[Path], object]] = [OnlineLearner.load, checkpoint.load, read]
    for load in loads[: 2 if what == "large" else 3]:
        with pytest.raises(UserError) as raised:
            load(path)
        assert "\n" not in str(raised.value)


# --- kinds, versions, encoders ----------------------------------------------------------------------------------------


def test_a_newer_version_is_refused_by_both_numbers(tmp_path: Path) -> None:
    path = kept(tmp_path)
    rewritten(path, lambda header, tensors: header.update(version=9))
    with pytest.raises(UserError, match=r"is of version 9 .* reads up to version 2"):
        OnlineLearner.load(path)


def test_files_of_all_versions_are_brought_up_to_date_step_by_step(tmp_path: Path) -> None:
    def double(header: files.Header, tensors: files.Tensors) -> tuple[files.Header, files.Tensors]:
        return header | {"steps": [*header.get("steps", []), 2]}, {n: 2 * t for n, t in tensors.items()}

    def rename(header: files.Header, tensors: files.Tensors) -> tuple[files.Header, files.Tensors]:
        return header | {"steps": [*header["steps"], 3]}, {f"new {n}": t for n, t in tensors.items()}

    old, new = Format("thing", (files.add_nothing,)), Format("thing", (files.add_nothing, double, rename))
    path = tmp_path / "a"
    write_tensors(path, old, {"of": 2}, {"x": torch.ones(2)})
    header, tensors = read_tensors(path, new)
    assert header == {"of": 2, "steps": [2, 3]}
    assert tensors["new x"].tolist() == [2.0, 2.0]
    with pytest.raises(UserError, match="not a saved learner, but a saved thing"):
        read_tensors(path, FORMAT)


def test_a_kind_of_learner_is_not_taken_for_another() -> None:
    class Derived(NCM):
        """The same tensors, something else."""

    learner, derived = (kind(Head(WIDTH), NCMSettings()) for kind in (NCM, Derived))
    with pytest.raises(UserError, match="of another kind than Derived"):
        derived.load_state_dict(learner.state_dict())


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    learner = OnlineLearner("er", WIDTH, {"slots": 3}).learn_one([1.0] * WIDTH, "a").learn_one([0.0] * WIDTH, "b")
    before = learner.learner.state_dict()
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "memory.y": lambda t: t + 5,
        "memory.x": lambda t: t.double(),
        "bookkeeping.seen": lambda t: t.to(torch.uint8),
        "bookkeeping.steps": lambda t: -t,
        "parameters.weight": lambda t: t * torch.nan,
        "parameters.bias": lambda t: t[:, :1],
    }
    for name, change in changes.items():
        with pytest.raises(UserError):
            learner.learner.load_state_dict(before | {name: change(before[name])})
        assert all(torch.equal(before[n], t) for n, t in learner.learner.state_dict().items())
    learner.learn_one([1.0] * WIDTH, "c")


def test_a_learner_knows_what_made_its_features(tmp_path: Path, tiny: Config, tiny_data: Any) -> None:
    one = Representation.untrained(tiny, tiny_data.base)
    other = Representation(one.config, one.problem, one.Theta.clone(), one.base_names)
    other.Theta[0] += 1
    assert one.identity != other.identity
    features = one.features(tiny_data.novel.images[:2, 0])
    assert features.shape[1] == one.width
    learner = OnlineLearner("ncm", one.width, encoder=one).learn_many(features, ["a", "b"])
    assert one.identity[:20] in repr(learner)
    path = tmp_path / "a.safetensors"
    learner.save(path)
    assert OnlineLearner.load(path, encoder=one).encoder == OnlineLearner.load(path).encoder == one.identity
    for wrong in (other, "another"):
        with pytest.raises(UserError, match=r"has learned features of the encoder '[0-9a-f]{64}', not of"):
            OnlineLearner.load(path, encoder=wrong)
    with pytest.raises(UserError, match=f"makes {one.width} features, but this learner takes 3"):
        OnlineLearner("ncm", 3, encoder=one)
    nothing: Any = 7
    with pytest.raises(UserError, match="encoder is 7"):
        OnlineLearner("ncm", 3, encoder=nothing)
    before = TODAY / "closed-form.safetensors"
    assert OnlineLearner.load(before).encoder is None
    assert OnlineLearner.load(before, encoder="mine").encoder == "mine"


# --- parts of files ---------------------------------------------------------------------------------------------------


def killed_while_saving(path: Path) -> None:
    child = os.fork()
    if child == 0:
        with replacing(path) as part:
            part.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_what_a_killed_save_left_goes_with_the_next(tmp_path: Path) -> None:
    path, folder = tmp_path / "a.json", RunFolder(tmp_path)
    for name in ("a.json", "b.json"):
        killed_while_saving(tmp_path / name)
    (tmp_path / ".theirs.part").touch()
    (tmp_path / ".a.json.0123456.part").touch()  # ours have eight digits
    assert len(list(tmp_path.glob(".*.part"))) == 4
    with replacing(path) as part:
        part.write_text("whole")
        with replacing(path) as second:  # another writer's is in use
            second.write_text("more")
        assert part.exists()
    assert path.read_text() == "whole"
    assert [p.name[:8] for p in sorted(tmp_path.glob(".*.part"))] == [".a.json.", ".b.json.", ".theirs."]
    with folder.locked():
        assert sorted(p.name for p in tmp_path.glob(".*.part")) == [".a.json.0123456.part", ".theirs.part"]


def test_a_name_comes_to_disk_with_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(number: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{number}").readlink()))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(tmp_path / "a") as part:
        part.write_text("whole")
    assert synced == [str(part), str(tmp_path)]


def test_a_link_to_itself_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(UserError, match="a link that leads to itself"), replacing(tmp_path / "a"):
        pass


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trajectory.support", "9" * 20], "trajectory.support is 99999999999999999999"),
        (["--trajectory.support", "1" + "0" * 4000], "trajectory.support is 1000"),
        (["--data.train-samples", "9" * 20], "--data.train-samples is 99999999999999999999"),
        (["--phase1.alpha", "1e308"], r"phase1.alpha is 1e+308"),
        (["--data.seed", "-1"], "data.seed is -1"),
    ],
)
def test_numbers_have_bounds(words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "quickstart", *words, "--out", str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert len(said) < 400
    assert not list(tmp_path.iterdir())


def test_escapes_in_names_are_shown(tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = "\x1b[31mred\nkcciol: all is well"
    lines = [["train", odd], ["evaluate", odd], ["train", "quickstart", f"--{odd}", "1"], ["data", "check", odd], [odd]]
    for words in lines:
        try:
            code: Any = main(words)
        except SystemExit as end:
            code = end.code
        assert code == 2
        said = "".join(capsys.readouterr())
        assert "\\x1b" in said
        assert "\x1b" not in said
        assert "\nkcciol: all is well" not in said
    (tmp_path / "tiny.toml").write_text(to_toml(tiny))
    assert main(["train", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / odd), "--quiet"]) == 0
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert "\nkcciol" not in said


# --- the record -------------------------------------------------------------------------------------------------------


def test_a_change_anywhere_in_the_repository_is_told(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "benchmark.py").touch()
    git("init")
    assert commit_of(package) is None  # it is not of this repository
    git("add", ".")
    git("commit", "-m", "one")
    clean = commit_of(package)
    assert clean is not None
    assert len(clean) == 12
    (tmp_path / "result.json").touch()  # is not followed, and no code
    assert commit_of(package) == clean
    (tmp_path / "benchmark.py").write_text("changed")
    assert commit_of(package) == f"{clean}+changes"
    git("checkout", "benchmark.py")
    for new in (package / "new.toml", package / "new.py", tmp_path / "tools" / "new.py"):
        new.parent.mkdir(exist_ok=True)
        new.touch()
        assert commit_of(package) == f"{clean}+changes"
        new.unlink()
        assert commit_of(package) == clean


def test_a_saved_representation_has_the_same_identity(tmp_path: Path, tiny: Config, tiny_data: Any) -> None:
    one = Representation.untrained(tiny, tiny_data.base)
    tensors = one.problem.layout.views(one.Theta)
    path = tmp_path / "a.safetensors"
    checkpoint.Checkpoint(tiny, tiny_data.base.image_shape, one.base_names, 1, 0, tensors).save(path)
    assert encoders.load(path).identity == one.identity
