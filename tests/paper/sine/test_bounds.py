"""What keeps meta-training in bounds: an inner rate that rises, steps that are taken back, members that are lost."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.files.tensors import Format, read_tensors, write_tensors
from kcciol.paper.ensemble.step import MemberStep
from kcciol.paper.ensemble.train import FORMAT
from kcciol.paper.sine.network import RegressionNetwork
from kcciol.paper.sine.train import SineStep, train_sine
from tests.paper.sine.test_sine_training import OTHER, TINY


class Scripted(MemberStep):
    """A step whose gradient points uphill by one, and whose loss is no number at some steps."""

    bad: tuple[int, ...] = ()
    finite = False  # the loss, while the gradient is not

    def gradient(self, time: Tensor, mask: Tensor | None, lam: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        fails = int(self.step) in self.bad
        loss = torch.tensor([torch.nan if fails and not self.finite else 1.0, 1.0])
        g = torch.stack([torch.full((4,), torch.nan if fails else 1.0), torch.ones(4)])
        return g, [loss, torch.zeros(2), torch.zeros(2)]


@pytest.mark.parametrize("finite", [False, True])
def test_a_step_to_where_nothing_is_learned_is_taken_back(finite: bool) -> None:
    members = [replace(TINY, retreat=True), replace(OTHER, retreat=True)]
    step, courses = Scripted(members, 1, torch.zeros(2, 4), None), []
    step.bad, step.finite = (3, 4), finite
    for _ in range(6):
        courses.append(step.Theta.clone())
        step()
    courses.append(step.Theta.clone())
    assert all(bool((later[1] < before[1]).all()) for before, later in itertools.pairwise(courses))  # it never fails
    first = [course[0] for course in courses]
    assert torch.equal(first[2], first[4])  # step 3 failed where step 2 had led to
    assert torch.equal(first[4], first[5])  # and so did step 4, there
    assert bool((first[5] > first[6]).all())
    assert bool(((first[5] - first[6]) < 0.5 * (courses[5][1] - courses[6][1])).all())  # from a standstill
    assert bool(step.v.isfinite().all())
    still = Scripted([replace(m, retreat=False) for m in members], 1, torch.zeros(2, 4), None)
    still.bad = (3,)
    for _ in range(5):
        still()
    assert bool(still.Theta[0].isnan().all())
    assert set(step.saved) - set(still.saved) == {"last"}


def diverging(monkeypatch: pytest.MonkeyPatch, steps: set[tuple[int, int]]) -> None:
    """As if all trajectories of these members diverged at these steps."""
    real = SineStep.gradient

    def gradient(step: SineStep, *inputs: Any) -> tuple[Tensor, list[Tensor]]:
        g, values = real(step, *inputs)
        bad = torch.tensor([(member, int(step.step)) in steps for member in range(len(g))])
        return torch.where(bad[:, None], 0.0, g), [*values[:2], torch.where(bad, 1.0, values[2])]

    monkeypatch.setattr(SineStep, "gradient", gradient)


def test_training_goes_on_where_members_retreat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (replace(m, retreat=True) for m in (TINY, OTHER))
    diverging(monkeypatch, {(0, 2), (1, 4), (1, 5)})  # each of them now and then
    train_sine([one, two], tmp_path / "both", quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "both" / "metrics.jsonl").read_text().splitlines()]
    assert [line["diverged"] for line in lines[:3]] == [[0, 0], [0.5, 0], [0, 1]]
    with pytest.raises(UserError, match="All trajectories of a run diverge"):
        train_sine([TINY, OTHER], tmp_path / "stays", quiet=True)  # there they are taken as lost


def test_training_ends_where_retreating_does_not_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcciol.paper.ensemble.step.PATIENCE", 3)
    one, two = (replace(m, retreat=True) for m in (TINY, OTHER))
    diverging(monkeypatch, {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (1, 4)})
    with pytest.raises(UserError, match="diverge in phase 1 near step 4"):
        train_sine([one], tmp_path / "one", quiet=True)
    train_sine([one, two], tmp_path / "both", quiet=True)  # while the one is lost, the other is not yet


def test_a_checkpoint_without_what_is_needed_is_refused(tmp_path: Path) -> None:
    config = replace(TINY, retreat=True)
    train_sine([config], tmp_path, quiet=True)
    path = tmp_path / "checkpoint.safetensors"
    meta, tensors = read_tensors(path, FORMAT)
    write_tensors(path, FORMAT, meta | {"step": 2}, {name: t for name, t in tensors.items() if name != "last"})
    with pytest.raises(UserError, match="holds no last"):
        train_sine([config], tmp_path, resume=True, quiet=True)


def test_a_run_that_retreats_is_resumed_in_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every third step diverged, of which the eleventh is one: what it goes back to is in the checkpoint."""
    engine = replace(TINY.engine, log_every=4)
    config = replace(TINY, retreat=True, phase1=replace(TINY.phase1, steps=20), engine=engine)
    plain = train_sine([config], tmp_path / "plain", quiet=True)
    monkeypatch.setattr(SineStep, "learns_nothing", lambda step, values: (step.step % 3 == 1).expand(1))
    whole = train_sine([config], tmp_path / "whole", quiet=True)
    assert not torch.equal(plain, whole)

    def and_keep(path: Path, form: Format, meta: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        write_tensors(path, form, meta, tensors)
        if (meta["phase"], meta["step"]) == (1, 10):
            shutil.copytree(tmp_path / "again", tmp_path / "ten")

    monkeypatch.setattr("kcciol.paper.ensemble.train.write_tensors", and_keep)
    train_sine([config], tmp_path / "again", quiet=True)
    monkeypatch.setattr("kcciol.paper.ensemble.train.write_tensors", write_tensors)
    assert torch.equal(train_sine([config], tmp_path / "ten", resume=True, quiet=True), whole)
    lines, others = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "ten"))
    assert lines == others  # the line of step 12, too


