"""What fails, is damaged, or is asked for wrongly, in rehearsals: it is said in a sentence, and costs nothing else."""

from __future__ import annotations

import errno
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kcciol import cli
from kcciol.config import Config
from kcciol.engine import checkpoint
from kcciol.errors import UserError
from kcciol.files import documents, file_lock, write_json
from kcciol.meta import phases
from kcciol.paper import runner
from kcciol.paper import study as study_module
from kcciol.paper.experiment import Scope
from kcciol.paper.plan import EXPERIMENTS, RunPlan, groups
from kcciol.paper.runner import make
from kcciol.paper.studies import colour, gan, omniglot, sine
from kcciol.paper.study import Cell, Subject, Workspace, folder_of, is_trained
from kcciol.paper.writing import gather
from tests.paper.example import OMNIGLOT, plan


def test_a_cell_that_fails_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(column: str) -> Any:
        def fail(bench: Subject) -> dict[str, Any]:
            raise ValueError("no")

        return {"adam": Cell(lambda bench: {}, fail)} if column == "oml" else omniglot.table1(column)

    study = replace(OMNIGLOT, parts={**OMNIGLOT.parts, "table1": broken})
    monkeypatch.setitem(EXPERIMENTS, "omniglot", study)
    wanted = plan(tmp_path, columns=("oml", "mrcl"))
    assert make(wanted) == ["omniglot, oml, seed 0"]
    assert list(gather(wanted, study.name)["table1"]) == ["mrcl"]
    assert [group.columns for group in groups(wanted)] == [("oml",)]


def test_no_name_of_a_folder_reaches_the_terminal_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "\x1b[31mred"

    def broken(column: str) -> Any:
        def fail(bench: Subject) -> dict[str, Any]:
            kind = ValueError if column == "oml" else UserError
            raise kind(f"no {bench.workspace.runs}")

        return {"adam": Cell(lambda bench: {}, fail)}

    def fall(scope: Scope) -> None:
        raise ValueError(f"no {scope.workspace.runs}")

    study = replace(OMNIGLOT, parts={**OMNIGLOT.parts, "table1": broken})
    monkeypatch.setitem(EXPERIMENTS, "omniglot", study)
    assert len(make(plan(tmp_path / odd, columns=("oml", "mrcl")))) == 2
    monkeypatch.setattr(sine.EXPERIMENT, "make", fall)
    assert make(RunPlan(Workspace(runs=tmp_path / odd, tiny=True), {"sine": ("table4",)}, seeds=(0,))) == ["sine"]
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert said.count("\\x1b[31mred") >= 4  # twice for each that fails by a mistake of ours, which has a traceback


def test_results_of_other_settings_are_refused(tmp_path: Path) -> None:
    wanted = plan(tmp_path, columns=("oml",))
    make(wanted)
    path = OMNIGLOT.path_of(wanted.workspace, "table1", "oml", 0, "adam")
    cell = json.loads(path.read_text())
    for section, key in (("config", "phase1"), ("spec", "algorithm 4")):
        changed = json.loads(json.dumps(cell))
        changed[section][key] = {}
        path.write_text(json.dumps(changed))
        with pytest.raises(UserError, match="other settings"):
            make(wanted)
        with pytest.raises(UserError, match="other settings"):
            gather(wanted, "omniglot")
    folder = folder_of(OMNIGLOT, "oml", 0, wanted.workspace)
    for old, new in (("oml", "mrcl"), ("mrcl", "oml")):  # a run that is done, but another's
        folder_of(OMNIGLOT, old, 0, wanted.workspace).rename(folder_of(OMNIGLOT, new, 0, wanted.workspace))
        if new == "mrcl":
            with pytest.raises(UserError, match="trained with other settings"):
                _ = Subject(OMNIGLOT, "mrcl", 0, wanted.workspace).representation
    assert folder.exists()
    path.write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        make(wanted)
    damages: list[Any] = [[], {k: v for k, v in cell.items() if k != "record"}, {**cell, "classes": [1]}]
    n, row = next(iter(cell["classes"].items()))
    for values in ([], [None, *row["by_trajectory"][1:]], row["by_trajectory"][1:], "x"):
        damages.append({**cell, "classes": {**cell["classes"], n: {**row, "by_trajectory": values}}})
    for damaged in damages:
        path.write_text(json.dumps(damaged))
        with pytest.raises(UserError, match="cannot be read"):
            make(wanted)


