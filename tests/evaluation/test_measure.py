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
from kcciol.data import load
from kcciol.encoders.run import Representation
from kcciol.errors import UserError
from kcciol.evaluation import Examples, trace
from kcciol.evaluation.budget import within_budget
from kcciol.evaluation.choose import Choice, candidates, images_of
from kcciol.evaluation.measure import measure, measure_learner, parse_settings, require_fit, scenario_of
from kcciol.evaluation.protocol import Protocol, Scenario
from kcciol.evaluation.stream import draw
from kcciol.evaluation.trace import footprint
from kcciol.learners import LEARNERS, fitting, learner_type
from kcciol.learners.er import ReplaySettings
from kcciol.learners.gradient import GradientSettings
from kcciol.learners.model import Head
from kcciol.learners.ncm import NCMSettings
from kcciol.meta.phases import train
from tests.learners.battery import STREAMS, tiny

WIDTH = 6


def clusters(classes: int = 12, samples: int = 8) -> Examples:
    generator = torch.Generator().manual_seed(0)
    centres = 2 * torch.randn(classes, 1, WIDTH, generator=generator)
    data = (centres + 0.4 * torch.randn(classes, samples, WIDTH, generator=generator)).relu()
    return Examples(data[:, :5], data[:, 5:])


@pytest.fixture(scope="module")
def run() -> tuple[Representation, Any]:
    config = tiny(base=14, held_out=6, novel=8, samples=8)
    data = load(config.data)
    return Representation.untrained(config, data.base), data


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_that_fits_can_be_measured(name: str, run: tuple[Representation, Any]) -> None:
    representation, data = run
    trains: Any = "head" if name in fitting("head") else "all"
    few = {k: v[:2] for k, v in list(LEARNERS[name].grid.items())[:1]}
    fixed = {"tune_steps": 2} if name == "merlin" else {"anchor_steps": 2, "tune_steps": 2} if name == "hal" else {}
    scenario = scenario_of(representation, data, STREAMS, trains)
    require_fit(scenario, name, fixed)
    result = measure_learner(scenario, name, STREAMS, fixed, few)
    assert list(result["classes"]) == ["3", "6"]
    assert result["classes"]["6"]["n"] == 3
    assert len(result["choice"]["scores"]) == (2 if few else 0)
    assert result["chosen_on"] == "base classes kept out of training"
    assert (sum(result["bytes"].values()) > 0) == (name not in ("online", "approx-iid"))
    json.dumps(result)


def chosen(name: str, options: Any, base: Examples, classes: int = 6, trajectories: int = 3) -> Choice:
    config = replace(STREAMS, search_trajectories=trajectories)
    scenario = Scenario(clusters(), Head(WIDTH), base)
    protocol = Protocol(scenario, LEARNERS[name], config)
    return protocol.choose(options, scenario.sources.search_length(config, classes))


def test_what_is_chosen_is_the_best_on_base_classes() -> None:
    options = candidates("online", {"reserve": 5}, {"rate": (1e-7, 0.05, 1e-6)})
    choice = chosen("online", options, clusters())
    assert isinstance(choice.settings, GradientSettings)
    assert choice.settings.rate == 0.05
    assert max(choice.scores.values()) == choice.scores[choice.settings]
    assert chosen("online", options, clusters(4)).classes == 4  # as many as there are
    assert not chosen("online", options[:1], clusters()).scores


def test_copies_of_unlike_kinds_are_scored_as_if_alone() -> None:
    options = candidates("er", {"rate": 0.05}, {"reserve": (0, 9), "slots": (3, 8)})
    nothing = candidates("er", {"rate": 1e-7}, {})
    together = chosen("er", options, clusters(), trajectories=2).scores
    for option, score in together.items():
        alone = chosen("er", [option, *nothing], clusters(), trajectories=2).scores
        assert score == pytest.approx(alone[option])


def test_memory_decides_how_many_copies_run_together_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = Protocol(Scenario(clusters(), Head(WIDTH)), LEARNERS["er"], replace(STREAMS, trajectories=5))
    settings = ReplaySettings(rate=0.05, slots=4)
    _, whole = protocol.report(4, [4], settings)
    one = LEARNERS["er"](Head(WIDTH), settings)
    monkeypatch.setitem(trace.BUDGET, "cpu", 2 * one.workspace * footprint(one, 4))
    _, parts = protocol.report(4, [4], settings)
    assert torch.equal(whole.matrix.nan_to_num(), parts.matrix.nan_to_num())


