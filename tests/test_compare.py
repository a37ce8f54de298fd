"""Pairs of representation and learner, from images to a result; settings chosen on base classes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kcciol import cli
from kcciol.compare import StreamConfig, check_learner, measure_learner, parse_settings, within_budget
from kcciol.compare import world as make_world
from kcciol.data import load
from kcciol.errors import UserError
from kcciol.evaluation import learning
from kcciol.evaluation.choose import GRIDS, Examples, candidates, choose, footprint, run_copies
from kcciol.evaluation.continual import Plan, streams_of
from kcciol.evaluation.stream import draw
from kcciol.learners import LEARNERS, fitting, typical_bytes
from kcciol.learners.er import ReplaySettings
from kcciol.learners.gradient import GradientSettings
from kcciol.learners.model import Head
from kcciol.learners.ncm import NCMSettings
from kcciol.meta.phases import train
from kcciol.representation import Representation
from tests.learners.battery import tiny

WIDTH = 6


def clusters(classes: int = 12, samples: int = 8) -> Examples:
    generator = torch.Generator().manual_seed(0)
    centres = 2 * torch.randn(classes, 1, WIDTH, generator=generator)
    data = (centres + 0.4 * torch.randn(classes, samples, WIDTH, generator=generator)).relu()
    return Examples(data[:, :5], data[:, 5:])


@pytest.fixture(scope="module")
def world() -> tuple[Representation, Any]:
    config = tiny(base=14, held_out=6, novel=8, samples=8)
    data = load(config.data)
    return Representation.untrained(config, data.base), data


SMALL = StreamConfig(classes=(3, 6), train_samples=5, test_samples=3, trajectories=3, search_trajectories=2)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_that_fits_can_be_measured(name: str, world: tuple[Representation, Any]) -> None:
    representation, data = world
    trains: Any = "head" if name in fitting("head") else "all"
    few = {k: v[:2] for k, v in list(GRIDS[name].items())[:1]}
    fixed = {"tune_steps": 2} if name == "merlin" else {"anchor_steps": 2, "tune_steps": 2} if name == "hal" else {}
    where = make_world(representation, data, SMALL, trains)
    check_learner(where, name, fixed)
    result = measure_learner(where, name, SMALL, fixed, few)
    assert list(result["classes"]) == ["3", "6"]
    assert result["classes"]["6"]["n"] == 3
    assert len(result["choice"]["scores"]) == (2 if few else 0)
    assert result["chosen_on"] == "base classes kept out of training"
    assert (sum(result["bytes"].values()) > 0) == (name not in ("online", "approx-iid"))
    json.dumps(result)


def test_what_is_chosen_is_the_best_on_base_classes() -> None:
    options = candidates("online", {"reserve": 5}, {"rate": (1e-7, 0.05, 1e-6)})
    choice = choose("online", Head(WIDTH), options, clusters(), Plan(classes=6, samples=5), trajectories=3)
    assert isinstance(choice.settings, GradientSettings)
    assert choice.settings.rate == 0.05
    assert (
        max(score for _, score in choice.scores)
        == dict(zip(options, [s for _, s in choice.scores], strict=True))[choice.settings]
    )
    few = choose("online", Head(WIDTH), options, clusters(4), Plan(classes=6, samples=5))
    assert few.classes == 4  # as many as there are
    assert choose("online", Head(WIDTH), options[:1], clusters(), Plan(classes=6, samples=5)).scores == []


def test_copies_of_unlike_kinds_are_scored_as_if_alone() -> None:
    options = candidates("er", {"rate": 0.05}, {"reserve": (0, 9), "slots": (3, 8)})
    together = choose("er", Head(WIDTH), options, clusters(), Plan(classes=6, samples=5), trajectories=2)
    for option, score in together.scores:
        alone = run_copies("er", Head(WIDTH), [option] * 2, [0, 1], clusters(), Plan(6, 5), "search", [])
        assert score == pytest.approx(float(alone.accuracy.mean()))


def test_memory_decides_how_many_copies_run_together_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [ReplaySettings(rate=0.05, slots=4)] * 5
    whole = run_copies("er", Head(WIDTH), settings, range(5), clusters(), Plan(4, 5), "report", [2])
    one = LEARNERS["er"](Head(WIDTH), settings[0])
    monkeypatch.setitem(learning.BUDGET, "cpu", 4 * 2 * footprint(one, 4))
    parts = run_copies("er", Head(WIDTH), settings, range(5), clusters(), Plan(4, 5), "report", [2])
    assert torch.equal(whole.accuracy, parts.accuracy)
    assert torch.equal(whole.matrix.nan_to_num(), parts.matrix.nan_to_num())


def test_a_grid_has_only_settings_that_exist() -> None:
    for name, grid in GRIDS.items():
        assert len(candidates(name, {})) == max(1, len(candidates(name, {}, grid)))
    assert set(GRIDS) == set(LEARNERS)
    with pytest.raises(UserError, match="magic is not a setting of er"):
        candidates("er", {"magic": 1})


def test_settings_are_read_from_words() -> None:
    assert parse_settings("er", ["slots=5", "rate=1", "weighting=additive"]) == {
        "slots": 5,
        "rate": 1.0,
        "weighting": "additive",
    }
    for word, message in (
        ("slots", "name=value"),
        ("slots=x", "number"),
        ("a=1", "not a setting"),
        ("weighting=b", "one"),
    ):
        with pytest.raises(UserError, match=message):
            parse_settings("er", [word])


def test_what_learners_typically_keep() -> None:
    assert typical_bytes("online") == 0
    assert typical_bytes("podnet") is None
    assert typical_bytes("er", classes=10, width=4) == 10 * (4 * 4 + 8)


def test_a_comparison_that_is_cut_leaves_the_older_one(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    world: tuple[Representation, Any],
) -> None:
    representation, data = world
    config = replace(representation.config, representation="scratch")
    steps = {f"phase{i}": replace(p, steps=0) for i, p in enumerate(config.phases, 1)}
    folder = train(replace(config, **steps), data.base, tmp_path / "run", quiet=True)  # type: ignore[arg-type]
    target = tmp_path / "all.json"
    words = ["evaluate", str(folder.path), "--classes", "3", "--trajectories", "2", "--train-samples", "5"]
    words += ["--test-samples", "3", "--compare", "ncm", "gaussian", "--out", str(target)]
    assert cli.main(words) == 0
    whole = target.read_bytes()

    def cut(where: Any, name: str, *more: Any, **named: Any) -> dict[str, Any]:
        if name == "gaussian":
            raise KeyboardInterrupt
        return measure_learner(where, name, *more, **named)

    monkeypatch.setattr("kcciol.compare.measure_learner", cut)
    assert cli.main(words) == 130
    unfinished = tmp_path / "all-unfinished.json"
    assert str(unfinished) in capsys.readouterr().err.replace("\n", "")
    assert target.read_bytes() == whole
    assert list(json.loads(unfinished.read_text())["learners"]) == ["ncm"]
    monkeypatch.undo()
    assert cli.main(words) == 0
    assert not unfinished.exists()
    assert set(json.loads(target.read_text())["learners"]) == {"ncm", "gaussian"}


def test_the_command_line_compares_and_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: tuple[Representation, Any]
) -> None:
    representation, data = world
    config = replace(representation.config, representation="scratch")
    steps = {f"phase{i}": replace(p, steps=0) for i, p in enumerate(config.phases, 1)}
    folder = train(replace(config, **steps), data.base, tmp_path / "run", quiet=True)  # type: ignore[arg-type]
    words = ["evaluate", str(folder.path), "--classes", "3", "--trajectories", "2"]
    words += ["--train-samples", "5", "--test-samples", "3"]
    assert cli.main([*words, "--compare", "ncm", "gaussian", "ncm"]) == 0
    (path,) = folder.path.glob("evaluation-compare-phase1-*.json")
    written = json.loads(path.read_text())
    assert set(written["learners"]) == {"ncm", "gaussian"}
    assert {"config", "stream", "record", "representation", "untrained"} <= set(written)
    for more in (["slots=4"], ["slots=5"]):
        assert cli.main([*words, "--learner", "er", "--set", "rate=0.1", "reserve=3", *more]) == 0
    assert len(list(folder.path.glob("evaluation-er-phase1-*.json"))) == 2
    assert cli.main([*words, "--learner", "ncm", "--untrained", "--out", str(tmp_path / "u.json")]) == 0
    assert json.loads((tmp_path / "u.json").read_text())["untrained"]
    assert cli.main([*words, "--learner", "ncm", "--split", "validation", "--out", str(tmp_path / "v.json")]) == 0
    assert json.loads((tmp_path / "v.json").read_text())["learners"]["ncm"]["chosen_on"] == "base classes trained on"
    assert "er" in capsys.readouterr().out
    bad = [
        (["--learner", "magic"], "There is no learner"),
        (["--learner", "podnet"], "PODNet trains the whole network"),
        (["--compare", "ncm", "podnet", "--out", str(tmp_path / "w.json")], "PODNet trains the whole network"),
        (["--learner", "er", "--set", "slots=0"], "slots is 0"),
        (["--learner", "er", "--set", "rate=inf"], "rate is inf"),
        (["--learner", "er", "--set", "reserve=-1"], "reserve is -1"),
        (["--compare", "er", "ncm", "--set", "slots=3"], "--set is for one learner"),
        (["--learner", "er", "--compare", "ncm"], "give one of the two"),
        (["--learner", "ncm", "--classes", "99"], "99 classes"),
        (["--learner", "ncm", "--task-classes", "2"], "no whole number of tasks"),
        (["--learner", "ncm", "--task-classes", "0"], "task_classes is 0"),
        (["--learner", "er", "--budget-images", "-1"], "budget_images is -1"),
        (["--learner", "er", "--set", f"reserve={10**22}"], "below 2^31"),
        (["--learner", "er", "--set", "slots=1.5"], "whole number"),
        (["--learner", "ncm", "--rates", "0.1"], "--rates belongs to the head of Algorithm 4"),
        (["--trains", "all"], "--trains goes with --learner"),
    ]
    for more, message in bad:
        assert cli.main([*words, *more]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "w.json").exists()
    (folder.path / "phase2.safetensors").write_bytes(folder.phase(1).read_bytes())
    folder.phase(3).write_bytes(b"damaged")
    assert cli.main([*words, "--phase", "2", "--learner", "ncm"]) == 0  # another phase's file need not be whole
    assert cli.main(["list"]) == 2
    assert "needs to know what" in capsys.readouterr().err
    for what in ("representations", "presets"):
        assert cli.main(["list", what]) == 0
    assert "kcciol-o" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["er", "mer", "der", "der++", "gss", "gss-iqp", "hal", "merlin"])
def test_a_budget_in_bytes_is_kept_and_used(name: str, world: tuple[Representation, Any]) -> None:
    representation, data = world
    config = replace(SMALL, budget_images=60, search_trajectories=1, trajectories=1)
    where = make_world(representation, data, config)
    chosen = within_budget(where, name, config, {})
    few = {k: v[:1] for k, v in GRIDS[name].items()}
    known = LEARNERS[name].settings_type.__dataclass_fields__
    cheap: dict[str, Any] = {k: 1 for k in ("tune_steps", "anchor_steps", "epochs") if k in known}
    result = measure_learner(where, name, config, cheap, few)
    budget, unit = 60 * 28 * 28, "ring" if name == "hal" else "slots"
    assert result["choice"]["settings"][unit] == chosen[unit]
    kept = sum(result["bytes"].values())
    assert result["within_budget"] == (kept <= budget) == (name != "merlin")  # whose generator alone is larger
    if name not in ("hal", "merlin", "gss-iqp"):
        each = kept / min(chosen[unit], 6 * 5)  # in a stream of 30 examples
        assert budget - 1.2 * each * chosen[unit] < each
    if name == "merlin":  # as many as if it kept nothing else
        each = where.novel.train[0, 0].nbytes + 8  # and its label
        assert chosen[unit] == budget // each
    assert within_budget(where, "ncm", config, {}) == {}
    assert within_budget(where, name, config, {unit: 3}) == {}


def test_classes_that_were_trained_on_are_refused(world: tuple[Representation, Any]) -> None:
    representation, data = world
    with pytest.raises(UserError, match="were trained on"):
        make_world(representation, replace(data, novel=data.base), SMALL)


def test_examples_drawn_anew_make_streams_of_the_same_classes_differ() -> None:
    many = Examples(torch.cat([clusters().train] * 2, 1), clusters().test)
    plan = Plan(classes=len(many), samples=5, redraw=3)
    course = run_copies("ncm", Head(WIDTH), [NCMSettings()] * 4, range(4), many, plan, "report", [])
    again = run_copies("ncm", Head(WIDTH), [NCMSettings()] * 2, [2, 3], many, plan, "report", [])
    assert torch.equal(course.accuracy[2:], again.accuracy)
    streams = streams_of(plan, draw(0, "report", len(many), len(many), 4), range(4), many.train, many.test, "report")
    assert streams.train.shape[:2] == (4 * len(many), 5)
    assert streams.test.shape[:2] == (4 * len(many), 3)
    assert not torch.equal(streams.train[streams.classes[0]], streams.train[streams.classes[1]])


def test_a_stream_config_that_draws_anew_takes_all_images(world: tuple[Representation, Any]) -> None:
    representation, data = world
    stream = StreamConfig(classes=(4,), train_samples=3, test_samples=2, trajectories=3, redraw=True)
    kinds: list[Any] = ["head", "all"]
    for trains in kinds:
        where = make_world(representation, data, stream, trains)
        assert where.novel.train.shape[1] + where.novel.test.shape[1] == int(data.novel.counts.min())
        result = measure_learner(where, "ncm" if trains == "head" else "online", stream, {}, {})
        assert result["classes"]["4"]["n"] == 3


@pytest.mark.parametrize("name", ["er", "mer", "der", "der++", "gss", "gss-iqp", "hal", "merlin"])
def test_a_full_memory_is_within_the_budget_and_has_no_room_for_more(
    name: str, world: tuple[Representation, Any]
) -> None:
    """The most that is kept at any time of a stream that fills the memory, task after task."""
    representation, data = world
    config = replace(SMALL, budget_images=400 if name == "merlin" else 60)  # whose generator needs some
    where = make_world(representation, data, config)
    chosen, kind = within_budget(where, name, config, {}), LEARNERS[name].settings_type
    ((unit, count),) = chosen.items()
    costly = ("replay", "compared", "restarts", "tune_steps", "anchor_steps", "epochs")
    quick: dict[str, Any] = {k: int(k == "compared") for k in costly if k in kind.__dataclass_fields__}

    def most(count: int) -> int:
        learner = LEARNERS[name](where.model, kind(**quick, **{unit: count}), (0,))
        kept, waiting = [], getattr(kind(), "recent", 0)
        for label in range(6):
            for _ in range(count if unit == "ring" else (count + waiting) // 6 + 1):
                learner.observe(where.novel.train[label : label + 1, 0], np.array([label]))
                kept.append(sum(learner.memory().values()))
            learner.end_task()
            kept.append(sum(learner.memory().values()))
        return max(kept)

    budget = config.budget_images * where.image_bytes
    more = 2 if name == "gss-iqp" else 1  # of `recent` that may wait, one never does
    assert most(count) <= budget < most(count + more)