def test_mistakes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ([], "needs the name of an experiment"),
        (["table9"], "no experiment 'table9'"),
        (["table1", "--columns", "oil"], "no representation 'oil'"),
        (["table1", "--jobs", "0"], "--jobs must be at least 1"),
        (["table1", "--minutes", "nan"], "--minutes above 0"),
        (["table1", "--seeds"], "one or more different numbers"),
        (["table4", "--columns", "oml"], "sine is made in one go"),
        (["table1", "--root", "/nope"], "does not exist"),
        (["figures", "--preset", "tiny", "--seeds", "5"], "Nothing of this"),
    ):
        assert cli.main(["reproduce", *words, "--runs", str(tmp_path / "r"), "--out", str(tmp_path / "o")]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert cli.main(["reproduce", "table1", "--out", str(tmp_path / "file"), "--runs", str(tmp_path / "r")]) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_a_lost_end_of_a_training_is_no_earlier_phase(tmp_path: Path) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    last = Subject(OMNIGLOT, "kcciol", 0, workspace).representation
    folder = folder_of(OMNIGLOT, "kcciol", 0, workspace)
    (folder / "phase3.safetensors").unlink()
    assert not is_trained(OMNIGLOT, "kcciol", 0, workspace)
    assert torch.equal(
        Subject(OMNIGLOT, "kcciol", 0, workspace).representation.Theta, last.Theta
    )  # the checkpoint has it
    (folder / "phase1.safetensors").unlink()
    with pytest.raises(
        UserError, match=r"no checkpoint .*phase1.safetensors. \(Remove .*kcciol-seed0 to train it again"
    ):
        _ = Subject(OMNIGLOT, "control", 0, workspace).representation
    for path in folder.glob("*.safetensors"):
        path.unlink()
    with pytest.raises(UserError, match=r"\(Remove .*kcciol-seed0 to train it again"):
        _ = Subject(OMNIGLOT, "kcciol", 0, workspace).representation


@pytest.mark.parametrize("damage", ["half", "no numbers", "half a config", "no config"])
def test_a_damaged_training_can_be_removed(tmp_path: Path, damage: str) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    _ = Subject(OMNIGLOT, "kcciol", 0, workspace).representation
    folder = folder_of(OMNIGLOT, "kcciol", 0, workspace)
    last, config = folder / "phase3.safetensors", folder / "config.toml"
    if damage == "half":
        last.write_bytes(last.read_bytes()[:-100])
    elif damage == "no numbers":
        found = checkpoint.load(last)
        found.tensors = {name: tensor * float("nan") for name, tensor in found.tensors.items()}
        found.save(last)
    else:
        last.unlink()
        config.write_text(config.read_text()[:-30]) if damage == "half a config" else config.unlink()
    with pytest.raises(UserError, match=r"\(Remove .*kcciol-seed0 to train it again"):
        _ = Subject(OMNIGLOT, "kcciol", 0, workspace).representation


def test_nobody_is_told_to_remove_a_training_that_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    _ = Subject(OMNIGLOT, "kcciol-phase1", 0, workspace).representation

    def refuse(*_: Any, **__: Any) -> None:
        raise UserError("The run folder cannot be written.")

    monkeypatch.setattr(study_module, "train", refuse)
    with pytest.raises(UserError, match=r"cannot be written\.$"):
        _ = Subject(OMNIGLOT, "kcciol", 0, workspace).representation

    def forbid(path: Path, flags: int, mode: int = 0) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("kcciol.files.os.open", forbid)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\)\.$"):
        _ = Subject(OMNIGLOT, "kcciol-phase1", 0, workspace).representation


