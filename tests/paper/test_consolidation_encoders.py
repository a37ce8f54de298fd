"""What consolidation is worth on top of encoders that our recipes have trained: the plan, a family, the file."""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from kcciol.config import Config, DataConfig
from kcciol.encoders import saved
from kcciol.encoders.run import load as load_representation
from kcciol.meta.phases import train
from kcciol.nets.residual import ResidualConfig
from kcciol.paper.consolidation.encoder_family import EncoderFamily
from kcciol.paper.consolidation.encoder_heads import columns_of
from kcciol.paper.consolidation.encoder_plan import (
    ALONE,
    BOTH,
    ENCODERS,
    FISHER,
    HALF,
    L1_MOVING,
    LONGER,
    MOVING,
    TOP,
    TRAINED,
    EncoderCondition,
    EncoderSetting,
    setting_of,
)
from kcciol.paper.consolidation.encoder_sets import Seen, load_raw, load_seen, turned
from kcciol.paper.consolidation.plan import L1, StreamSize, config_of
from kcciol.paper.consolidation.results import NAME, RESULTS, write_results
from kcciol.paper.consolidation.runner import Wanted, make
from kcciol.recipes.config import LossConfig, RateConfig, Recipe, ViewConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def few(tiny: Config) -> EncoderSetting:
    """A setting that takes seconds."""
    recipe = Recipe(
        recipe="glyphs",
        data=DataConfig("glyphs", size=24, base_classes=12, validation_classes=4, novel_classes=6, samples=8),
        net=ResidualConfig(size=16, stem=4, widths=(8,), strides=(2,), features=8, places=2),
        view=ViewConfig(turns=2, mirrored=True),
        loss=LossConfig(scale=10.0),
        rate=RateConfig(steps=5, batch=8, average=0.5),
    )
    recipe = replace(recipe, data=replace(recipe.data, train_samples=0))
    found = setting_of(recipe, tiny, (3, 5), StreamSize(5, 5, 3), 4, {"shift": 1})
    streams = replace(found.streams, trajectories=3, rates=(1e-1, 1e-2))
    return replace(found, config=replace(found.config, evaluation=streams))


