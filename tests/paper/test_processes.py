"""Several processes that make the cells of one plan: who begins when, and what each leaves to the others."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcciol import cli
from kcciol.files import file_lock
from kcciol.paper.executors import processes
from kcciol.paper.executors.processes import environment, next_group
from kcciol.paper.plan import INCOMPLETE, Group, RunPlan, groups
from kcciol.paper.representations import HELPERS
from kcciol.paper.runner import make
from kcciol.paper.studies import colour
from kcciol.paper.study import Subject, Workspace, folder_of
from tests.paper.example import OMNIGLOT, plan

REAL_WORDS = processes.command


def test_several_processes_make_the_same(tmp_path: Path) -> None:
    arguments = ["--preset", "tiny", "--seeds", "0", "--columns", "oml", "kcciol", "lambda0"]
    for jobs in ("1", "2"):
        place = ["--runs", str(tmp_path / f"runs{jobs}"), "--out", str(tmp_path / jobs), "--jobs", jobs]
        assert cli.main(["reproduce", "table1", *arguments, *place]) == 0
    one, two = (json.loads((tmp_path / jobs / "table1.json").read_text())["rows"]["6"] for jobs in ("1", "2"))
    for column in ("oml", "kcciol", "lambda0"):
        assert one[column]["by_trajectory"] == two[column]["by_trajectory"]


def test_larger_tables_wait_for_the_training_and_are_made_together(tmp_path: Path) -> None:
    wanted = plan(tmp_path, "table1", "table5", columns=("kcciol", "pretrained", "gamma0"), jobs=3)
    waiting = groups(wanted, apart=True)
    helpers = [group for group in waiting if group.helper]
    assert sorted((g.columns, g.helper) for g in helpers) == sorted(
        ((c,), n) for c in ("kcciol", "pretrained") for n in range(1, HELPERS + 1)
    )
    assert {g.parts for g in helpers} == {("table5",)}
    mains = [group for group in waiting if not group.helper]
    assert [(g.columns, g.parts) for g in mains] == [
        (("kcciol", "gamma0"), ("table1",)),
        (("pretrained",), ("table1",)),
    ]
    one, two = (g for g in helpers if g.columns == ("kcciol",) and g.helper < 3)
    kcciol, pretrained = mains
    assert next_group(wanted, waiting, []) is kcciol
    assert next_group(wanted, [one], [kcciol]) is None  # which trains it
    assert next_group(wanted, [one], [pretrained]) is one  # nobody else will
    assert next_group(wanted, [two], [one]) is None
    assert "CUDA_MPS_CLIENT_PRIORITY" not in environment(one)
    assert environment(kcciol)["CUDA_MPS_CLIENT_PRIORITY"] == "1"
    assert make(wanted) == []
    assert groups(wanted) == []
    assert next_group(wanted, [one], [kcciol]) is one
    assert not list(tmp_path.glob("**/cells/**/*.lock"))


def test_columns_that_go_on_from_one_training_wait_for_each_other(tmp_path: Path) -> None:
    wanted = plan(tmp_path, "figures", columns=("delta-0.25", "delta-0.75"), jobs=2)
    first, second, *_ = groups(wanted, apart=True)
    assert (first.columns, second.columns) == (("delta-0.25",), ("delta-0.75",))
    assert next_group(wanted, [second], [first]) is None  # both would train kcciol


def test_a_family_begins_with_what_the_others_go_on_from(tmp_path: Path) -> None:
    wanted = plan(tmp_path, "table1", "table5", columns=("oml-same", "kcciol"), jobs=9)
    waiting = groups(wanted, apart=True)
    main = next(g for g in waiting if not g.helper)
    helper = next(g for g in waiting if g.helper)
    assert main.columns == ("kcciol", "oml-same")
    _ = Subject(OMNIGLOT, "kcciol", 0, wanted.workspace).representation
    assert next_group(wanted, [main], [helper]) is main  # beside those who measure kcciol


def test_a_phase_of_another_column_needs_no_training(tmp_path: Path) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    wanted = RunPlan(workspace, {"cifar100": ("table3",)}, seeds=(0,), columns=("kcciol", "kcciol-phase1"))
    (group,) = groups(wanted)
    assert group.trains(wanted)
    _ = Subject(colour.CIFAR100, "kcciol", 0, workspace).representation
    assert not group.trains(wanted)


def test_few_groups_train_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = plan(tmp_path, "table1", "table5", columns=("oml", "mrcl", "pretrained"), jobs=9)
    waiting = groups(wanted, apart=True)
    mains = {g.columns[0]: g for g in waiting if not g.helper}
    oml, mrcl, pretrained = (mains[name] for name in ("oml", "mrcl", "pretrained"))
    helper = next(g for g in waiting if g.helper and g.columns == ("oml",))
    monkeypatch.setattr(processes, "TRAINING", 2)
    assert next_group(wanted, [helper, pretrained], [oml]) is pretrained
    assert next_group(wanted, [helper, pretrained], [oml, mrcl]) is None
    _ = Subject(OMNIGLOT, "oml", 0, wanted.workspace).representation  # trains it
    assert not oml.trains(wanted)
    assert next_group(wanted, [pretrained], [oml, mrcl]) is pretrained
    assert next_group(wanted, [pretrained, helper], [mrcl, mains["pretrained"]]) is helper  # trained: it can begin
    several = Group("omniglot", (0,), ("oml", "mrcl"), ("table1",))
    assert several.trained(wanted)
    assert several.trains(wanted)  # the second column
    assert Group("sine", (0,)).trains(wanted)


def test_a_cell_that_another_process_makes_is_left_to_it(tmp_path: Path) -> None:
    wanted = plan(tmp_path, columns=("oml",))
    path = OMNIGLOT.path_of(wanted.workspace, "table1", "oml", 0, "adam")
    path.parent.mkdir(parents=True)
    with file_lock(path.with_suffix(".lock")) as mine:
        assert mine
        make(wanted)
    assert not path.exists()
    make(wanted)
    assert path.exists()


def test_what_another_process_trains_is_left_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "table1", "--preset", "tiny", "--columns", "oml", "--seeds", "0", "--no-tables"]
    words += ["--runs", str(tmp_path)]
    folder = folder_of(OMNIGLOT, "oml", 0, Workspace(runs=tmp_path, tiny=True))
    assert cli.main([*words, "--minutes", "1e-9"]) == INCOMPLETE
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / ".lock") as mine:
        assert mine
        assert cli.main(words) == INCOMPLETE
    assert "Another process is training" in capsys.readouterr().err
    assert cli.main(words) == 0


def test_a_file_system_without_locks_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: Any) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with file_lock(tmp_path / "lock") as mine:
        assert mine


def test_time_cuts_training_in_one_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "command", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"])
    began = time.monotonic()
    make(plan(tmp_path, columns=("oml",), until=began + 0.5))
    assert time.monotonic() - began < 20


def test_helpers_of_a_column_that_did_not_fail_are_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes on from the same training may fail: kcciol's cells are made all the same, but not those of oml, which
    cannot be trained."""
    table1 = plan(tmp_path / "runs", columns=("kcciol",))
    assert make(table1) == []  # then its family is the others
    begun: list[str] = []

    def words(plan: RunPlan, group: Group, runs: Path) -> list[str]:
        begun.append(f"{group.columns[0]}{' helper' if group.helper else ''}")
        return [sys.executable, "-c", "raise SystemExit(1)"]

    monkeypatch.setattr(processes, "command", words)
    wanted = plan(tmp_path / "runs", "table1", "table5", columns=("kcciol", "oml-same", "oml"), jobs=9)
    for path in folder_of(OMNIGLOT, "kcciol", 0, wanted.workspace).glob("phase*"):
        path.unlink()
    make(wanted)
    assert begun.count("oml-same") == begun.count("oml") == 2
    assert begun.count("kcciol helper") == HELPERS + 1  # once one has failed twice the others do not try again
    assert "oml helper" not in begun
    _ = Subject(OMNIGLOT, "oml", 0, wanted.workspace).representation
    begun.clear()
    make(replace(wanted, columns=("oml",)))
    assert "oml helper" in begun  # it is trained, whatever else fails


