"""The runner of experiments, on rehearsals: what is there is kept, what is not is made."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kcciol import cli, evaluation
from kcciol.config import Config
from kcciol.encoders.run import load
from kcciol.errors import UserError
from kcciol.paper import study as study_module
from kcciol.paper import tables
from kcciol.paper.experiment import Scope
from kcciol.paper.plan import PARTS, RunPlan, groups, parts_of
from kcciol.paper.runner import make
from kcciol.paper.studies import colour, omniglot, sine
from kcciol.paper.study import Study, Subject, Workspace, config_of, folder_of, is_trained
from kcciol.paper.writing import gather, write_tables
from tests.paper.example import OMNIGLOT, STUDIES, plan


def test_names_stand_for_parts() -> None:
    assert parts_of(("table1", "table5", "table1")) == {"omniglot": ("table1", "table5")}
    assert parts_of(("cifar100",)) == {"cifar100": ("table3",)}
    assert set(parts_of(("all",))) == {*STUDIES, "sine", "mnist"}
    with pytest.raises(UserError, match="no experiment 'table9'"):
        parts_of(("table9",))


def test_cells_are_made_once_and_become_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = plan(tmp_path / "runs", "table1", "heads")
    assert [group.columns for group in groups(wanted)] == [("kcciol", "lambda0")]  # which goes on from its phase 2
    assert make(wanted) == []
    assert "lambda0, seed 0, heads, ncm" in capsys.readouterr().out
    assert groups(wanted) == []
    assert make(wanted) == []
    assert capsys.readouterr().out == ""  # nothing was made again
    paths, _ = write_tables(wanted, tmp_path / "out", seconds=3.0)
    assert [path.name for path in paths] == ["table1.json", "heads.json"]
    table = json.loads(paths[0].read_text())
    cell = table["rows"]["3"]["kcciol"]
    assert cell["n"] == len(cell["by_trajectory"]) == 2
    assert len(cell["choice"]) == len(cell["by_seed"]) == 1
    assert table["title"].startswith("Rehearsal")
    assert not any(column.startswith("paper") for row in table["rows"].values() for column in row)
    real = tables.frame("table1", {}, gather(wanted, "omniglot")["table1"])
    assert real["rows"]["10"]["paper: kcciol"]["mean"] == 95.4
    assert table["seeds"] == {"kcciol": [0], "lambda0": [0]}
    assert table["training_seconds"]["kcciol"][0] > 0
    assert table["device_seconds"] == [{"seconds": 3.0, "jobs": 1}]
    paths, _ = write_tables(wanted, tmp_path / "out", seconds=4.0)
    assert [part["seconds"] for part in json.loads(paths[0].read_text())["device_seconds"]] == [3.0, 4.0]
    paths, _ = write_tables(wanted, tmp_path / "out", seconds=0.0)  # nothing was made
    assert [part["seconds"] for part in json.loads(paths[0].read_text())["device_seconds"]] == [3.0, 4.0]


def test_tables_do_not_name_the_folders_of_a_machine(tmp_path: Path) -> None:
    wanted = plan(tmp_path / "runs", "heads", columns=("kcciol",))
    assert make(wanted) == []
    for path in (tmp_path / "runs" / "cells").rglob("*.json"):
        cell = json.loads(path.read_text())
        cell["config"]["data"]["root"] = "/home/me/data"
        path.write_text(json.dumps(cell))
    paths, _ = write_tables(wanted, tmp_path / "out", seconds=0.0)
    assert json.loads(paths[0].read_text())["settings"]["kcciol"]["data"]["root"] == "data"
    assert "/home/me" not in paths[0].read_text()


def test_what_is_cut_is_finished_by_the_next_call(tmp_path: Path) -> None:
    wanted = plan(tmp_path, "table1", "heads", columns=("oml",), until=0.0)
    make(wanted)
    assert len(groups(wanted)) == 1
    make(replace(wanted, until=float("inf")))
    assert groups(wanted) == []


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_what_goes_on_from_another_training_has_its_settings_until_there(study: Study) -> None:
    for name, column in study.columns.items():
        if column.after is not None:
            mine, other = (config_of(study, c, 0, Workspace()) for c in (name, column.after[0]))
            assert mine.phases[: column.after[1]] == other.phases[: column.after[1]]
            for part in ("seed", "data", "net", "trajectory", "meta"):
                assert getattr(mine, part) == getattr(other, part)
        if column.phase:  # it is the end of that phase of the other's
            assert column.after is not None
            assert column.after[1] == column.phase
            assert f"phase{column.phase}" in name or name == "oml"


def test_rivals_get_the_same_chance() -> None:
    """What `-same` means: our trajectories, remember set, reset and number of steps."""
    workspace = Workspace()
    ours = config_of(OMNIGLOT, "kcciol", 0, workspace)
    for column in ("oml-same", "mrcl-same", "maml-rep-same"):
        same = config_of(OMNIGLOT, column, 0, workspace)
        assert same.trajectory == ours.trajectory
        assert same.meta.reset == ours.meta.reset
        assert same.total_steps == ours.total_steps
        assert all(phase.gamma == phase.lam == 0 for phase in same.phases if phase.steps)
        assert same.data == ours.data
    assert OMNIGLOT.columns["oml-same"].after == ("kcciol", 1)  # whose phase 1 is its own
    for study in (colour.MINI_IMAGENET, colour.CIFAR100):
        printed = config_of(study, "oml", 0, workspace)
        assert (printed.trajectory.classes, printed.trajectory.support, printed.trajectory.remember) == (1, 10, 10)
        assert config_of(study, "mrcl", 0, workspace).meta.reset == "none"
        assert (
            config_of(study, "oml-same", 0, workspace).trajectory == config_of(study, "kcciol", 0, workspace).trajectory
        )


def test_the_end_of_an_earlier_phase_is_measured_without_training(tmp_path: Path) -> None:
    study, workspace = colour.CIFAR100, Workspace(runs=tmp_path, tiny=True)
    first = Subject(study, "kcciol-phase1", 0, workspace).representation
    last = Subject(study, "kcciol", 0, workspace).representation
    assert not folder_of(study, "kcciol-phase1", 0, workspace).exists()
    assert not bool((first.Theta == last.Theta).all())


def test_a_column_is_trained_as_far_as_it_is_asked_for(tmp_path: Path) -> None:
    study, workspace = colour.MINI_IMAGENET, Workspace(runs=tmp_path / "one", tiny=True)
    _ = Subject(study, "kcciol-o-plain", 0, workspace).representation  # of kcciol's phase 1, and control's phase 2
    ends = {c: [p.stem for p in folder_of(study, c, 0, workspace).glob("phase?.*")] for c in ("kcciol", "control")}
    assert ends == {"kcciol": ["phase1"], "control": ["phase2"]}
    trained = {c: is_trained(study, c, 0, workspace) for c in ("kcciol-phase1", "kcciol-phase2", "kcciol", "control")}
    assert [c for c, there in trained.items() if there] == ["kcciol-phase1"]
    at_once = Subject(study, "kcciol", 0, Workspace(runs=tmp_path / "other", tiny=True)).representation
    spent = folder_of(study, "kcciol", 0, workspace) / "seconds.json"
    assert 0 < json.loads(spent.read_text()) < 100
    spent.write_text("1000.0")
    assert bool(
        (Subject(study, "kcciol", 0, workspace).representation.Theta == at_once.Theta).all()
    )  # goes on from there
    assert 1000 < study_module.trained_seconds(study, "kcciol", 0, workspace) < 1100


def test_the_time_of_a_training_that_was_cut_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(config: Config, base: Any, folder: Path, *more: Any, **words: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        time.sleep(0.05)
        raise RuntimeError("cut")

    monkeypatch.setattr(study_module, "train", cut)
    workspace = Workspace(runs=tmp_path, tiny=True)
    for times in (1, 2):  # what was spent before is counted too
        with pytest.raises(RuntimeError, match="cut"):
            _ = Subject(OMNIGLOT, "oml", 0, workspace).representation
        spent = json.loads((folder_of(OMNIGLOT, "oml", 0, workspace) / "seconds.json").read_text())
        assert 0.05 * times <= spent < 60
    assert not is_trained(OMNIGLOT, "oml", 0, workspace)


def test_table_1_shows_phases_class_means_and_floors(tmp_path: Path) -> None:
    wanted = plan(tmp_path, columns=("scratch", "kcciol", "kcciol-phase1", "oml"))
    assert make(wanted) == []
    found = gather(wanted, "omniglot")
    assert omniglot.heads("kcciol-phase1") == {}  # phases are for Table 1 alone
    columns = {"scratch", "kcciol", "kcciol-phase1", "oml", "kcciol + ncm", "kcciol-phase1 + ncm"}
    columns |= {"pixels + ncm", "untrained + ncm"}
    assert {c for c in OMNIGLOT.tables(found)["table1"]["columns"] if not c.startswith("paper: ")} == columns


def test_a_column_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """A machine that has the cells of a column, but not the column, trains as much of it as others need."""
    wanted = plan(tmp_path, columns=("kcciol", "lambda0"))
    assert make(plan(tmp_path, columns=("kcciol",))) == []
    folder = folder_of(OMNIGLOT, "kcciol", 0, wanted.workspace)
    for path in folder.iterdir():
        path.unlink()
    assert [group.columns for group in groups(wanted)] == [("lambda0",)]
    assert make(wanted) == []
    assert not (folder / "phase3.safetensors").exists()
    assert groups(wanted) == []


def test_of_two_optimisers_the_better_on_base_classes_is_shown() -> None:
    def result(key: str, score: float, mean: float, **more: Any) -> dict[str, Any]:
        cell = {"mean": mean, "std": 0.0, "n": 2, "ci95": 0.0, "by_trajectory": [mean, mean]}
        choice: dict[str, Any] = {"settings": {}, "scores": [{"score": score}, {"score": score - 5}]}
        choice |= {"rule": "", "at_edge": [], "classes": 5, "trajectories": 2}
        start = {"classes": {"50": cell}, "choice": choice, "bytes": {}, "replay": False, "chosen_on": ""}
        names = dict(zip(("row", "trains", "optimizer"), key.split(), strict=True))
        return start | {"config": {"seed": 0}, "cell": names, "spec": {"fixed": {}}} | more

    cells = {"sgd": [result("online head sgd", 70, 90)], "adam": [result("online head adam", 80, 60)]}
    rows = tables.learners({"kcciol": cells, "pretrained": {"sgd": [result("online all sgd", 1, 2)]}})
    assert rows["online"]["kcciol"]["mean"] == 60  # whatever it does on novel classes
    assert rows["online"]["standard"]["mean"] == 2
    over = {"replay": True, "within_budget": False}
    cells = {
        "sgd": [result("er head sgd", 70, 1, replay=True, within_budget=True)],
        "adam": [result("er head adam", 80, 2, **over)],
    }
    assert tables.learners({"kcciol": cells})["er"]["kcciol"]["mean"] == 1  # what keeps too much does not compete
    assert tables.learners({"kcciol": dict(list(cells.items())[1:])})["er"]["kcciol"]["mean"] == 2


def test_help_names_all_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "--help"])
    said = capsys.readouterr().out
    numbered = [f"table{i}" for i in range(1, 8)]  # "table1 to table7"
    for name in {*PARTS, *(part for parts in PARTS.values() for part in parts)} - set(numbered):
        assert name in said
    assert "table1 to table7" in " ".join(said.split())


def test_the_papers_numbers() -> None:
    printed = tables.paper()
    assert list(printed) == [f"table{i}" for i in range(1, 8)]
    assert printed["table2"]["rows"]["20"]["kcciol"]["mean"] == 29.7


def test_a_control_shares_the_training_it_can(tmp_path: Path) -> None:
    wanted = plan(tmp_path, columns=("kcciol", "gamma0", "control", "oml"))
    assert [group.columns for group in groups(wanted)] == [("kcciol", "gamma0", "control"), ("oml",)]
    assert OMNIGLOT.root("control") == "kcciol"
    alone = plan(tmp_path, columns=("lambda0", "control", "kcciol-o"))  # without it they train it all the same, once
    assert [group.columns for group in groups(alone)] == [("kcciol-o", "lambda0", "control")]
    make(wanted)
    shared, own = (tmp_path / "omniglot" / f"{c}-seed0" / "phase2.safetensors" for c in ("control", "gamma0"))
    assert shared.exists()
    assert not own.exists()
    bench = Subject(OMNIGLOT, "gamma0", 0, wanted.workspace)
    first = tmp_path / "omniglot" / "kcciol-seed0" / "phase1.safetensors"
    assert torch.equal(bench.after_phase(1).Theta, load(first).Theta)
    assert torch.equal(bench.after_phase(2).Theta, load(shared).Theta)


def test_rates_are_tried_around_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float | None] = []

    def evaluate(*arguments: Any, **more: Any) -> Any:
        begun.append(more["near"])
        return evaluation.evaluate(*arguments, **more)

    monkeypatch.setattr(study_module, "evaluate", evaluate)
    bench = Subject(OMNIGLOT, "oml", 0, Workspace(runs=tmp_path, tiny=True))
    found = bench.algorithm4(bench.evaluations((), "adam"))["classes"]
    chosen = [cell["choice"]["settings"]["rate"] for cell in found.values()]
    assert begun == [None, *chosen[:-1]]
    first = next(iter(found.values()))["choice"]["scores"]
    assert sorted(s["settings"]["rate"] for s in first) == sorted(bench.evaluations((), "adam")[0].rates)


def test_a_table_is_made_of_all_seeds_that_are_there(tmp_path: Path) -> None:
    for seed in (0, 3):
        make(plan(tmp_path, columns=("oml",), seeds=(seed,)))
    for wanted in (plan(tmp_path, columns=("oml",), seeds=(3,)), plan(tmp_path, columns=("mrcl",), seeds=(5,))):
        assert [r["config"]["seed"] for r in gather(wanted, "omniglot")["table1"]["oml"]["adam"]] == [0, 3]


@pytest.mark.parametrize("name", ["table4", "gan"])
def test_a_rehearsal_of_these_is_no_result(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", name, "--seeds", "0", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--preset", "tiny"]) == 0
    assert cli.main([*words, "--root", str(tmp_path)]) == 2
    assert "was made with other settings" in capsys.readouterr().err
    cell = next((tmp_path / "runs" / "cells").glob("*/*-seed0.json"))
    for text in (cell.read_text()[:50], "{}", ""):
        cell.write_text(text)
        assert cli.main([*words, "--preset", "tiny"]) == 2
        assert "cannot be read" in capsys.readouterr().err


def test_another_seed_trains_no_other_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    sine.EXPERIMENT.make(Scope(workspace, ("table4",), (0,)))
    capsys.readouterr()
    assert [group.seeds for group in groups(RunPlan(workspace, {"sine": ("table4",)}, seeds=(0, 1)))] == [(1,)]
    assert groups(RunPlan(workspace, {"sine": ("table4",)}, seeds=(0,))) == []
    sine.EXPERIMENT.make(Scope(workspace, ("table4",), (1, 0)))
    said = capsys.readouterr().out
    assert "sine, first order: 4 members trained" in said
    assert "sine, exact order: 2 members trained" in said
    assert "seed 0" not in said


def test_the_table_that_was_made_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "heads", "--preset", "tiny", "--columns", "oml", "--seeds", "0", "--runs", str(tmp_path)]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    cell = json.loads((tmp_path / "results" / "heads.json").read_text())["rows"]["3"]["oml"]["online-sgd"]
    assert f"online-sgd      {cell['mean']:.1f} ± {cell['ci95']:.1f}" in said
    assert said.index("Rehearsal, numbers mean nothing: Omniglot") < said.index("wrote")