@pytest.fixture(scope="module")
def whole(few: EncoderSetting, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family of one seed, made in one go."""
    out = tmp_path_factory.mktemp("whole")
    EncoderFamily(few, "zero", 0, out, "cpu").make()
    write_results(out)
    return out


def without_records(path: Path) -> Any:
    found = json.loads(path.read_text())
    del found["record"], found["encoders"]["made"]
    return found


@pytest.mark.parametrize("setting", ENCODERS.values(), ids=list(ENCODERS))
def test_everything_takes_equally_many_steps_from_one_encoder(setting: EncoderSetting) -> None:
    conditions = {c.name: c for c in setting.conditions("zero")}
    wanted = setting.config.phase2.steps
    assert wanted == setting.config.phase3.steps
    for condition in conditions.values():
        steps, at = 0, condition
        while at.name not in (TRAINED, LONGER):
            for option in at.options:
                config = config_of(setting, "zero", 0, at, option)
            steps, at = steps + config.total_steps, conditions[at.after]
        if condition.name not in (TRAINED, LONGER, HALF):
            assert steps == wanted
        assert at.name == TRAINED or condition.name == LONGER
    shown = {}
    for name in (TRAINED, LONGER):
        condition = conditions[name]
        assert isinstance(condition, EncoderCondition)
        rate = setting.recipe_of(condition, 0).rate
        shown[name] = rate.steps * rate.batch
    images = 104 * wanted  # of so many a step
    assert 0 <= shown[LONGER] - shown[TRAINED] - images < setting.recipe.rate.batch
    assert setting.recipe.data.validation_classes == setting.config.data.validation_classes
    assert {name for name, c in conditions.items() if isinstance(c, EncoderCondition) and c.moving} == {
        MOVING,
        L1_MOVING,
    }


def test_what_is_made_is_whole(few: EncoderSetting, whole: Path) -> None:
    found = RESULTS.read(whole / NAME)
    assert found["rows"] == {}
    rows = found["encoders"]["rows"]
    assert set(rows) == {f"encoders-glyphs zero {column}" for column in columns_of(few)}
    assert len(rows) == 2 * 3 * 2
    for cells in rows.values():
        assert list(cells) == [condition.name for condition in few.conditions("zero")]
        assert all(cell["n"] == 1 and len(cell["by_trajectory"]) == 3 for cell in cells.values())
    assert found["encoders"]["config"]["encoders-glyphs zero"]["seed"] == [0]


def test_what_goes_on_is_the_encoder(few: EncoderSetting, whole: Path) -> None:
    family = EncoderFamily(few, "zero", 0, whole, "cpu")
    representation = load_representation(family.chosen(TRAINED, family.leader).path, "cpu", Seen(few.recipe))
    encoder = saved.load(str(family.folder / "recipes" / "as-trained" / "encoder.safetensors"))
    raw, seen = load_raw(few).novel, load_seen(few).novel
    pictures = [image[0].numpy() for image in raw.images[2]]
    wanted = encoder.network(encoder.preprocessing(pictures))
    assert torch.allclose(representation.features(seen.images[2]), wanted, atol=0.05)  # images are bytes here


def test_statistics_move_only_where_they_are_to(few: EncoderSetting, whole: Path) -> None:
    family = EncoderFamily(few, "zero", 0, whole, "cpu")

    def kept(name: str) -> dict[str, torch.Tensor]:
        end = family.chosen(name, family.leader)
        return load_representation(end.path, "cpu", family.module(family.conditions[name])).problem.buffers

    before = kept(TRAINED)
    for name, moves in {ALONE: False, L1: False, TOP: False, BOTH: False, FISHER: False, MOVING: True}.items():
        after = kept(name)
        assert all(torch.equal(before[key], after[key]) for key in before) != moves


def test_later_trainings_take_over_what_was_chosen(few: EncoderSetting, whole: Path) -> None:
    family = EncoderFamily(few, "zero", 0, whole, "cpu")
    l1, top = (few.strengths[name][family.chosen(name, family.leader).option] for name in (L1, TOP))
    half, both = (next(iter(family.ends(name))) for name in (HALF, BOTH))
    settings = load_representation(half.path, "cpu", Seen(few.recipe)).config.phase2
    assert (settings.gamma, settings.beta, settings.steps) == (l1["gamma"], l1["beta"], 2)
    settings = load_representation(both.path, "cpu", Seen(few.recipe)).config.phase3
    assert (settings.lam, settings.beta, settings.steps) == (top["lam"], top["beta"], 2)


class _CutError(Exception):
    pass


@pytest.mark.parametrize("after", [1, 5])
def test_a_family_that_is_cut_goes_on_to_the_same_end(
    few: EncoderSetting, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    calls = 0

    def cut(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after:
            raise _CutError
        return train(*args, **more)

    monkeypatch.setattr("kcciol.paper.consolidation.family.train", cut)
    family = EncoderFamily(few, "zero", 0, tmp_path, "cpu")
    with pytest.raises(_CutError):
        family.make()
    monkeypatch.undo()
    assert not family.complete
    family.make()
    write_results(tmp_path)
    assert without_records(tmp_path / NAME) == without_records(whole / NAME)


def test_the_command_knows_what_is_made(few: EncoderSetting, whole: Path) -> None:
    wanted = Wanted(whole, (few,), (0,), "cpu")
    assert [type(family) for family in wanted.families()] == [EncoderFamily]
    before = without_records(whole / NAME)
    assert make(wanted)
    assert without_records(whole / NAME) == before
    assert not make(replace(wanted, seeds=(0, 1), seconds=0))


def test_what_other_settings_have_found_stays_in_the_file(few: EncoderSetting, whole: Path, tmp_path: Path) -> None:
    encoders = EncoderFamily(few, "zero", 0, whole, "cpu").found
    row = dict.fromkeys(("adam", "ncm"), encoders["rows"][TRAINED]["plain ncm 3"])
    other = {**encoders, "setting": "omniglot", "rows": {"phase 1": row}}
    del other["part"]  # as families had been written before there were others
    for name, found in {"a": encoders, "b": other}.items():
        (tmp_path / "families" / name).mkdir(parents=True)
        (tmp_path / "families" / name / "result.json").write_text(json.dumps(found))
    merged = write_results(tmp_path)
    assert list(merged["rows"]) == ["omniglot zero adam", "omniglot zero ncm"]
    assert merged["encoders"]["rows"] == RESULTS.read(whole / NAME)["encoders"]["rows"]


def test_classes_that_the_recipe_makes_are_classes(few: EncoderSetting) -> None:
    raw, seen = load_raw(few), load_seen(few)
    assert (len(seen.base), len(seen.novel)) == (4 * len(raw.base), len(raw.novel))
    assert len(set(seen.base.names)) == len(seen.base)
    upright, half_turned, mirrored = (seen.base.images[i * len(raw.base)] for i in (0, 1, 2))
    assert torch.equal(half_turned, upright.flip(-1, -2))
    assert torch.equal(mirrored, upright.flip(-1))
    one = replace(few.recipe, view=ViewConfig(turns=1))
    assert turned(one, raw.novel).identity == raw.novel.identity


def test_photographs_are_seen_as_the_recipe_sees_them() -> None:
    recipe = ENCODERS["encoders-small-images"].recipe
    images = torch.randint(256, (3, 3, 32, 32), dtype=torch.uint8)
    network = Seen(recipe).eval()
    wanted = network.network((images.float() - 127.5) / 64)
    assert torch.allclose(network(images.float() / 255), wanted, atol=1e-4)
    trained = Seen(recipe, 4.0)
    trained.load_state_dict(network.state_dict())
    assert torch.allclose(trained.eval()(images.float() / 255), 4 * functional.normalize(wanted), atol=1e-4)


def test_normalisation_is_in_training_mode_only_where_it_is_to_be() -> None:
    recipe = ENCODERS["encoders-characters"].recipe
    modes = [
        Seen(recipe, moving=moving).train(mode).network.norm.training
        for moving in (False, True)
        for mode in (False, True)
    ]
    assert modes == [False, False, False, True]


def test_the_page_has_a_row_for_each_condition(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tables, paper_tables = (importlib.import_module(name) for name in ("consolidation_tables", "paper_tables"))
    for module in (tables, paper_tables):
        monkeypatch.setattr(module, "RESULTS", whole)
    for name, classes in {"encoders": 5, "encoders_plain": 5, "encoders_fewer": 3}.items():
        lines = tables.WORTH[name]().splitlines()
        heads = " | ".join(f"glyphs, {classes} classes, {head}" for head in ("adam", "ncm", "gaussian"))
        assert lines[0] == f"| condition | {heads} |"
        assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in tables.ON_TOP]
        assert all(cell.strip() for line in lines[2:] for cell in line.split("|")[2:-1])
    assert f"{TOP} − {TRAINED} |" in tables.WORTH["encoders_gaps"]()
    assert "| l1 | gamma " in tables.WORTH["encoders_options"]()
    assert tables.WORTH["stopping"]() == tables.NOT_YET


def test_their_images_cannot_be_packed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["consolidation.py", "--pack", "x", "--only", "encoders-characters"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(ROOT / "benchmarks" / "consolidation.py"), run_name="__main__")
    assert left.value.code == 2
    assert "The images of encoders-characters cannot be packed" in capsys.readouterr().err
