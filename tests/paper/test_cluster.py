"""Experiments as tasks of a local Ray cluster."""

from __future__ import annotations

import importlib.util
import json
import socket
from pathlib import Path

import pytest

from kcciol import cli
from kcciol.errors import UserError
from kcciol.paper.executors.ray import _connect, run_group
from kcciol.paper.plan import Group, RunPlan
from kcciol.paper.study import Workspace

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra `ray`)")


@needs_ray
def test_a_cluster_makes_what_one_process_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCCIOL_TASK_RUNS", str(tmp_path / "task"))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    arguments = ["reproduce", "table1", "--preset", "tiny", "--seeds", "0", "--columns", "oml", "mrcl"]
    here = ["--runs", str(tmp_path / "here"), "--out", str(tmp_path / "one")]
    there = ["--runs", str(tmp_path / "there"), "--out", str(tmp_path / "two"), "--ray", "local", "--gpus", "0"]
    assert cli.main([*arguments, *here]) == 0
    assert cli.main([*arguments, *there]) == 0
    one, two = (json.loads((tmp_path / name / "table1.json").read_text())["rows"]["6"] for name in ("one", "two"))
    for column in ("oml", "mrcl"):
        assert one[column]["by_trajectory"] == two[column]["by_trajectory"]
    assert cli.main([*arguments, *there]) == 0  # all there already


def test_what_a_machine_refuses_is_not_sent_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCCIOL_TASK_RUNS", str(tmp_path))
    wanted = RunPlan(Workspace("RUNS", tmp_path / "here", tiny=True), {"omniglot": ("table1",)}, (0,))
    group = Group("omniglot", (0,), ("oml",), ("table1",))
    runs, name = tmp_path.with_name(f"{tmp_path.name}-rehearsal"), "cells/omniglot/oml-seed0/table1-adam.json"
    code, made, _ = run_group(wanted, group, [name])
    assert (code, list(made)) == (0, [name])
    cell = json.loads(made[name])
    (runs / name).write_text(json.dumps(cell | {"spec": {}}))  # as if by an earlier version
    code, made, said = run_group(wanted, group, [name])
    assert (code, made) == (2, {})
    assert "other settings" in said
    assert not (tmp_path / "here").exists()  # the folder of whoever hands out the work


@needs_ray
def test_a_cluster_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert cli.main(["reproduce", "table1", "--runs", str(tmp_path), "--ray", f"127.0.0.1:{port}"]) == 2
    assert "does not answer" in capsys.readouterr().err
    monkeypatch.setattr("kcciol.paper.executors.ray.JOINING", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(UserError, match="does not behave as a Ray"):
        _connect(f"127.0.0.1:{mute.getsockname()[1]}")
    with pytest.raises(UserError, match="must be HOST:PORT"):
        _connect("nowhere")