@pytest.mark.parametrize("text", ["", "null", '{"a": 1}', "abc"])
def test_a_damaged_note_of_the_time_stops_nothing(tmp_path: Path, text: str) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    _ = Subject(OMNIGLOT, "kcciol-phase1", 0, workspace).representation
    (folder_of(OMNIGLOT, "kcciol", 0, workspace) / "seconds.json").write_text(text)
    _ = Subject(OMNIGLOT, "kcciol", 0, workspace).representation
    assert 0 < study_module.trained_seconds(OMNIGLOT, "kcciol", 0, workspace) < 100


def test_what_cannot_be_written_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = plan(tmp_path, columns=("kcciol-phase1",))
    assert make(wanted) == []
    (tmp_path / "cells" / "omniglot" / "kcciol-seed0").touch()  # where a folder must be
    (tmp_path / "cells" / "sine").touch()
    every = plan(tmp_path, columns=("kcciol", "lambda0"))
    assert make(every) == ["omniglot, kcciol, seed 0"]
    assert [group.columns for group in groups(every)] == [("kcciol",)]  # the other of its family is made
    assert make(replace(every, parts={"sine": ("table4",), "mnist": ("gan",)}, columns=())) == ["sine"]
    assert gan.EXPERIMENT.path_of(every.workspace, "kcciol", 0).exists()
    said = capsys.readouterr().err
    assert "kcciol failed ([Errno" in said
    assert "sine failed ([Errno" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("damage", ["no classes", "no row", "no streams"])
def test_a_cell_without_all_its_streams_is_named(tmp_path: Path, damage: str) -> None:
    wanted = plan(tmp_path, columns=("oml",))
    assert make(wanted) == []
    path = OMNIGLOT.path_of(wanted.workspace, "table1", "oml", 0, "adam")
    cell = json.loads(path.read_text())
    if damage == "no classes":
        del cell["classes"]
    elif damage == "no row":
        del cell["classes"]["6"]
    else:
        del cell["classes"]["6"]["by_trajectory"]
    path.write_text(json.dumps(cell))
    with pytest.raises(UserError, match=r"table1-adam.json cannot be read \(it lacks the streams of . classes\)"):
        make(wanted)


def test_nothing_goes_on_from_a_training_of_other_settings(tmp_path: Path) -> None:
    study, workspace = colour.MINI_IMAGENET, Workspace(runs=tmp_path, tiny=True)
    _ = Subject(study, "oml", 0, workspace).representation
    folder_of(study, "kcciol-paper", 0, workspace).rename(folder_of(study, "kcciol", 0, workspace))
    with pytest.raises(UserError, match="kcciol-seed0 was trained with other settings"):
        _ = Subject(study, "control", 0, workspace).representation
    assert not folder_of(study, "control", 0, workspace).exists()


def test_what_is_refused_is_in_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "table1", "--root", "nowhere"]) == 2
    assert not list(tmp_path.iterdir())
    (tmp_path / "runs").mkdir()
    assert cli.main(["reproduce", "table1", "--root", "nowhere"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]  # which was there


def test_sigterm_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "make", lambda plan: signal.raise_signal(signal.SIGTERM))
    words = ["reproduce", "table1", "--preset", "tiny", "--runs", str(tmp_path / "r"), "--out", str(tmp_path / "o")]
    assert cli.main(words) == 143
    assert capsys.readouterr().err == "kcciol: interrupted. Call again to go on.\n"
    assert cli.main([*words, "--no-tables"]) == 143
    assert capsys.readouterr().err == ""  # one process among several: whoever started it speaks for it


def test_a_cell_that_fails_costs_no_other_of_its_column_or_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(bench: Subject) -> dict[str, Any]:
        raise ValueError("no")

    def broken(column: str) -> Any:
        cells = dict(omniglot.heads(column))
        return cells | {"online-sgd": Cell(lambda bench: {}, fail)} if column == "kcciol" else cells

    study = replace(OMNIGLOT, parts={**OMNIGLOT.parts, "heads": broken})
    monkeypatch.setitem(EXPERIMENTS, "omniglot", study)
    wanted = plan(tmp_path, "heads")
    assert make(wanted) == ["omniglot, kcciol, seed 0"]
    assert "1 cells of kcciol failed (ValueError: no)" in capsys.readouterr().err
    found = gather(wanted, study.name)["heads"]
    assert set(found["kcciol"]) == {"ncm", "gaussian", "slda", "ridge"}
    assert "online-sgd" in found["lambda0"]
    assert not list(tmp_path.glob("**/cells/**/*.lock"))


