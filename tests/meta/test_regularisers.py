"""What a phase on images may have besides the paper's terms: weight decay, dropout, movements; and other masks.

Each used form is held equal to a plain one; none of it waits for the host; a run that is cut goes on to the same end.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kcciol import optim
from kcciol.config import ClassifierPhaseConfig, Config, MaskConfig
from kcciol.data.classset import Splits
from kcciol.encoders.run import load
from kcciol.engine import checkpoint
from kcciol.engine.device import precision
from kcciol.engine.graph import capture
from kcciol.engine.loop import BLOCK
from kcciol.engine.ranks import ALONE
from kcciol.engine.run_folder import RunFolder
from kcciol.errors import UserError
from kcciol.meta.augment import Dropout, Movements, StepShape, movements
from kcciol.meta.autograd import autograd_meta_gradient
from kcciol.meta.importance import STEPS, mean_squares
from kcciol.meta.lowrank import LinearLowRank
from kcciol.meta.mask import get_mask
from kcciol.meta.outer import meta_gradient
from kcciol.meta.phases import ClassificationPhase, train
from kcciol.meta.step import MetaStep
from kcciol.nets.classification import Classification
from kcciol.nets.layout import Layout
from kcciol.random import generator
from kcciol.serialization import from_dict, to_dict
from tests.meta.test_equality import ALPHA, LAMBDA, case, relative

EVERYTHING: dict[str, Any] = {"decay": 3.0, "dropout": 0.3, "shift": 2, "flip": True, "turn": 10.0}
LAYOUT = Layout({"a": (7, 4), "b": (6,), "c": (2, 3, 3, 4)})
CPU = torch.device("cpu")


def regularised(config: Config) -> Config:
    """The same with everything in every phase."""
    phases = {f"phase{i}": dataclasses.replace(p, **EVERYTHING) for i, p in enumerate(config.phases, 1)}
    return dataclasses.replace(config, mask=dataclasses.replace(config.mask, which="random"), **phases)  # type: ignore[arg-type]


# --- masks ------------------------------------------------------------------------------------------------------------


def parameters() -> Tensor:
    random = torch.Generator().manual_seed(1)
    return LAYOUT.pack({name: torch.randn(shape, generator=random) for name, shape in LAYOUT.shapes.items()})


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_the_bottom_half_is_what_the_top_half_leaves(scope: Any) -> None:
    Theta = parameters()
    top, bottom = (get_mask(LAYOUT, Theta, MaskConfig(0.5, scope, which)) for which in ("top", "bottom"))
    everything = LAYOUT.pack({name: torch.ones(shape) for name, shape in LAYOUT.shapes.items()})
    assert torch.equal(top + bottom, everything)


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_a_random_mask_is_of_its_seed_and_of_nothing_else(scope: Any) -> None:
    config = MaskConfig(0.25, scope, "random")
    mask = get_mask(LAYOUT, parameters(), config, 3)
    assert torch.equal(mask, get_mask(LAYOUT, torch.zeros(LAYOUT.length), config, 3))
    assert not torch.equal(mask, get_mask(LAYOUT, parameters(), config, 4))
    assert int(mask.sum()) == round(0.25 * 106) if scope == "global" else 7 + 2 + 18


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_a_soft_mask_falls_with_the_rank(scope: Any) -> None:
    Theta = parameters()
    hard, soft = (get_mask(LAYOUT, Theta, MaskConfig(0.5, scope, soft=soft)) for soft in (False, True))
    for name, marks in LAYOUT.views(soft).items():
        order = LAYOUT.views(Theta)[name].abs().flatten().argsort(descending=True)
        assert bool((marks.flatten()[order].diff() < 0).all())
        assert torch.equal(marks > 0.5, LAYOUT.views(hard)[name] == 1)
        if scope == "tensor":
            assert (float(marks.max()), float(marks.min())) == (1, 0)


def test_the_fisher_mask_is_of_squared_gradients(tiny: Config, tiny_data: Splits) -> None:
    base = tiny_data.base.first_samples(tiny.data.train_samples)
    problem = Classification(tiny.net, base.image_shape, len(base))
    Theta = problem.init(0)
    before, phase = Theta.clone(), tiny.phase3
    found = mean_squares(problem, base, tiny, 3, Theta, ALONE)
    step = MetaStep(problem, base, tiny, dataclasses.replace(phase, steps=STEPS, lam=0.0, beta=0.0), 3, Theta.clone())
    step.load_block(0, 0)
    wanted = torch.zeros_like(Theta)
    for _ in range(STEPS):
        step.Theta.copy_(Theta)
        step.adam.m.zero_()
        step()
        wanted += (step.adam.m / (1 - optim.BETA1)).square() / STEPS  # m is the gradient's share
    assert torch.equal(Theta, before)
    ratio = (found / ((1 - optim.BETA2) * STEPS * wanted))[wanted > 0]
    assert 0.9 < float(ratio.min()) < float(ratio.max()) <= 1.001  # later steps count a little more
    mask = get_mask(problem.layout, Theta, MaskConfig(which="fisher"), squares=lambda: found)
    assert float(found[mask == 1].min()) >= float(found[(mask == 0)].max())


def test_the_fisher_mask_is_for_encoders_of_images() -> None:
    with pytest.raises(UserError, match=r"mask\.which is 'fisher', but that is for encoders of images only"):
        get_mask(LAYOUT, parameters(), MaskConfig(which="fisher"))


def test_a_run_with_a_fisher_mask_that_is_cut_goes_on_to_the_same_end(
    tiny: Config, tiny_data: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(tiny, mask=MaskConfig(which="fisher", soft=True))
    whole = train(config, tiny_data.base, tmp_path / "whole", quiet=True)
    part = RunFolder(tmp_path / "part")
    save = ClassificationPhase.save

    def cut(self: ClassificationPhase, done: int) -> None:
        save(self, done)
        if (self.number, done) == (3, 3):
            raise KeyboardInterrupt

    monkeypatch.setattr(ClassificationPhase, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        train(config, tiny_data.base, part.path, quiet=True)
    monkeypatch.undo()
    train(config, tiny_data.base, part.path, resume=True, quiet=True)
    ends = [checkpoint.load(folder.phase(3)).tensors for folder in (whole, part)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


# --- weight decay -----------------------------------------------------------------------------------------------------


def test_decay_is_that_of_adamw() -> None:
    random = torch.Generator().manual_seed(0)
    start, *steps = (torch.randn(50, generator=random, dtype=torch.float64) for _ in range(21))
    ours, theirs = start.clone(), start.clone().requires_grad_()
    state, scales = optim.Adam.new(ours), optim.scales(20, 3e-3).double()
    optimizer = torch.optim.AdamW([theirs], lr=3e-3, weight_decay=0.7)
    for g, scale in zip(steps, scales, strict=True):
        theirs.grad = g.clone()
        optimizer.step()
        optim.update_(ours, g, state, scale, 0.0, 0.0, 3e-3 * 0.7)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-6)


# --- movements --------------------------------------------------------------------------------------------------------


def moved_plainly(image: Tensor, drawn: list[float], phase: ClassifierPhaseConfig) -> Tensor:
    """One image (c, h, w), pixel by pixel: turned, mirrored, then shifted; the nearest pixel, at most at the edge."""
    _, height, width = image.shape
    down, across = (math.floor(u * (2 * phase.shift + 1)) - phase.shift for u in drawn[:2])
    mirror = -1 if phase.flip and drawn[2] < 0.5 else 1
    angle = (2 * drawn[3] - 1) * math.radians(phase.turn)
    result = torch.empty_like(image)
    for y in range(height):
        for x in range(width):
            dy, dx = y - (height - 1) / 2, mirror * (x - (width - 1) / 2)
            from_y = math.cos(angle) * dy - math.sin(angle) * dx - down + (height - 1) / 2
            from_x = math.sin(angle) * dy + math.cos(angle) * dx - across + (width - 1) / 2
            near_y, near_x = (round(min(max(v, -9), 99)) for v in (from_y, from_x))
            result[:, y, x] = image[:, min(max(near_y, 0), height - 1), min(max(near_x, 0), width - 1)]
    return result


def movements_of(phase: ClassifierPhaseConfig, shape: StepShape, image_shape: tuple[int, int, int]) -> Movements:
    found = Movements(phase, 5, 2, image_shape, shape, CPU)
    found.load_block(3)
    return found


PHASES = [
    ClassifierPhaseConfig(shift=2),
    ClassifierPhaseConfig(flip=True),
    ClassifierPhaseConfig(shift=1, flip=True, turn=23.0),
]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("image_shape", [(1, 9, 9), (3, 8, 7)])
def test_movements_are_the_plain_ones(phase: ClassifierPhaseConfig, image_shape: tuple[int, int, int]) -> None:
    shape = StepShape(4, 6, 2, slice(0, 2))
    images = torch.randint(0, 256, (20, *image_shape), dtype=torch.uint8)
    problem = Classification(dataclasses.replace(Config().net, channels=2, strides=(2,)), image_shape, 5)
    rows = problem.encoder.rows(images)
    moving = movements_of(phase, shape, image_shape)
    got = moving(rows, torch.tensor([7]))
    assert torch.equal(got[:, -2:], rows[:, -2:])  # the pixels that multiply the bias stay
    drawn = generator(5, 2, 3, 4).random((BLOCK, 2, 10, 4))[7]
    order = [
        (t, i) for part in (range(4), range(4, 10)) for t in range(2) for i in part
    ]  # tau_tr of all, tau_val of all
    for n, (t, i) in enumerate(order):
        plain = moved_plainly(images[n], drawn[t, i].tolist(), phase)
        same = (got[n, :-2].view(image_shape) == plain).float().mean()
        assert same == 1 if not phase.turn else same > 0.97  # float32 rounds a half of a pixel otherwise


def test_every_shift_is_as_likely_and_a_half_is_mirrored() -> None:
    drawn = np.random.default_rng(0).random((30_000, 4))
    found = movements(drawn, ClassifierPhaseConfig(shift=1, flip=True, turn=90.0))
    for column in (4, 5):
        values, counts = np.unique(found[:, column], return_counts=True)
        assert values.tolist() == [-1, 0, 1]
        assert np.abs(counts - 10_000).max() < 400
    mirrored = np.linalg.det(found[:, :4].astype(float).reshape(-1, 2, 2)) < 0
    assert abs(mirrored.mean() - 0.5) < 0.02
    assert np.degrees(np.arctan2(found[:, 2], found[:, 0])).min() < -89


def test_nothing_moves_by_default() -> None:
    rows = torch.randint(0, 256, (4, 27), dtype=torch.uint8)
    assert (
        movements_of(ClassifierPhaseConfig(), StepShape(1, 3, 1, slice(0, 1)), (1, 5, 5))(rows, torch.tensor([0]))
        is rows
    )


def test_each_trajectory_has_its_own_on_whatever_rank() -> None:
    k, s, count = 3, 4, 4
    phase = ClassifierPhaseConfig(shift=2, turn=5.0, dropout=0.5)
    whole, parts = StepShape(k, s, count, slice(0, count)), [StepShape(k, s, count, slice(i, i + 2)) for i in (0, 2)]

    def by_trajectory(x: Tensor, t: int) -> Tensor:
        train, val = x[: t * k].view(t, k, -1), x[t * k :].view(t, s, -1)
        return torch.cat([train, val], 1)

    tables = [by_trajectory(movements_of(phase, shape, (1, 9, 9)).table[11], n) for shape, n in
              ((whole, 4), (parts[0], 2), (parts[1], 2))]  # fmt: skip
    assert torch.equal(tables[0], torch.cat(tables[1:]))
    drops = [Dropout(0.5, 5, 2, 6, shape, CPU)(torch.tensor([9])) for shape in (whole, *parts)]
    kept = [by_trajectory(x, n) for x, n in zip(drops, (4, 2, 2), strict=True) if x is not None]
    assert torch.equal(kept[0], torch.cat(kept[1:]))


# --- dropout ----------------------------------------------------------------------------------------------------------


def test_dropout_keeps_its_share_and_the_mean() -> None:
    shape = StepShape(20, 30, 2, slice(0, 2))
    drop = Dropout(0.3, 1, 2, 100, shape, CPU)
    kept = drop(torch.tensor([4]))
    assert kept is not None
    assert kept.shape == (100, 100)
    assert sorted(set(kept.flatten().tolist())) == pytest.approx([0, 1 / 0.7])
    assert abs(float(kept.mean()) - 1) < 0.02
    again, later = drop(torch.tensor([4])), drop(torch.tensor([5]))
    assert again is not None
    assert later is not None
    assert torch.equal(kept, again)
    assert not torch.equal(kept, later)
    assert Dropout(0.0, 1, 2, 100, shape, CPU)(torch.tensor([4])) is None


@pytest.mark.parametrize("order", ["first", "exact"])
def test_the_gradient_with_dropout_is_that_of_autograd(order: Any) -> None:
    problem, Theta, images, y = case(0, 3, 2)
    rows, mask = problem.encoder.rows(images), (torch.rand_like(Theta) > 0.5).double()
    kept = (torch.rand(len(images), problem.encoder.features, dtype=torch.float64) > 0.3) / 0.7
    inner = LinearLowRank(problem.head, ALPHA, order)
    ours = meta_gradient(problem, Theta, rows, y, inner, mask, LAMBDA, kept=kept)
    plain = autograd_meta_gradient(problem, inner, Theta, rows, y, mask, LAMBDA, kept)
    assert relative(ours.loss, plain.loss) < 1e-12
    assert relative(ours.gradient, plain.gradient) < 1e-8
    without = meta_gradient(problem, Theta, rows, y, LinearLowRank(problem.head, ALPHA, order), mask, LAMBDA)
    assert relative(ours.gradient, without.gradient) > 0.01


# --- all of it in a run -----------------------------------------------------------------------------------------------


def step_of(config: Config, data: Splits, number: int, device: str = "cpu") -> MetaStep:
    problem = Classification(config.net, data.base.image_shape, len(data.base))
    Theta = problem.init(0).to(device)
    mask = get_mask(problem.layout, Theta, config.mask, 1)
    step = MetaStep(problem, data.base, config, config.phases[number - 1], number, Theta, mask)
    step.load_block(0, 0)
    return step


class _Waits(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """What would make a GPU's host wait: a number asked for, or a shape that depends on numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "item", "nonzero", "masked_select", "unique", "equal"), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("number", [2, 3])
def test_none_of_it_waits_for_the_host(tiny: Config, tiny_data: Splits, number: int) -> None:
    step = step_of(regularised(tiny), tiny_data, number)
    rows, gradient, adam = step.rows.index_select(0, step.images[0]), torch.ones_like(step.Theta), step.adam
    with _Waits():  # type: ignore[no-untyped-call, unused-ignore]  # the rest of a step is not of this page, and asks on a CPU, but not on a GPU
        moved, kept = step.movements(rows, step.slot), step.dropout(step.step)
        optim.update_(step.Theta, gradient, adam, step.scales[0], 0.0, 5.0, 0.1)
    assert moved.shape == rows.shape
    assert kept is not None


