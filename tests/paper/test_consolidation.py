"""What consolidation is worth: the plan, a family that is cut and goes on, and the file that is made of it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from kcciol.config import Config, EvaluationConfig, preset
from kcciol.data.classset import Splits
from kcciol.meta.phases import train
from kcciol.numbers import half_width
from kcciol.paper.consolidation.family import Family
from kcciol.paper.consolidation.heads import HEADS
from kcciol.paper.consolidation.plan import (
    HELD,
    KCCIOL,
    L1,
    PHASE1,
    PLAIN,
    SETTINGS,
    STOPS,
    Setting,
    config_of,
)
from kcciol.paper.consolidation.results import NAME, RESULTS, cell_of, gathered, write_results
from kcciol.paper.consolidation.runner import Wanted, make
from kcciol.paper.consolidation.sets import load_sets, pack, trimmed
from kcciol.serialization import to_dict

ROOT = Path(__file__).parents[2]
FAMILY = Family.__module__
TINY_STRENGTHS = {
    L1: {"1e-05": {"gamma": 1e-5}, "0.001": {"gamma": 1e-3}},
    "decay": {"0.5": {"decay": 0.5}},
    "dropout": {"0.3": {"dropout": 0.3}},
    "augment": {"shift 1": {"shift": 1, "flip": True, "turn": 5.0}},
}


@pytest.fixture(scope="module")
def small(tiny: Config) -> Setting:
    """A setting that takes seconds."""
    phases = {f"phase{i}": replace(p, steps=4, gamma=0.0, lam=0.0) for i, p in enumerate(tiny.phases, 1)}
    streams = EvaluationConfig(
        classes=(4,),
        trajectories=3,
        train_samples=5,
        test_samples=3,
        rates=(1e-1, 1e-2, 1e-3),
        rule="base",
        search_trajectories=2,
        curve_points=1,
    )
    data = replace(tiny.data, base_classes=12, validation_classes=4, train_samples=0)
    engine = replace(tiny.engine, checkpoint_every=2)
    config = replace(tiny, data=data, engine=engine, evaluation=streams, **phases)  # type: ignore[arg-type]
    return Setting("glyphs", config, TINY_STRENGTHS)


def test_the_plan_asks_what_the_issue_asks() -> None:
    for setting in SETTINGS.values():
        zero, none = ({c.name: c for c in setting.conditions(reset)} for reset in setting.resets)
        assert set(zero) > set(none)
        swapped = {L1, "decay", "augment", "dropout", "nothing"}
        for found in (zero, none):
            assert {name for name, c in found.items() if c.phase == 2} == {*swapped, PLAIN}
            assert all(found[name].after == PHASE1 for name in swapped)
        held = {f"lambda {lam}, {which}" for lam in ("0.0005", "0.05") for which in HELD}
        assert {name for name, c in zero.items() if c.phase == 3 and c.after == L1} == {
            *held,
            "lambda 0",
            "l1 continued",
        }
        total = setting.config.total_steps
        for name in (KCCIOL, "control", PLAIN):  # the same steps, all told
            steps, condition = 0, zero[name]
            while condition.name != PHASE1:
                config = config_of(setting, "zero", 0, condition, next(iter(condition.options)))
                steps, condition = steps + config.total_steps, zero[condition.after]
            assert steps + setting.config.phase1.steps == total
        assert setting.config.data.validation_classes >= setting.classes
        assert setting.config.engine.precision == "float32"
        assert all(name in zero for stop in STOPS for name in stop.of)


def test_a_training_has_the_settings_of_its_condition_only(small: Setting) -> None:
    for condition in small.conditions("zero"):
        for option, changes in condition.options.items():
            config = config_of(small, "zero", 3, condition, option)
            assert config.seed == 3
            for number, phase in enumerate(config.phases, 1):
                own = small.config.phases[number - 1]
                assert phase == replace(own, **(changes if number == condition.phase else {"steps": 0}))
            assert config.mask == replace(small.config.mask, **condition.mask)


def without_records(path: Path) -> Any:
    found = json.loads(path.read_text())
    del found["record"], found["made"]
    return found


@pytest.fixture(scope="module")
def whole(small: Setting, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All families of one seed, made in one go."""
    out = tmp_path_factory.mktemp("whole")
    for reset in small.resets:
        Family(small, reset, 0, out, "cpu").make()
    write_results(out)
    return out


def test_what_is_made_is_whole(small: Setting, whole: Path) -> None:
    found = RESULTS.read(whole / NAME)
    assert set(found["rows"]) == {f"glyphs {reset} {head}" for reset in small.resets for head in HEADS}
    for reset in small.resets:
        names = {*(c.name for c in small.conditions(reset)), *(stop.name for stop in STOPS)}
        for head in HEADS:
            cells = found["rows"][f"glyphs {reset} {head}"]
            assert set(cells) == names
            assert all(cell["n"] == 1 and cell["ci95"] is None and cell["seeds"] == [0] for cell in cells.values())
            assert all(len(cell["by_trajectory"]) == 3 for cell in cells.values())
        assert [point["step"] for point in found["curves"][f"glyphs {reset}"][PLAIN]] == [2, 4, 6, 8]
    assert {"versions", "hardware", "commit"} <= set(found["record"])
    assert found["config"]["glyphs zero"]["seed"] == [0]


def test_what_counts_is_the_best_on_base_classes_kept_out(small: Setting, whole: Path) -> None:
    family = Family(small, "zero", 0, whole, "cpu")
    rows = family.found["rows"]
    for head in HEADS:
        scores = [family.kept_out(end)["heads"][head]["score"] for end in family.ends(L1)]
        assert rows[L1][head]["score"] == max(scores)
        assert rows[L1][head]["option"] == list(TINY_STRENGTHS[L1])[scores.index(max(scores))]
        for stop in STOPS:
            ends = [rows[name][head]["score"] for name in stop.of if len(family.conditions[name].options) == 1]
            assert rows[stop.name][head]["score"] >= max(ends)


