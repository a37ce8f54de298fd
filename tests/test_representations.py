"""Every way to learn theta: it is what its name says, it trains, and it can be evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kcciol import cli
from kcciol.config import Config, preset
from kcciol.data import load
from kcciol.engine import checkpoint
from kcciol.errors import UserError
from kcciol.evaluation.measure import measure, open_run
from kcciol.meta.methods import REPRESENTATIONS, check_label, with_method
from kcciol.meta.phases import train
from kcciol.serialization import from_dict, to_dict, to_toml
from tests.learners.battery import tiny_method


@pytest.mark.parametrize("name", REPRESENTATIONS)
def test_each_trains_resumes_and_is_evaluated(name: str, tmp_path: Path) -> None:
    config = tiny_method(name)
    data = load(config.data)
    folder = train(config, data.base, tmp_path / "run", quiet=True)
    last = max(i for i in (1, 2, 3) if folder.phase(i).exists())
    saved = checkpoint.load(folder.phase(last))
    assert saved.config.representation == name
    start = train(replace(tiny_method("scratch"), net=config.net), data.base, tmp_path / "scratch", quiet=True)
    moved = {n: not torch.equal(t, checkpoint.load(start.phase(1)).tensors[n]) for n, t in saved.tensors.items()}
    assert all(moved.values()) == any(moved.values()) == (name != "scratch")
    train(config, data.base, tmp_path / "run", resume=True, quiet=True)
    evaluation = replace(
        config.evaluation, classes=(3,), trajectories=2, train_samples=8, test_samples=4, rates=(0.01,)
    )
    result = measure(*open_run(folder.phase(last)), evaluation)
    assert 0 <= result["classes"]["3"]["test"]["mean"] <= 100


@pytest.mark.parametrize("name", REPRESENTATIONS)
@pytest.mark.parametrize("base", ["omniglot", "omniglot-paper", "quickstart"])
def test_a_method_keeps_data_and_net_and_survives_a_file(name: str, base: str) -> None:
    config = with_method(preset(base), name)
    same_net = replace(config.net, gate=0) == preset(base).net
    assert (config.data, same_net) == (preset(base).data, True)
    assert (config.net.gate > 0) == (name == "anml")
    assert from_dict(Config, to_dict(config)) == config


def test_what_makes_each_method() -> None:
    paper, ours = preset("omniglot-paper"), preset("omniglot")
    assert with_method(paper, "kcciol") == paper
    assert with_method(paper, "kcciol-o").mask.delta == 1.0
    oml, mrcl = with_method(paper, "oml"), with_method(paper, "mrcl")
    assert (oml.meta.reset, mrcl.meta.reset) == ("draw", "none")
    assert oml.total_steps == mrcl.total_steps == paper.phase1.steps
    assert with_method(ours, "oml").trajectory == ours.trajectory
    assert with_method(ours, "phase1").total_steps == ours.total_steps
    longer = with_method(ours, "phase1")
    assert (longer.phase1, longer.phase3.steps) == (ours.phase1, 0)
    assert longer.phase2 == replace(ours.phase1, steps=ours.phase2.steps + ours.phase3.steps)
    check_label(longer)
    for phase, change in (("phase1", {"beta": 1.0}), ("phase2", {"gamma": 1.0}), ("phase3", {"steps": 1})):
        with pytest.raises(UserError, match="not that method's"):
            check_label(replace(longer, **{phase: replace(getattr(longer, phase), **change)}))
    assert with_method(ours, "gamma0").phase2.gamma == 0 < with_method(ours, "gamma0").phase3.lam
    assert with_method(ours, "lambda0").phase3.lam == 0 < with_method(ours, "lambda0").phase2.gamma
    control = with_method(ours, "control")
    assert (control.phase2.gamma, control.phase3.lam) == (0, 0)
    assert [p.steps for p in control.phases] == [p.steps for p in ours.phases]
    maml = with_method(paper, "maml-rep")
    assert (maml.meta.loss, maml.meta.relabel, maml.trajectory.remember) == ("episodes", True, 0)
    pretrained, srnn = with_method(paper, "pretrained"), with_method(paper, "srnn")
    epoch = -(-963 * 20 // 256)
    assert (pretrained.total_steps, srnn.phase1.steps, srnn.phase2.steps) == (30 * epoch, 20 * epoch, 10 * epoch)
    assert (pretrained.meta.loss, srnn.meta.loss) == ("supervised", "sparse")
    assert with_method(paper, "scratch").total_steps == 0


def test_the_command_line_trains_a_method_into_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "quickstart", "--representation", "pretrained", "--quiet", "--phase1.steps", "2"]
    words += ["--data.base-classes", "12", "--data.novel-classes", "2", "--trajectory.remember", "9"]
    assert cli.main(words) == 0
    saved = checkpoint.load(tmp_path / "runs" / "quickstart-pretrained-seed0" / "phase1.safetensors")
    assert (saved.config.representation, saved.config.meta.loss) == ("pretrained", "supervised")
    assert saved.config.trajectory.remember == 9  # what is said on the command line comes last
    assert cli.main(["train", "quickstart", "--representation=magic"]) == 2
    assert "There is no representation 'magic'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"meta": {"loss": "supervised"}}, "trajectory.classes is 5, but must be 0"),
        ({"meta": {"loss": "supervised", "reset": "none"}, "trajectory": {"classes": 0, "remember": 0}}, "remember"),
        ({"meta": {"loss": "supervised", "reset": "zero"}, "trajectory": {"classes": 0}}, "meta.reset is 'zero'"),
        ({"meta": {"relabel": True}}, "meta.relabel is True"),
        ({"meta": {"loss": "episodes", "relabel": True, "reset": "none"}}, "meta.relabel is True"),
        ({"meta": {"episode_steps": 0}}, "meta.episode_steps is 0"),
        ({"meta": {"sparsity": 0.0}}, "meta.sparsity is 0.0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, dict[str, object]], words: str) -> None:
    values = to_dict(preset("quickstart"))
    for section, change in changes.items():
        values[section] |= change
    with pytest.raises(UserError, match=words):
        from_dict(Config, values)


def test_a_label_that_lies_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in REPRESENTATIONS:
        check_label(with_method(preset("quickstart"), name))
    for name in ("mrcl", "oml", "pretrained", "srnn", "maml-rep", "anml", "scratch", "kcciol-o", "gamma0", "lambda0"):
        with pytest.raises(UserError, match=f"representation is '{name}'"):
            check_label(replace(preset("quickstart"), representation=name))
    for name in ("pretrained", "srnn", "maml-rep", "anml", "oml"):
        config = with_method(preset("quickstart"), name)
        with pytest.raises(UserError, match="leave those of its phases"):
            check_label(replace(config, phase3=replace(config.phase3, steps=4)))
    with pytest.raises(UserError, match="representation is 'kcciol'"):
        check_label(replace(with_method(preset("quickstart"), "pretrained"), representation="kcciol"))
    with pytest.raises(UserError, match="already"):
        with_method(with_method(preset("quickstart"), "oml"), "kcciol")
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(replace(preset("quickstart"), representation="mrcl")))
    assert cli.main(["train", str(path), "--out", str(tmp_path / "run")]) == 2
    assert "not that method's" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_epochs_are_epochs_whatever_the_batch() -> None:
    config = preset("omniglot")
    for classes, samples, batch in ((963, 20, 256), (64, 600, 256), (80, 20, 64)):
        data = replace(config.data, base_classes=classes, train_samples=samples)
        pretrained = with_method(replace(config, data=data), "pretrained")
        assert pretrained.trajectory.remember == batch
        assert pretrained.total_steps * batch / (classes * samples) == pytest.approx(30, rel=0.05)


def test_maml_rep_needs_a_linear_head(tmp_path: Path) -> None:
    config = tiny_method("maml-rep")
    with pytest.raises(UserError, match="linear W"):
        train(replace(config, net=replace(config.net, hidden=4)), load(config.data).base, tmp_path / "r", quiet=True)
    assert not (tmp_path / "r").exists()


def test_the_rates_of_anml_are_its_own() -> None:
    for base in ("omniglot-paper", "omniglot"):
        phase = with_method(preset(base), "anml").phase1
        assert (phase.alpha, phase.beta) == (0.0003, 1e-3)  # docs/methods.md
