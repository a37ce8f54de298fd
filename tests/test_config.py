"""Configs: presets are valid, TOML goes round, mistakes are named."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from kcciol import config as configs
from kcciol.config import Config, DataConfig, preset, preset_values, presets, read
from kcciol.errors import UserError
from kcciol.paper.presets import generation_preset, member, regression_preset
from kcciol.paper.studies import sine
from kcciol.serialization import from_dict, to_dict, to_toml


def test_the_presets_are_there() -> None:
    names = {"omniglot", "omniglot-paper", "omniglot-literal", "quickstart"}
    names |= {"cifar100", "cifar100-literal", "mini-imagenet", "mini-imagenet-literal"}
    names |= {"sine", "sine-literal", "mnist-gan", "mnist-gan-literal"}
    names |= {"characters", "characters-small", "small-images", "small-images-84"}
    assert set(presets()) == names
    assert all(len(text) > 20 for text in presets().values())


@pytest.mark.parametrize("name", [name for name in presets() if "recipe" not in preset_values(name)])
def test_toml_goes_round(name: str) -> None:
    """Recipes have a test of their own, tests/recipes/test_recipe_config.py."""
    values = preset_values(name)
    config = member(values) if "problem" in values else preset(name)
    assert from_dict(type(config), tomllib.loads(to_toml(config))) == config
    assert from_dict(type(config), to_dict(config)) == config


@pytest.mark.parametrize("root", ["/data/\N{GRINNING FACE}", "a\x7fb", 'a "quoted" \\ one', "Schrift\u0300", "a\tb"])
def test_paths_of_any_characters_go_round(root: str) -> None:
    config = replace(preset("quickstart"), data=DataConfig(root=root))
    assert from_dict(type(config), tomllib.loads(to_toml(config))) == config


def test_the_printed_hyper_parameters() -> None:
    for name in ("omniglot-paper", "omniglot-literal"):
        c = preset(name)
        assert [p.steps for p in c.phases] == [20000, 15000, 4000]
        assert {p.alpha for p in c.phases} == {1e-2}
        assert {p.beta for p in c.phases} == {1e-4}
        assert [p.gamma for p in c.phases] == [0, 5e-5, 0]
        assert [p.lam for p in c.phases] == [0, 0, 5e-4]
        assert (c.trajectory.classes, c.trajectory.support, c.trajectory.query, c.trajectory.remember) == (1, 10, 1, 10)
        assert c.mask.delta == 0.5
    assert (preset("omniglot-literal").net.hidden, preset("omniglot-literal").meta.order) == (1024, "first")


MISTAKES = [
    ({"mask": {"delta": 1.5}}, "mask.delta is 1.5"),
    ({"phase1": {"steps": -1}}, "steps is -1"),
    ({"phase2": {"gamma": "much"}}, "phase2.gamma is 'much'"),
    ({"net": {"strides": []}}, "net.strides"),
    ({"net": {"stride": [1]}}, "net.stride is not a setting"),
    ({"nets": {}}, "nets is not a setting"),
    ({"net": 3}, "net is 3"),
    ({"meta": {"order": "second"}}, "meta.order is 'second'"),
    ({"evaluation": {"rates": [0.0]}}, "evaluation.rates"),
    ({"evaluation": {"classes": 10}}, "evaluation.classes is 10"),
    ({"trajectory": {"classes": 0}}, "trajectory.classes is 0"),
    ({"seed": 1.5}, "seed is 1.5"),
]


@pytest.mark.parametrize(("values", "words"), MISTAKES)
def test_mistakes_are_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_dict(Config, values)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no config file"):
        read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("seed = ")
    with pytest.raises(UserError, match="not valid TOML"):
        read(tmp_path / "bad.toml")
    with pytest.raises(UserError, match="no preset 'omni'"):
        configs.preset("omni")


def test_the_printed_hyper_parameters_of_other_problems() -> None:
    for name in ("sine", "sine-literal"):
        c = regression_preset(name)
        assert [p.steps for p in c.phases] == [20000, 7500, 23500]
        assert {p.alpha for p in c.phases} == {3e-3}
        assert c.phase2.beta == c.phase3.beta == 2.7e-6
        assert (c.phase2.gamma, c.phase3.lam, c.mask.delta) == (1e-5, 5e-4, 0.5)
    literal = regression_preset("sine-literal")
    assert (literal.sine.count, literal.milestones, literal.loss) == (1, (1500, 2500, 3500), "end")
    assert literal == sine.PAPER
    assert regression_preset("sine") == sine.ours(literal)
    assert regression_preset("sine").loss == "every"
    assert literal.phase1.beta == 1e-4
    for c in (literal, regression_preset("sine")):  # phase 1 ends at the rate of the others
        assert c.phase1.beta * c.decay ** len(c.milestones) == pytest.approx(c.phase2.beta)
    gan = generation_preset("mnist-gan-literal")
    assert [p.steps for p in gan.phases] == [300000, 0, 3500000]
    assert (gan.phase1.beta, gan.phase3.lam, gan.mask.delta, gan.trajectory.count) == (1e-5, 1e-4, 1.0, 1)


def test_configs_of_other_problems_say_so() -> None:
    with pytest.raises(UserError, match="sine is of the problem 'regression'"):
        preset("sine")
    with pytest.raises(UserError, match="no problem 'chess'; there are: regression, generation"):
        member({"problem": "chess"})