def test_a_process_that_falls_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    falls = tmp_path / "falls"

    def words(plan: RunPlan, group: Group, runs: Path) -> list[str]:
        if group.columns == ("oml",):  # always
            return [sys.executable, "-c", f"open({str(falls)!r}, 'a').write('x'); raise SystemExit(1)"]
        once = tmp_path / "once"
        again = " ".join(map(shlex.quote, REAL_WORDS(plan, group, runs)))
        return ["sh", "-c", f"if [ -e {once} ]; then exec {again}; fi; touch {once}; exit 1"]

    monkeypatch.setattr(processes, "command", words)
    wanted = plan(tmp_path / "runs", columns=("oml", "mrcl"), jobs=2)
    assert make(wanted) == ["omniglot, oml, seed 0"]
    assert falls.read_text() == "xx"
    assert [group.columns for group in groups(wanted)] == [("oml",)]


def test_a_signal_ends_processes_that_were_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noted where the loop looks for it, not raised in the middle of a look at a process."""
    begun = tmp_path / "begun"
    code = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    monkeypatch.setattr(processes, "command", lambda *_: [sys.executable, "-c", code])
    children: list[Any] = []
    ended = processes.end

    def noted(running: Any) -> None:
        children.extend(running)
        ended(running)

    monkeypatch.setattr(processes, "end", noted)

    def raise_it() -> None:
        until = time.monotonic() + 30
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=raise_it)
    thread.start()
    with pytest.raises(SystemExit) as left:
        processes.make_in_processes(plan(tmp_path, columns=("oml",), jobs=2), groups(plan(tmp_path, columns=("oml",))))
    thread.join()
    assert left.value.code == 128 + signal.SIGTERM
    assert children
    assert all(child.poll() is not None for child in children)
    assert signal.getsignal(signal.SIGTERM) is before
