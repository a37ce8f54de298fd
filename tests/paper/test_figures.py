"""The figures on Omniglot, rehearsed: numbers, pictures, and what the page of results makes of them."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kcciol.encoders.run import Representation
from kcciol.paper import figures, pictures
from kcciol.paper.figures import DELTAS
from kcciol.paper.pictures import PICTURES
from kcciol.paper.plan import RunPlan
from kcciol.paper.plot import Plot
from kcciol.paper.runner import make
from kcciol.paper.studies import omniglot
from kcciol.paper.study import Subject, Workspace
from kcciol.paper.writing import gather, write_tables

needs_plots = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("matplotlib", "sklearn")), reason="needs the extra `plots`"
)


@needs_plots
def test_every_figure_is_made(tmp_path: Path) -> None:
    parts = {"omniglot": ("figures",), "mini-imagenet": ("weights",)}
    plan = RunPlan(Workspace(runs=tmp_path / "runs", tiny=True), parts, (0,))
    assert make(plan) == []
    paths, _ = write_tables(plan, tmp_path / "out", 1.0)
    assert {path.stem for path in paths} == set(PICTURES)
    for path in paths:
        figure = json.loads(path.read_text())
        assert (path.parent / figure["image"]).read_bytes().startswith(b"\x89PNG")
        assert figure["numbers"]
        assert figure["title"].startswith("Rehearsal")
    masking = json.loads((tmp_path / "out" / "figures" / "masking.json").read_text())
    assert set(masking["data"]) == set(DELTAS)
    assert {name.split(":")[0] for name in masking["numbers"]} == {f"delta {d:g}" for d in DELTAS.values()}
    found = gather(plan, "mini-imagenet")["weights"]
    assert set(found) == {"kcciol", "control"}
    weights = found["kcciol"]["weights"][0]
    assert sum(weights["counts"]) == 4 * 4 * 9  # all of the last convolution's weights


def test_both_halves_of_the_weights_are_asked(tmp_path: Path) -> None:
    subject = Subject(omniglot.STUDY, "kcciol", 0, Workspace(runs=tmp_path, tiny=True))
    result = figures.prune(subject)["kept"]
    assert list(result) == ["all", "important half", "other half"]
    assert all(0 <= cell["mean"] <= 100 for rows in result.values() for cell in rows.values())
    second, last = subject.after_phase(2), subject.representation
    assert not bool((second.Theta == last.Theta).all())
    assert Subject(omniglot.STUDY, "lambda0", 0, subject.workspace).after_phase(1).config.representation == "kcciol"


def test_the_half_that_is_pruned_is_a_half_whatever_is_held(tmp_path: Path) -> None:
    subject = Subject(omniglot.STUDY, "kcciol-o", 0, Workspace(runs=tmp_path, tiny=True))
    assert subject.config.mask.delta == 1.0
    assert figures.pruned_by(subject) == replace(subject.config.mask, delta=0.5)


def test_biases_are_not_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Representation] = []
    monkeypatch.setattr(figures, "on_classes", lambda subject, representation: asked.append(representation))
    subject = Subject(omniglot.STUDY, "gamma0", 0, Workspace(runs=tmp_path, tiny=True))
    figures.prune(subject)
    whole = subject.after_phase(2)
    layout = whole.problem.layout
    every, *halves = (layout.views(one.Theta, "theta.") for one in asked)
    left = torch.zeros(len(halves))
    for name, view in layout.views(whole.Theta, "theta.").items():
        assert torch.equal(every[name], view)
        for number, half in enumerate(halves):
            if name.endswith("bias"):
                assert torch.equal(half[name], view)
                assert bool(view.any())
            else:
                left[number] += int((half[name] != 0).sum())
    weights = sum(int((view != 0).sum()) for name, view in every.items() if not name.endswith("bias"))
    assert left.min() > 0
    assert left.sum() == weights  # each weight is in one of the halves


def test_a_figure_is_of_the_seeds_that_all_its_columns_have(tmp_path: Path) -> None:
    def result(seed: int, mean: float) -> dict[str, Any]:
        numbers = {"mean absolute weight": mean}
        about = {"config": {"seed": seed}, "record": {}}
        return {"tensor": "conv5.weight", "reach": 1.0, "counts": [1.0] * figures.BINS, "numbers": numbers, **about}

    def drawn(**columns: list[dict[str, Any]]) -> list[Plot]:
        return pictures.draw({column: {"weights": results} for column, results in columns.items()})

    (first,) = drawn(kcciol=[result(1, 2.0)], control=[result(1, 4.0)])
    assert "One training each" in first.caption
    old = json.loads(first.write(tmp_path).read_text())
    (both,) = drawn(kcciol=[result(0, 1.0), result(1, 2.0)], control=[result(0, 3.0), result(1, 4.0), result(2, 9.0)])
    assert both.seeds == {"kcciol": [0, 1], "control": [0, 1]}
    assert both.numbers == {"KCCIOL: mean absolute weight": 1.5, "without l1: mean absolute weight": 3.5}
    assert "means over 2 trainings" in both.caption
    assert both.lost(old) == []
    assert drawn(kcciol=[result(0, 1.0)], control=[result(1, 4.0)]) == []