def test_a_full_disk_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []

    def full(path: Path, value: Any) -> None:
        if path.name == "record.json":  # training comes to its end
            write_json(path, value)
            return
        made.append(path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(documents, "write_json", full)
    assert make(plan(tmp_path, "heads", columns=("kcciol", "lambda0"))) == ["omniglot, kcciol, seed 0"]
    assert len(made) == 1  # no other is measured, which could not be kept either
    said = capsys.readouterr().err
    assert "kcciol failed ([Errno 28] No space left on device" in said
    assert said.count("\n") == 1
    monkeypatch.setattr(documents, "write_json", lambda path, value: Path("/nowhere/at/all").read_text())
    assert make(plan(tmp_path, "heads", columns=("kcciol",))) == ["omniglot, kcciol, seed 0"]
    assert "Traceback" in capsys.readouterr().err  # a mistake of ours
    monkeypatch.setattr(documents, "write_json", full)
    with pytest.raises(UserError, match=r"sine failed \(.*No space left on device.*\); what is made is kept"):
        make(RunPlan(Workspace(runs=tmp_path, tiny=True), {"sine": ("table4",), "mnist": ("gan",)}, seeds=(0,)))
    assert not (tmp_path / "gan").exists()
    capsys.readouterr()
    monkeypatch.undo()
    monkeypatch.setattr(checkpoint, "write_tensors", lambda path, *more: full(path, more))
    assert make(plan(tmp_path, "heads", columns=("oml",))) == ["omniglot, oml, seed 0"]
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert said.count("\n") == 1


def test_a_training_that_fails_costs_no_other_of_its_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(config: Config, base: Any, out: Path, *more: Any, **named: Any) -> Any:
        if out.name.startswith("kcciol-o"):
            raise RuntimeError("out of memory")
        return phases.train(config, base, out, *more, **named)

    monkeypatch.setattr(study_module, "train", broken)
    wanted = plan(tmp_path, columns=("kcciol", "kcciol-o", "lambda0"))
    assert make(wanted) == ["omniglot, kcciol, seed 0"]
    assert "kcciol-o failed (RuntimeError: out of memory)" in capsys.readouterr().err
    assert set(gather(wanted, "omniglot")["table1"]) == {"kcciol", "lambda0"}


def test_what_another_process_trains_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = plan(tmp_path)
    folder = folder_of(OMNIGLOT, "kcciol", 0, wanted.workspace)
    folder.mkdir(parents=True)
    with file_lock(folder / ".lock") as mine:
        assert mine
        assert make(wanted) == []  # of either column of the family
    assert "Another process" in capsys.readouterr().err


def test_what_another_process_has_just_begun_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan(tmp_path, columns=("kcciol",))
    folder = folder_of(OMNIGLOT, "kcciol", 0, wanted.workspace)

    def too_late(config: Config, base: Any, out: Path, resume: bool, *more: Any, **named: Any) -> Any:
        assert not resume  # it was not there when it was looked for
        folder.mkdir(parents=True)
        (folder / "config.toml").touch()
        return phases.train(config, base, out, resume, *more, **named)

    monkeypatch.setattr(study_module, "train", too_late)
    folder.parent.mkdir(parents=True)
    with file_lock(tmp_path / "lock") as mine:
        monkeypatch.setattr("kcciol.engine.run_folder.file_lock", lambda path: file_lock(tmp_path / "lock"))
        assert mine
        assert make(wanted) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["table1", "--seeds", "0", "0"], "different numbers"),
        (["table1", "table4", "--columns", "oml"], "sine is made in one go"),
        (["gan", "--root", "{nowhere}"], "does not exist"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert cli.main(["reproduce", *(w.format(nowhere=tmp_path / "nowhere") for w in words), *places]) == 2
    assert says in capsys.readouterr().err