def without_seconds(length: dict[str, Any]) -> dict[str, Any]:
    return {**length, "seconds": 0, "choice": {**length["choice"], "seconds": 0}}


def test_one_thing_has_one_number(run: tuple[Representation, Any], tmp_path: Path) -> None:
    """`kcciol evaluate`, --learner online and --compare: the run's own config, the same trajectories and rate."""
    representation, data = run
    mine = replace(
        representation.config.evaluation, **{**vars(STREAMS), "lengths": "apart", "rates": (0.1, 0.01, 0.001)}
    )
    config = replace(representation.config, representation="scratch", evaluation=mine)
    steps = {f"phase{i}": replace(p, steps=0) for i, p in enumerate(config.phases, 1)}
    folder = train(replace(config, **steps), data.base, tmp_path / "run", quiet=True)  # type: ignore[arg-type]
    found = []
    for number, more in enumerate(([], ["--learner", "online"], ["--compare", "ncm", "online"])):
        out = tmp_path / f"{number}.json"
        assert cli.main(["evaluate", str(folder.path), *more, "--out", str(out)]) == 0
        result = json.loads(out.read_text())
        found.append(result["learners"]["online"] if more else result)
    for other in found[1:]:
        assert other.keys() <= found[0].keys()
        for n in ("3", "6"):
            assert without_seconds(other["classes"][n]) == without_seconds(found[0]["classes"][n])
    assert found[0]["classes"]["6"]["choice"]["settings"]["rate"] in mine.rates
    assert found[0]["choice"]["settings"]["outputs"] == 6


def test_the_search_on_kept_out_classes_is_not_on_those_that_are_reported(run: tuple[Representation, Any]) -> None:
    """With --split validation what was kept out of training is reported, so the rule `base` takes what was not."""
    representation, data = run
    scenario = scenario_of(representation, data, replace(STREAMS, classes=(3,)), split="validation")
    assert scenario.base is not None
    assert len(scenario.base) == len(data.base)
    result = measure(representation, data, replace(STREAMS, classes=(3,), rates=(0.1, 0.01)), "validation")
    assert result["chosen_on"] == "base classes trained on"


def test_copies_draw_by_the_seed_of_the_run_and_the_number_of_their_trajectory() -> None:
    scenario = Scenario(clusters(), Head(clusters().width))
    for seed in (0, 5):
        protocol = Protocol(scenario, learner_type("er"), replace(STREAMS, seed=seed))
        learner = protocol.make(3, "report")([ReplaySettings()] * 2, [4, 7])
        assert learner.keys.tolist() == [seed * 2**20 + 4, seed * 2**20 + 7]


def test_a_grid_has_only_settings_that_exist() -> None:
    for name, method in LEARNERS.items():
        for trains in method.card.trains:
            assert candidates(name, {}, method.grid_for(trains))
        assert method.settings_type(**method.idle)
        assert not method.card.capacity or method.settings_type(**{method.card.capacity: 3})
    with pytest.raises(UserError, match="magic is not a setting of er"):
        candidates("er", {"magic": 1}, {})


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


