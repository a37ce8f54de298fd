"""Recipes: the presets are valid, TOML goes round, what cannot be is refused by name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import kcciol
from kcciol.config import preset_values, presets, read
from kcciol.errors import UserError
from kcciol.nets.residual import Residual
from kcciol.recipes.config import Recipe, recipe_in
from kcciol.serialization import from_dict, to_dict, to_toml
from tests.recipes.small import COLOUR, INK, changed

NAMES = [name for name in presets() if "recipe" in preset_values(name)]


def test_the_recipes_are_there() -> None:
    assert set(NAMES) == {"characters", "characters-small", "small-images", "small-images-84"}
    assert all(presets()[name].startswith("Encoder of ") for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_goes_round(name: str) -> None:
    recipe = kcciol.recipe(name)
    assert from_dict(Recipe, tomllib.loads(to_toml(recipe))) == recipe == from_dict(Recipe, to_dict(recipe))
    assert recipe.data.name == {"characters": "omniglot", "small-images": "cifar100"}.get(name, recipe.data.name)


def test_the_small_encoder_is_small() -> None:
    assert sum(p.numel() for p in Residual(kcciol.recipe("characters-small").net).parameters()) < 120_000


WRONG: list[tuple[Recipe, dict[str, Any], str]] = [
    (INK, {"seed": -1}, "seed is -1"),
    (INK, {"extra": -1}, "extra is -1"),
    (INK, {"view__turns": 3}, "view.turns is 3, but must be 1, 2 or 4"),
    (INK, {"view__angle": 200.0}, "view.angle is 200"),
    (INK, {"view__zoom": float("nan")}, "view.zoom is nan"),
    (INK, {"view__stroke": 20.0}, "view.stroke is 20"),
    (INK, {"view__flips": True}, "view.flips is True, but must be false with view.mirrored"),
    (INK, {"view__erase": 0.5}, "view.erase is 0.5, but must be 0.0 with view.kind = 'ink'"),
    (COLOUR, {"view__bend": 0.1}, "view.bend is 0.1, but must be 0.0 with view.kind = 'colour'"),
    (COLOUR, {"view__whole": True}, "view.whole is True, but must be False with view.kind = 'colour'"),
    (COLOUR, {"extra": 10}, "extra is 10, but must be 0 with view.kind = 'colour'"),
    (COLOUR, {"net__size": 20}, "net.size is 20, but must be data.size, 16, with view.kind = 'colour'"),
    (COLOUR, {"net__channels": 1}, "net.channels is 1, but must be 3 with view.kind = 'colour'"),
    (INK, {"net__channels": 3}, "net.channels is 3, but must be 1 with view.kind = 'ink'"),
    (COLOUR, {"view__turns": 4}, "loss.turned is 0.5, but must be 0 unless view.turns is 1"),
    (COLOUR, {"loss__margin": 0.1}, "loss.margin is 0.1, but must be 0 with loss.scale = 0"),
    (INK, {"loss__smoothing": 2.0}, "loss.smoothing is 2"),
    (INK, {"rate__steps": 0}, "rate.steps is 0"),
    (INK, {"rate__batch": 1}, "rate.batch is 1"),
    (INK, {"rate__average": 1.0}, "rate.average is 1.0"),
    (INK, {"rate__decay": 200.0}, "rate.decay is 200.0, but must be at most 1 / rate.rate"),
    (INK, {"output__shrinkage": 0.0}, "output.shrinkage is 0.0"),
    (INK, {"output__views": -1}, "output.views is -1"),
]


@pytest.mark.parametrize(("recipe", "changes", "says"), WRONG, ids=[says for *_, says in WRONG])
def test_what_cannot_be_is_refused(recipe: Recipe, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        changed(recipe, **changes)


def test_a_config_of_another_kind_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"The preset quickstart is no recipe .* kcciol.preset\('quickstart'\) reads it"
    ):
        kcciol.recipe("quickstart")
    with pytest.raises(UserError, match="There is no preset 'nothing'"):
        kcciol.recipe("nothing")
    with pytest.raises(UserError, match=r"The preset characters is the recipe of an encoder, .* kcciol\.recipe"):
        kcciol.preset("characters")
    (tmp_path / "config.toml").write_text(to_toml(INK))
    with pytest.raises(UserError, match="is the recipe of an encoder"):
        read(tmp_path / "config.toml", whole=True)
    assert recipe_in(tmp_path) == INK


@pytest.mark.parametrize("text", [None, "seed = 0\n", "no toml", "recipe = "])
def test_a_folder_of_another_kind_holds_no_recipe(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.toml").write_text(text)
    assert recipe_in(tmp_path) is None
