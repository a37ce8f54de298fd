"""The parts of Algorithms 1 to 3: mask, Adam, trajectories, the reset of W, the l1 term."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kcciol.config import Config, MaskConfig, TrajectoryConfig
from kcciol.data.classset import ClassSet, Splits
from kcciol.engine.loop import BLOCK
from kcciol.errors import UserError
from kcciol.meta.mask import get_mask
from kcciol.meta.step import MetaStep
from kcciol.meta.trajectory import Sampler, distinct
from kcciol.nets.classification import Classification
from kcciol.nets.layout import Layout

LAYOUT = Layout({"a": (7, 3), "b": (5,), "c": (2, 3, 3, 3)})


@given(st.floats(0, 1), st.sampled_from(["global", "tensor"]))
def test_the_mask_marks_the_largest_share(delta: float, scope: str) -> None:
    generator = torch.Generator().manual_seed(1)
    Theta = LAYOUT.pack({n: torch.randn(s, generator=generator) for n, s in LAYOUT.shapes.items()})
    mask = get_mask(LAYOUT, Theta, MaskConfig(delta, scope))  # type: ignore[arg-type]
    groups = [list(LAYOUT.shapes)] if scope == "global" else [[n] for n in LAYOUT.shapes]
    marks, values = LAYOUT.views(mask), LAYOUT.views(Theta.abs())
    for names in groups:
        m = torch.cat([marks[n].flatten() for n in names]).bool()
        v = torch.cat([values[n].flatten() for n in names])
        assert int(m.sum()) == round(delta * len(v))
        if m.any() and not m.all():
            assert v[m].min() > v[~m].max()
    assert mask.sum() == sum(view.sum() for view in marks.values())  # padding is never marked


@settings(max_examples=30)
@given(st.integers(1, 40), st.data())
def test_distinct_numbers(n: int, data: st.DataObject) -> None:
    r = data.draw(st.integers(0, n))
    drawn = distinct(np.random.default_rng(0), 20, n, r)
    assert drawn.shape == (20, r)
    assert all(len(set(row)) == r and all(0 <= v < n for v in row) for row in drawn.tolist())


def test_distinct_is_uniform_both_ways() -> None:
    for n, r in ((30, 3), (5, 3)):  # rejection; sorting
        counts = np.bincount(distinct(np.random.default_rng(1), 20_000, n, r).flatten(), minlength=n)
        expected = 20_000 * r / n
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def ragged() -> ClassSet:
    counts = torch.tensor([6, 4, 9, 5])
    return ClassSet(torch.zeros(4, 9, 1, 8, 8, dtype=torch.uint8), counts, ("a", "b", "c", "d"))


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(0, 24), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_trajectories(classes: int, count: int, support: int, remember: int, seed: int) -> None:
    data, c = ragged(), TrajectoryConfig(classes, support, 1, remember, count)
    table = Sampler(data, c).draw(seed, 1, 3)
    k, s = classes * support, classes + remember
    assert table.images.shape == (BLOCK, count * (k + s))
    labels, samples = table.images // 9, table.images % 9
    assert (samples < data.counts[labels]).all()  # only images that are there
    assert all(len(set(row)) == count * classes for row in table.classes.tolist())
    for b in range(0, BLOCK, 60):
        for t in range(count):
            own = table.classes[b, t * classes : (t + 1) * classes]
            train = table.images[b, t * k : (t + 1) * k]
            val = table.images[b, count * k + t * s : count * k + (t + 1) * s]
            assert (train // 9).tolist() == own.repeat_interleave(support).tolist()  # class after class
            assert (val[:classes] // 9).tolist() == own.tolist()
            assert not set(train.tolist()) & set(val[:classes].tolist())  # held out
            assert len(set(train.tolist())) == k
            assert len(set(val[classes:].tolist())) == remember
    again = Sampler(data, c).draw(seed, 1, 3)
    assert torch.equal(table.images, again.images)
    assert not torch.equal(table.images, Sampler(data, c).draw(seed, 2, 3).images)


def test_too_much_asked_of_the_data() -> None:
    with pytest.raises(UserError, match="'b' has 4 images"):
        Sampler(ragged(), TrajectoryConfig(support=4, query=1))
    with pytest.raises(UserError, match="4 base classes"):
        Sampler(ragged(), TrajectoryConfig(classes=5, support=1))
    with pytest.raises(UserError, match=r"remember is 25, but there are 24 images"):
        Sampler(ragged(), TrajectoryConfig(support=1, remember=25))


def make_step(config: Config, data: Splits, reset: Any, gamma: float = 0.0) -> MetaStep:
    config = dataclasses.replace(config, meta=dataclasses.replace(config.meta, reset=reset))
    phase = dataclasses.replace(config.phase1, gamma=gamma, beta=0.0)
    problem = Classification(config.net, data.base.image_shape, len(data.base))
    Theta = problem.init(0)
    problem.W(Theta)["bias"].fill_(0.1)
    step = MetaStep(problem, data.base, config, phase, 1, Theta)
    step.load_block(0, 0)
    return step


@pytest.mark.parametrize("reset", ["none", "draw", "zero", "all"])
def test_what_the_reset_touches(tiny: Config, tiny_data: Splits, reset: str) -> None:
    step = make_step(tiny, tiny_data, reset)
    before = {n: t.clone() for n, t in step.problem.layout.views(step.Theta).items()}
    step()  # with beta = 0 nothing else moves
    after = step.problem.layout.views(step.Theta)
    rows = step.classes[0].tolist()
    others = [i for i in range(len(tiny_data.base)) if i not in rows]
    weight, old = after["W.weight"], before["W.weight"]
    assert all(torch.equal(after[n], before[n]) for n in before if n.startswith("theta."))
    assert torch.equal(weight[others], old[others]) == (reset != "all")
    assert torch.equal(weight[rows], old[rows]) == (reset == "none")
    if reset == "zero":
        assert not weight[rows].any()
    if reset in ("draw", "all"):
        scale = float(weight[rows].std())
        assert abs(scale - (2 / weight.shape[1]) ** 0.5) < 0.3 * scale
    if reset != "none":
        assert not after["W.bias"][rows].any()
    padding = torch.ones_like(step.Theta)
    for view in step.problem.layout.views(padding).values():
        view.zero_()
    assert not (padding * step.Theta).any()


def test_l1_pulls_every_parameter_towards_zero(tiny: Config, tiny_data: Splits) -> None:
    config = dataclasses.replace(tiny, phase1=dataclasses.replace(tiny.phase1, gamma=10.0, beta=1e-3))
    config = dataclasses.replace(config, meta=dataclasses.replace(config.meta, reset="none"))
    problem = Classification(config.net, tiny_data.base.image_shape, len(tiny_data.base))
    step = MetaStep(problem, tiny_data.base, config, config.phase1, 1, problem.init(0))
    before = step.Theta.clone()
    step.load_block(0, 0)
    step()
    moved = before.abs() > 0.01
    assert (step.Theta.abs()[moved] < before.abs()[moved]).all()


def test_layout_views_cover_the_vector_without_overlap() -> None:
    vector = torch.zeros(LAYOUT.length)
    for number, view in enumerate(LAYOUT.views(vector).values(), 1):
        assert not view.any()
        view.fill_(number)
        assert view.storage_offset() % 64 == 0
    assert int((vector != 0).sum()) == 7 * 3 + 5 + 54
    assert LAYOUT.views(vector)["c"].is_contiguous(memory_format=torch.channels_last)