def test_a_comparison_that_is_cut_leaves_the_older_one(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    run: tuple[Representation, Any],
) -> None:
    representation, data = run
    config = replace(representation.config, representation="scratch")
    steps = {f"phase{i}": replace(p, steps=0) for i, p in enumerate(config.phases, 1)}
    folder = train(replace(config, **steps), data.base, tmp_path / "run", quiet=True)  # type: ignore[arg-type]
    target = tmp_path / "all.json"
    words = ["evaluate", str(folder.path), "--classes", "3", "--trajectories", "2", "--train-samples", "5"]
    words += ["--test-samples", "3", "--compare", "ncm", "gaussian", "--out", str(target)]
    assert cli.main(words) == 0
    whole = target.read_bytes()

    def cut(scenario: Any, name: str, *more: Any, **named: Any) -> dict[str, Any]:
        if name == "gaussian":
            raise KeyboardInterrupt
        return measure_learner(scenario, name, *more, **named)

    monkeypatch.setattr("kcciol.evaluation.measure.measure_learner", cut)
    assert cli.main(words) == 130
    unfinished = tmp_path / "all-unfinished.json"
    assert str(unfinished) in capsys.readouterr().err.replace("\n", "")
    assert target.read_bytes() == whole
    assert list(json.loads(unfinished.read_text())["learners"]) == ["ncm"]
    assert cli.main(words) == 130  # and once more, which measures nothing twice and loses nothing
    measured: list[str] = []

    def noted(scenario: Any, name: str, *more: Any, **named: Any) -> dict[str, Any]:
        measured.append(name)
        return measure_learner(scenario, name, *more, **named)

    monkeypatch.setattr("kcciol.evaluation.measure.measure_learner", noted)
    assert cli.main(words) == 0
    assert measured == ["gaussian"]
    assert not unfinished.exists()
    assert set(json.loads(target.read_text())["learners"]) == {"ncm", "gaussian"}
    before = json.loads(whole)
    before["learners"].pop("gaussian")
    others_code = before["record"] | {"commit": "of other code"}
    for other in ({"identity": "of another training"}, {"data": "other images"}, {"record": others_code}):
        measured.clear()
        unfinished.write_text(json.dumps(before | other))
        assert cli.main(words) == 0
        assert measured == ["ncm", "gaussian"]
    measured.clear()
    others = [*words[: words.index("--compare")], "--compare", "gaussian", "ncm", *words[-2:]]
    unfinished.write_text(json.dumps(before))  # of the same streams: its ncm is taken, and the order is that asked for
    assert cli.main(others) == 0
    assert measured == ["gaussian"]
    assert list(json.loads(target.read_text())["learners"]) == ["gaussian", "ncm"]
    unfinished.write_text(json.dumps(before))
    assert cli.main([*words, "--trains", "all"]) == 2  # those have no whole network to train
    assert cli.main([*others[: others.index("--compare")], "--compare", "gaussian", *words[-2:]]) == 0
    assert measured[1:] == ["gaussian"]
    assert list(json.loads(target.read_text())["learners"]) == ["gaussian"]


def test_the_command_line_compares_and_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: tuple[Representation, Any]
) -> None:
    representation, data = run
    config = replace(representation.config, representation="scratch")
    steps = {f"phase{i}": replace(p, steps=0) for i, p in enumerate(config.phases, 1)}
    folder = train(replace(config, **steps), data.base, tmp_path / "run", quiet=True)  # type: ignore[arg-type]
    words = ["evaluate", str(folder.path), "--classes", "3", "--trajectories", "2"]
    words += ["--train-samples", "5", "--test-samples", "3", "--rule", "base"]
    assert cli.main([*words, "--compare", "ncm", "gaussian", "ncm"]) == 0
    (path,) = folder.path.glob("evaluation-compare-phase1-*.json")
    written = json.loads(path.read_text())
    assert set(written["learners"]) == {"ncm", "gaussian"}
    assert {"config", "evaluation", "record", "representation", "untrained"} <= set(written)
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
        (["--learner", "ncm", "--task-classes", "0"], "--task-classes is 0"),
        (["--learner", "er", "--budget-images", "-1"], "--budget-images is -1"),
        (
            ["--learner", "er", "--task-classes", "3", "--search-classes", "2", "--rule", "base"],
            "less than a task of 3",
        ),
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
def test_a_budget_in_bytes_is_kept_and_used(name: str, run: tuple[Representation, Any]) -> None:
    representation, data = run
    config = replace(STREAMS, budget_images=60, search_trajectories=1, trajectories=1)
    scenario = scenario_of(representation, data, config)
    chosen = within_budget(scenario, name, config, {})
    few = {k: v[:1] for k, v in LEARNERS[name].grid.items()}
    known = LEARNERS[name].settings_type.__dataclass_fields__
    cheap: dict[str, Any] = {k: 1 for k in ("tune_steps", "anchor_steps", "epochs") if k in known}
    result = measure_learner(scenario, name, config, cheap, few)
    budget, unit = 60 * 28 * 28, "ring" if name == "hal" else "slots"
    assert result["choice"]["settings"][unit] == chosen[unit]
    kept = sum(result["bytes"].values())
    assert result["within_budget"] == (kept <= budget) == (name != "merlin")  # whose generator alone is larger
    if name not in ("hal", "merlin", "gss-iqp"):
        each = kept / min(chosen[unit], 6 * 5)  # in a stream of 30 examples
        assert budget - 1.2 * each * chosen[unit] < each
    if name == "merlin":  # as many as if it kept nothing else
        each = scenario.novel.train[0, 0].nbytes + 8  # and its label
        assert chosen[unit] == budget // each
    assert within_budget(scenario, "ncm", config, {}) == {}
    assert within_budget(scenario, name, config, {unit: 3}) == {}