def test_alpha_rises_at_the_beginning_of_phase_1() -> None:
    net = RegressionNetwork(TINY.net, TINY.sine.slots + 1)
    members = [replace(TINY, rise=4), TINY]
    tables = [SineStep(net, members, n, torch.stack([net.init(0)] * 2)).alphas[:7] for n in (1, 2)]
    torch.testing.assert_close(tables[0][:, 0], 0.02 * torch.tensor([0.1, 0.325, 0.55, 0.775, 1, 1, 1]))
    torch.testing.assert_close(tables[0][:, 1], torch.full((7,), 0.02))
    torch.testing.assert_close(tables[1], torch.full((7, 2), 0.02)[: len(tables[1])])


def test_a_step_takes_the_alpha_that_has_risen_so_far() -> None:
    net = RegressionNetwork(TINY.net, TINY.sine.slots + 1)
    slow = replace(TINY, phase1=replace(TINY.phase1, alpha=0.002))
    ends = []
    for members in ([replace(TINY, rise=4), TINY], [slow, TINY]):
        step = SineStep(net, members, 1, torch.stack([net.init(0)] * 2))
        step()
        ends.append(step.Theta)
    assert torch.equal(*ends)
    assert not torch.equal(ends[0][0], ends[0][1])


def test_members_may_differ_in_how_alpha_rises_and_not_in_whether_they_retreat(tmp_path: Path) -> None:
    train_sine([TINY, replace(TINY, rise=4)], tmp_path / "rise", quiet=True)
    with pytest.raises(UserError, match="may differ in"):
        train_sine([TINY, replace(TINY, retreat=True)], tmp_path / "retreat", quiet=True)


def test_gone_is_where_all_trajectories_diverge() -> None:
    net = RegressionNetwork(TINY.net, TINY.sine.slots + 1)
    step = SineStep(net, [TINY, OTHER], 1, torch.stack([net.init(0)] * 2))
    assert step.learns_nothing([torch.zeros(2), torch.zeros(2), torch.tensor([1.0, 0.5])]).tolist() == [True, False]


def test_a_phase_from_which_nothing_was_learned_ends_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (replace(m, retreat=True) for m in (TINY, OTHER))
    diverging(monkeypatch, {(0, step) for step in range(7)})
    with pytest.raises(UserError, match="diverge in phase 1 near step 7"):
        train_sine([one], tmp_path / "one", quiet=True)
    train_sine([one, two], tmp_path / "both", quiet=True)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"kcciol: of seed 3, {share} of the steps of phase {n} taught nothing: lower its rates."
        for n, share in ((1, "100%"), (2, "100%"), (3, "100%"))
    ]


def test_a_loss_that_no_trajectory_has_is_not_zero(tmp_path: Path) -> None:
    wild = replace(TINY, phase1=replace(TINY.phase1, alpha=1e30))
    with pytest.raises(UserError, match="diverge in phase 1"):
        train_sine([wild], tmp_path / "one", quiet=True)
    train_sine([wild, OTHER], tmp_path / "both", quiet=True)
    line = json.loads((tmp_path / "both" / "metrics.jsonl").read_text().splitlines()[0])
    assert line["loss"][0] is None
    assert line["loss"][1] > 0
    assert line["diverged"] == [1.0, 0.0]