@pytest.mark.cuda
@pytest.mark.parametrize("number", [2, 3])
def test_a_graph_does_what_eager_steps_do(tiny: Config, tiny_data: Splits, number: int) -> None:
    found = []
    with precision("float32", torch.device("cuda")):
        for graph in (False, True):
            step = step_of(regularised(tiny), tiny_data, number, "cuda")
            run = capture(step) if graph else step
            for _ in range(step.phase.steps):
                run()
            found.append(step.Theta.cpu())
    assert torch.equal(*found)


class _CutError(Exception):
    pass


@pytest.mark.parametrize("at", [1, 5, 9, 13])
def test_a_run_that_is_cut_goes_on_to_the_same_end(
    tiny: Config, tiny_data: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    config, done, real = regularised(tiny), 0, MetaStep.__call__

    def dying(self: MetaStep) -> None:
        nonlocal done
        done += 1
        if done == at + 1:
            raise _CutError
        real(self)

    train(config, tiny_data.base, tmp_path / "whole", quiet=True)
    monkeypatch.setattr(MetaStep, "__call__", dying)
    with pytest.raises(_CutError):
        train(config, tiny_data.base, tmp_path / "cut", quiet=True)
    monkeypatch.undo()
    train(config, tiny_data.base, tmp_path / "cut", resume=True, quiet=True)
    one, two = (checkpoint.load(tmp_path / name / "checkpoint.safetensors").tensors for name in ("whole", "cut"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("name", list(EVERYTHING))
def test_each_of_them_changes_what_is_learned(tiny: Config, tiny_data: Splits, name: str) -> None:
    changed = dataclasses.replace(tiny, phase2=dataclasses.replace(tiny.phase2, **{name: EVERYTHING[name]}))
    one, two = (step_of(config, tiny_data, 2) for config in (tiny, changed))
    for step in (one, two):
        step()
    assert not torch.equal(one.Theta, two.Theta)


def test_what_was_learned_on_the_way_is_kept(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    config = dataclasses.replace(tiny, engine=dataclasses.replace(tiny.engine, keep=True))
    folder = train(config, tiny_data.base, tmp_path / "kept", quiet=True)
    names = {path.name for path in folder.path.glob("phase*-step*")}
    assert names == {f"phase{n}-step{step}.safetensors" for n, step in ((1, 3), (1, 6), (2, 3), (3, 3))}
    early, end = (load(path).Theta for path in (folder.kept(1, 3), folder.phase(1)))
    assert not torch.equal(early, end)
    short = dataclasses.replace(
        tiny,
        phase1=dataclasses.replace(tiny.phase1, steps=3),
        phase2=dataclasses.replace(tiny.phase2, steps=0),
        phase3=dataclasses.replace(tiny.phase3, steps=0),
    )
    train(short, tiny_data.base, tmp_path / "short", quiet=True)
    assert torch.equal(early, load(tmp_path / "short" / "phase1.safetensors").Theta)


def test_a_file_of_before_has_none_of_it(tiny: Config) -> None:
    values = to_dict(tiny)
    for number in (1, 2, 3):
        for name in EVERYTHING:
            del values[f"phase{number}"][name]
    del values["mask"]["which"], values["engine"]["keep"]
    assert from_dict(Config, values) == tiny


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"phase1": {"decay": -1.0}}, r"phase1.decay is -1.0, but must be between"),
        ({"phase2": {"decay": 1e5, "beta": 1e-3}}, r"phase2.decay is 100000.0, but must be at most 1 / phase2.beta"),
        ({"phase1": {"dropout": 1.0}}, r"phase1.dropout is 1.0, but must be 0 or more and below 1"),
        ({"phase3": {"shift": 84}}, r"phase3.shift is 84, but must be 0 or more and below data.size, 84"),
        ({"phase1": {"turn": 181.0}}, r"phase1.turn is 181.0, but must be between 0 and 180"),
        (
            {"phase1": {"dropout": 0.1}, "meta": {"adapts": "net"}},
            r"phase1.dropout is 0.1, .* with meta.adapts = 'net'",
        ),
        ({"mask": {"which": "middle"}}, r"mask.which is 'middle', but must be one of: top, random, bottom"),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_dict(Config, values)