def test_classes_that_were_trained_on_are_refused(run: tuple[Representation, Any]) -> None:
    representation, data = run
    with pytest.raises(UserError, match="were trained on"):
        scenario_of(representation, replace(data, novel=data.base), STREAMS)


def test_examples_drawn_anew_make_streams_of_the_same_classes_differ() -> None:
    both = Examples(torch.cat([clusters().train] * 2, 1), clusters().test)
    config = replace(STREAMS, redraw=True, trajectories=4)
    _, found = Protocol(Scenario(both, Head(WIDTH)), LEARNERS["ncm"], config).report(12, [12], NCMSettings())
    fewer = replace(config, trajectories=2)
    _, again = Protocol(Scenario(both, Head(WIDTH)), LEARNERS["ncm"], fewer).report(12, [12], NCMSettings())
    assert torch.equal(found.accuracy[:2], again.accuracy)
    drawn = draw(0, "report", 12, 12, 4)
    train, test, ids = images_of(both, drawn, config, "report")
    assert train.shape[:2] == (4 * 12, 5)
    assert test.shape[:2] == (4 * 12, 3)
    assert not torch.equal(train[ids[0]], train[ids[1]])


def test_a_stream_config_that_draws_anew_takes_all_images(run: tuple[Representation, Any]) -> None:
    representation, data = run
    stream = replace(STREAMS, classes=(4,), train_samples=3, test_samples=2, trajectories=3, redraw=True)
    kinds: list[Any] = ["head", "all"]
    for trains in kinds:
        scenario = scenario_of(representation, data, stream, trains)
        assert scenario.novel.train.shape[1] + scenario.novel.test.shape[1] == int(data.novel.counts.min())
        result = measure_learner(scenario, "ncm" if trains == "head" else "online", stream, {}, {})
        assert result["classes"]["4"]["n"] == 3


@pytest.mark.parametrize("name", ["er", "mer", "der", "der++", "gss", "gss-iqp", "hal", "merlin"])
def test_a_full_memory_is_within_the_budget_and_has_no_room_for_more(
    name: str, run: tuple[Representation, Any]
) -> None:
    """The most that is kept at any time of a stream that fills the memory, task after task."""
    representation, data = run
    config = replace(STREAMS, budget_images=400 if name == "merlin" else 60)  # whose generator needs some
    scenario = scenario_of(representation, data, config)
    chosen, kind = within_budget(scenario, name, config, {}), LEARNERS[name].settings_type
    ((unit, count),) = chosen.items()
    costly = ("replay", "compared", "restarts", "tune_steps", "anchor_steps", "epochs")
    quick: dict[str, Any] = {k: int(k == "compared") for k in costly if k in kind.__dataclass_fields__}

    def most(count: int) -> int:
        learner = LEARNERS[name](scenario.model, kind(**quick, **{unit: count}), (0,))
        kept, waiting = [], getattr(kind(), "recent", 0)
        for label in range(6):
            for _ in range(count if unit == "ring" else (count + waiting) // 6 + 1):
                learner.observe(scenario.novel.train[label : label + 1, 0], np.array([label]))
                kept.append(sum(learner.memory().values()))
            learner.end_task()
            kept.append(sum(learner.memory().values()))
        return max(kept)

    budget = config.budget_images * scenario.image_bytes
    more = 2 if name == "gss-iqp" else 1  # of `recent` that may wait, one never does
    assert most(count) <= budget < most(count + more)