def test_a_later_phase_goes_on_from_the_chosen_training(small: Setting, whole: Path) -> None:
    family = Family(small, "zero", 0, whole, "cpu")
    start = family.chosen(L1, "adam").path
    assert start.exists()
    assert {path.name for path in start.parent.glob("*.safetensors")} == {
        "checkpoint.safetensors",
        "phase2-step2.safetensors",
        "phase2.safetensors",
    }


class _CutError(Exception):
    pass


@pytest.mark.parametrize("after", [1, 4, 9])
def test_a_family_that_is_cut_goes_on_to_the_same_end(
    small: Setting, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    calls = 0

    def cut(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after:
            raise _CutError
        return train(*args, **more)

    monkeypatch.setattr(f"{FAMILY}.train", cut)
    ours = [Family(small, reset, 0, tmp_path, "cpu") for reset in small.resets]
    with pytest.raises(_CutError):
        ours[0].make()
    assert not ours[0].complete
    monkeypatch.undo()
    for family in ours:
        family.make()
        assert family.complete
    write_results(tmp_path)
    assert without_records(tmp_path / NAME) == without_records(whole / NAME)


def test_what_is_there_is_not_made_again(small: Setting, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.suffix in (".safetensors", ".toml")}
    monkeypatch.setattr(f"{FAMILY}.train", None)
    monkeypatch.setattr(f"{FAMILY}.load_representation", None)
    Family(small, "zero", 0, whole, "cpu").make()
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_processes_make_the_same(small: Setting, whole: Path, tmp_path: Path) -> None:
    wanted = Wanted(tmp_path, (small,), (0,), "cpu", jobs=2)
    assert not make(replace(wanted, seconds=0))
    assert make(wanted)
    assert without_records(tmp_path / NAME) == without_records(whole / NAME)


def test_a_network_of_ones_own_joins(small: Setting, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
    family = Family(replace(small, module=network), "zero", 0, tmp_path, "cpu")
    best = family.chosen(L1, "ncm")
    assert best.option in TINY_STRENGTHS[L1]
    assert set(family.kept_out(best)["heads"]) == set(HEADS)


def test_seeds_are_put_together() -> None:
    about = {"option": "", "condition": "a", "step": 4, "score": 1.0, "seen": 2.0, "settings": {}, "at_edge": []}
    cells = [
        (seed, {"mean": float(mean), "by_trajectory": [mean, mean], **about}) for seed, mean in enumerate((1, 2, 3))
    ]
    found = cell_of(cells)
    assert (found["mean"], found["n"], found["by_seed"]) == (2.0, 3, [1.0, 2.0, 3.0])
    assert half_width(found["ci95"], 2) == " ± 2.48"  # 4.303 / sqrt(3)
    assert found["by_trajectory"] == [1, 1, 2, 2, 3, 3]


def test_a_seed_that_is_not_done_is_left_out(small: Setting, whole: Path) -> None:
    one = Family(small, "zero", 0, whole).found
    other = {**one, "seed": 1, "rows": {PHASE1: one["rows"][PHASE1]}, "curves": {}}
    rows = gathered([other, one])["rows"]["glyphs zero ncm"]
    assert (rows[PHASE1]["seeds"], rows[L1]["seeds"]) == ([0, 1], [0])


def test_images_can_be_packed(small: Setting, tmp_path: Path) -> None:
    file = pack(small, tmp_path)
    whole: Splits = trimmed(small, load_sets(small))
    packed = load_sets(small, str(tmp_path))
    assert file.parent == tmp_path
    assert packed.identity == whole.identity


def test_the_page_has_a_row_for_each_condition(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tables, paper_tables = (importlib.import_module(name) for name in ("consolidation_tables", "paper_tables"))
    monkeypatch.setattr(tables, "RESULTS", whole)
    monkeypatch.setattr(paper_tables, "RESULTS", whole)
    wanted = {"stopping": tables.STOPPING, "swapped": tables.SWAPPED, "holding": tables.HOLDING[:3]}
    for name, conditions in wanted.items():
        lines = tables.WORTH[name]().splitlines()
        assert lines[0] == "| condition | glyphs, adam | glyphs, ncm | glyphs, gaussian |"
        assert [line.split(" | ")[0] for line in lines[2 : 2 + len(conditions)]] == [f"| {c}" for c in conditions]
        assert all(cell.strip() for line in lines[2:] for cell in line.split("|")[2:-1])
    assert [line.split(" | ")[0] for line in tables.WORTH["along"]().splitlines()[2:]] == [
        f"| {n}" for n in range(2, 13, 2)
    ]
    assert "shift 1" in tables.WORTH["strengths"]()
    monkeypatch.setattr(tables, "RESULTS", whole / "nowhere")
    assert all(table().startswith("(Not made yet") for table in tables.WORTH.values())


def test_the_command_needs_neither_rich_nor_tyro() -> None:
    code = (
        "import sys; sys.modules['rich'] = sys.modules['tyro'] = None; import runpy; "
        "sys.argv = ['consolidation.py', '--help']; runpy.run_path('benchmarks/consolidation.py', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_settings_are_small_presets() -> None:
    for name, setting in SETTINGS.items():
        values, start = to_dict(setting.config), to_dict(preset(name))
        assert values["trajectory"] == start["trajectory"]
        assert values["net"]["channels"] < start["net"]["channels"]
