"""Training and evaluation of members side by side."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol.config import EngineConfig, MaskConfig, PhaseConfig
from kcciol.engine.stop import Stopped
from kcciol.errors import UserError
from kcciol.paper.ensemble import Affine
from kcciol.paper.ensemble.settings import Fork
from kcciol.paper.ensemble.step import clipped
from kcciol.paper.sine import network
from kcciol.paper.sine.evaluate import SineErrors, bytes_of_run, evaluate
from kcciol.paper.sine.functions import Functions, draw
from kcciol.paper.sine.network import RegressionNetwork
from kcciol.paper.sine.settings import RegressionConfig, SineConfig, WidthConfig
from kcciol.paper.sine.train import SineStep, load_sine, train_sine

TINY = RegressionConfig(
    seed=3,
    sine=SineConfig(functions=12, novel=8, slots=3, batches=3, batch=4, query=4, count=2),
    net=WidthConfig(width=8, features=12, theta=2, W=3),
    milestones=(4,),
    phase1=PhaseConfig(steps=7, alpha=0.02, beta=1e-2),
    phase2=PhaseConfig(steps=3, alpha=0.02, beta=1e-3, gamma=1e-3),
    phase3=PhaseConfig(steps=4, alpha=0.03, beta=1e-3, lam=1e-2),
    engine=EngineConfig(device="cpu", checkpoint_every=5, log_every=2),
)
OTHER = replace(TINY, seed=8, phase2=replace(TINY.phase2, gamma=0.0), phase3=replace(TINY.phase3, lam=0.0))


def test_members_train_together_as_they_would_alone(tmp_path: Path) -> None:
    both = train_sine([TINY, OTHER], tmp_path / "both", quiet=True)
    for i, member in enumerate((TINY, OTHER)):
        alone = train_sine([member], tmp_path / str(i), quiet=True)
        torch.testing.assert_close(both[i], alone[0], rtol=1e-4, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "both" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["phase"], line["step"]) for line in lines] == [
        *((1, n) for n in (2, 4, 6, 7)), *((2, n) for n in (2, 3)), *((3, n) for n in (2, 4)),
    ]  # fmt: skip
    assert all(len(line["loss"]) == 2 for line in lines)
    assert lines[-1]["constraint"][0] > 0


def test_members_that_are_alike_so_far_take_their_steps_as_one(tmp_path: Path) -> None:
    """Alike in phase 1, then one of them without the l1 term, and of those with it one that holds less."""
    plain = replace(TINY, phase2=replace(TINY.phase2, gamma=0.0))
    members = [TINY, plain, replace(TINY, mask=MaskConfig(delta=0.2)), OTHER]
    assert (Fork.of(members, 1).firsts, Fork.of(members, 1).places) == ([0, 3], [0, 0, 0, 1])
    assert (Fork.of(members, 2).firsts, Fork.of(members, 2).places) == ([0, 1, 3], [0, 1, 0, 2])
    assert Fork.of(members, 3).firsts == [0, 1, 2, 3]
    held = [replace(m, phase2=replace(m.phase2, lam=1.0)) for m in members]
    assert Fork.of(held, 2).firsts == [0, 1, 2, 3]  # then the mask counts in phase 2 already
    assert Fork.of(held, 1).firsts == [0, 3]
    found = train_sine(members, tmp_path / "all", quiet=True)
    for i, member in enumerate(members):
        torch.testing.assert_close(
            found[i], train_sine([member], tmp_path / str(i), quiet=True)[0], rtol=1e-4, atol=1e-6
        )
    after = [load_sine(tmp_path / "all" / f"phase{i}.safetensors")[1].tensors["Theta"] for i in (1, 2)]
    assert torch.equal(after[0][0], after[0][1])
    assert not torch.equal(after[1][0], after[1][1])
    assert torch.equal(after[1][0], after[1][2])
    assert not torch.equal(found[0], found[2])
    lines = (tmp_path / "all" / "metrics.jsonl").read_text().splitlines()
    assert all(len(json.loads(line)["loss"]) == len(members) for line in lines)


def test_a_member_that_is_lost_costs_no_other(tmp_path: Path) -> None:
    wild = replace(TINY, seed=5, phase1=replace(TINY.phase1, alpha=1e12), phase2=replace(TINY.phase2, alpha=1e12))
    found = train_sine([TINY, wild], tmp_path / "both", quiet=True)
    torch.testing.assert_close(found[0], train_sine([TINY], tmp_path / "one", quiet=True)[0], rtol=1e-4, atol=1e-6)
    with pytest.raises(UserError, match="diverge in phase 1"):
        train_sine([wild], tmp_path / "wild", quiet=True)


def test_gamma_and_lambda_change_what_is_learned(tmp_path: Path) -> None:
    plain = replace(OTHER, seed=TINY.seed)
    found = train_sine([TINY, plain, replace(plain, phase2=TINY.phase2)], tmp_path / "run", quiet=True)
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert not torch.equal(found[1], found[2])


@pytest.mark.parametrize("cut", [2, 7, 9, 12])
def test_a_run_that_is_cut_ends_in_the_same_bits(cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [TINY, OTHER, replace(TINY, phase2=replace(TINY.phase2, gamma=0.0))]  # two are alike in phase 1
    whole = train_sine(members, tmp_path / "whole", quiet=True)
    steps, real = 0, SineStep.__call__

    def counted(self: SineStep) -> None:
        nonlocal steps
        real(self)
        steps += 1
        if steps == cut:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(SineStep, "__call__", counted)
    with pytest.raises(Stopped):
        train_sine(members, tmp_path / "cut", quiet=True)
    monkeypatch.undo()
    assert torch.equal(train_sine(members, tmp_path / "cut", resume=True, quiet=True), whole)
    assert torch.equal(train_sine(members, tmp_path / "cut", resume=True, quiet=True), whole)  # and again


def test_the_end_of_a_phase_is_enough_to_go_on_from(tmp_path: Path) -> None:
    whole = train_sine([TINY, OTHER], tmp_path / "whole", quiet=True)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(tmp_path / "whole" / "members.json", folder)
    shutil.copy(tmp_path / "whole" / "phase1.safetensors", folder / "checkpoint.safetensors")
    assert torch.equal(train_sine([TINY, OTHER], folder, resume=True, quiet=True), whole)


def test_a_run_that_is_killed_says_each_metric_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(TINY, engine=replace(TINY.engine, log_every=1, checkpoint_every=4))
    train_sine([config], tmp_path / "whole", quiet=True)
    steps, real = 0, SineStep.__call__

    def counted(self: SineStep) -> None:
        nonlocal steps
        real(self)
        steps += 1
        if steps == 3:  # after two lines, before a checkpoint
            raise KeyboardInterrupt

    monkeypatch.setattr(SineStep, "__call__", counted)
    with pytest.raises(KeyboardInterrupt):
        train_sine([config], tmp_path / "cut", quiet=True)
    monkeypatch.undo()
    assert len((tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()) == 2
    train_sine([config], tmp_path / "cut", resume=True, quiet=True)
    whole, cut = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "cut"))
    assert cut == whole


def test_a_line_of_metrics_is_the_mean_since_the_last(tmp_path: Path) -> None:
    lines = {}
    for every in (1, 3):
        config = replace(TINY, phase1=replace(TINY.phase1, steps=3), engine=replace(TINY.engine, log_every=every))
        train_sine([config], tmp_path / str(every), quiet=True)
        read = (tmp_path / str(every) / "metrics.jsonl").read_text().splitlines()
        lines[every] = [line["loss"][0] for line in map(json.loads, read) if line["phase"] == 1]
    assert lines[3] == [pytest.approx(sum(lines[1]) / 3)]


def test_mistakes_are_named(tmp_path: Path) -> None:
    train_sine([TINY], tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="already"):
        train_sine([TINY], tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="other settings"):
        train_sine([OTHER], tmp_path / "run", resume=True, quiet=True)
    with pytest.raises(UserError, match="at least one member"):
        train_sine([], tmp_path / "none", quiet=True)
    exact = replace(TINY, order="exact")
    for one, other in ((TINY, exact), (TINY, replace(TINY, clip=1.0)), (exact, replace(exact, constraint="first"))):
        with pytest.raises(UserError, match="may differ in"):
            train_sine([one, other], tmp_path / "none", quiet=True)
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match="damaged"):
        load_sine(tmp_path / "run" / "checkpoint.safetensors")
    wrong: list[tuple[Any, dict[str, Any]]] = [(SineConfig, {"slots": 999}), (SineConfig, {"batch": 0})]
    for kind, change in [*wrong, (WidthConfig, {"W": 0})]:
        with pytest.raises(UserError):
            kind(**change)


def test_evaluation_measures_every_function_seen() -> None:
    net = RegressionNetwork(TINY.net, 4)
    Theta = net.init(0)
    course = evaluate(net, Theta, TINY.sine, 1, runs=5, alpha=0.02)
    assert course.errors.shape == (5, 3, 3)
    rows = course.to_dict()
    assert list(rows) == ["1", "2", "3"]
    assert rows["3"]["n"] == 5
    by_hand = [(course.errors[r, 2].sum() / 3).item() for r in range(5)]
    assert rows["3"]["by_run"] == pytest.approx(by_hand)
    still = evaluate(net, Theta, TINY.sine, 1, runs=5, alpha=0.0)
    assert torch.equal(still.errors[:, 0, 0], still.errors[:, 2, 0])  # nothing was learned or forgotten
    assert course.errors[:, 0, 0].mean() < still.errors[:, 0, 0].mean()
    seen = evaluate(net, Theta, TINY.sine, 1, runs=5, alpha=0.0, novel=False)
    assert not torch.equal(seen.errors[:, 0, 0], still.errors[:, 0, 0])


def test_the_two_losses() -> None:
    """The error after the last function; the mean over functions of that on those seen so far."""
    every, net = replace(TINY, loss="every"), RegressionNetwork(TINY.net, 4)
    Theta = torch.stack([net.init(0), net.init(0)])
    step = SineStep(net, [TINY, every], 1, Theta)
    time = torch.tensor(7)
    _, (losses, _, _) = step.gradient(time, None, None)
    batch = draw(Functions.drawn(step.seeds[:1], TINY.sine.functions), TINY.sine, step.seeds[:1], time, 2)
    theta, W = net.layers(Theta[:1], "theta"), net.layers(Theta[:1], "W")
    errors = []
    for r in range(2):
        learned = W
        for t in range(9):
            z = network.represent(theta, batch.x[:, r, t])
            learned = network.learn(learned, z[:, None], batch.y[:, r, t][:, None], torch.full((1, 1, 1), 0.02))
            if t % 3 == 2:
                seen = (t // 3 + 1) * TINY.sine.query
                answers = network.predict(learned, network.represent(theta, batch.x_query[:, r, :seen]))
                errors.append(float((answers - batch.y_query[:, r, :seen]).square().mean()))
    assert losses.tolist() == pytest.approx([(errors[2] + errors[5]) / 2, sum(errors) / 6], rel=1e-4)


def test_members_of_both_losses_train_together() -> None:
    every = replace(TINY, loss="every")
    net = RegressionNetwork(TINY.net, 4)
    together = torch.stack([net.init(0), net.init(0)])
    SineStep(net, [TINY, every], 1, together)()
    for config, end in ((TINY, together[0]), (every, together[1])):
        alone = net.init(0)[None].clone()
        SineStep(net, [config], 1, alone)()
        torch.testing.assert_close(alone[0], end)
    assert not torch.allclose(together[0], together[1])


def test_runs_that_blow_up_are_counted() -> None:
    net = RegressionNetwork(TINY.net, 4)
    rows = evaluate(net, net.init(0), TINY.sine, 1, runs=4, alpha=1e30).to_dict()
    assert rows["3"]["diverged"] == 4
    assert rows["3"]["mean"] is None
    errors = torch.tensor([[[1.0, torch.nan], [2.0, 4.0]], [[torch.inf, torch.nan], [1.0, torch.nan]]])
    two = SineErrors(errors.double()).to_dict()
    assert (two["1"]["mean"], two["1"]["diverged"]) == (1.0, 1)
    assert (two["2"]["mean"], two["2"]["diverged"]) == (3.0, 1)


def test_runs_that_take_turns_are_what_they_are_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    net = RegressionNetwork(TINY.net, 4)
    together = evaluate(net, net.init(0), TINY.sine, 1, runs=5, alpha=0.02).errors
    taken: list[int] = []

    def learn(W: Sequence[Affine], z: Tensor, y: Tensor, alpha: Tensor) -> list[Affine]:
        taken.append(len(z))
        return network.learn(W, z, y, alpha)

    monkeypatch.setattr("kcciol.paper.sine.evaluate.LEAST", 1)
    monkeypatch.setattr("kcciol.paper.sine.evaluate.ROOM", 2 * bytes_of_run(net, TINY.sine) + 1)
    apart = evaluate(net, net.init(0), TINY.sine, 1, runs=5, alpha=0.02, learn=learn).errors
    assert taken == [2] * 3 + [2] * 3 + [1] * 3  # for each function
    assert torch.equal(apart.nan_to_num(-1.0), together.nan_to_num(-1.0))
    assert len(set(together[:, 0, 0].tolist())) == 5


def test_a_longer_training_learns_to_learn(tmp_path: Path) -> None:
    config = replace(
        TINY,
        sine=replace(TINY.sine, functions=200),
        milestones=(),
        phase1=PhaseConfig(steps=400, alpha=0.02, beta=3e-3),
    )
    config = replace(config, phase2=PhaseConfig(), phase3=PhaseConfig())
    Theta = train_sine([config], tmp_path / "run", quiet=True)
    net = RegressionNetwork(TINY.net, 4)
    before, after = (
        evaluate(net, vector, config.sine, 5, runs=20, alpha=0.02).to_dict()["3"]["mean"]
        for vector in (net.init(config.seed), Theta[0])
    )
    assert after < 0.8 * before


def test_exact_order_trains_too(tmp_path: Path) -> None:
    exact = replace(TINY, order="exact")
    readings = (TINY, replace(TINY, constraint="first"), exact, replace(exact, constraint="first"))
    first, the_same, second, third = (
        train_sine([c], tmp_path / f"{c.order}-{c.constraint}", quiet=True) for c in readings
    )
    assert torch.equal(first, the_same)
    assert not torch.allclose(first, second)
    assert not torch.allclose(second, third)
    ends = (tmp_path / "exact-same", tmp_path / "exact-first")
    assert torch.equal(
        *(load_sine(end / "phase2.safetensors")[1].tensors["Theta"] for end in ends)
    )  # they differ in phase 3


def test_a_large_gradient_is_scaled_down_to_a_norm() -> None:
    g = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [3e30, -4e30], [torch.nan, 1.0]])
    found = clipped(g, 1.0)
    torch.testing.assert_close(found[:4], torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [0.6, -0.8]]))
    assert bool(found[4].isnan().any())
    net, ends = RegressionNetwork(TINY.net, 4), []
    for clip in (0.0, 1e-3, 1e9):
        config = replace(TINY, clip=clip)
        step = SineStep(net, [config], 1, net.init(0)[None])
        step()
        ends.append(step.m.clone())
    free, held, loose = ends
    assert torch.equal(free, loose)
    assert float(held.norm()) == pytest.approx(1e-3 * 0.1, rel=1e-4)  # of Adam's first moment, a tenth
    torch.testing.assert_close(held / held.norm(), free / free.norm())


def test_beta_falls_at_the_milestones_of_phase_1_only() -> None:
    config = replace(TINY, milestones=(1, 3), decay=0.5, phase1=PhaseConfig(steps=4, beta=1.0))
    net = RegressionNetwork(config.net, 4)
    steps = [SineStep(net, [config], number, net.init(0)[None]) for number in (1, 2)]
    assert steps[0].rates[:, 0].tolist() == [1.0, 0.5, 0.5, 0.25]
    assert set(steps[1].rates[:, 0].tolist()) == {steps[1].rates[0, 0].item()}


def test_the_end_of_a_run_is_written_again_where_it_is_missing(tmp_path: Path) -> None:
    train_sine([TINY], tmp_path, quiet=True)
    before = (tmp_path / "phase3.safetensors").read_bytes()
    (tmp_path / "phase3.safetensors").unlink()
    train_sine([TINY], tmp_path, resume=True, quiet=True)
    assert (tmp_path / "phase3.safetensors").read_bytes() == before
