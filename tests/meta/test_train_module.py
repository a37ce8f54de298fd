"""The three phases on a module of one's own, end to end: files, resume, start, buffers, evaluation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

import kcciol
from kcciol.cli import main
from kcciol.config import GIVEN, Config
from kcciol.data.classset import Splits
from kcciol.encoders.run import Representation
from kcciol.engine import checkpoint
from kcciol.errors import UserError
from kcciol.meta.phases import train
from kcciol.meta.step import MetaStep
from kcciol.serialization import to_toml
from tests.meta.test_train import assert_same, weights
from tests.nets import networks

HERE = "tests.nets.networks"
MEAN = "buffer.norms.0.running_mean"
PHASES = ("phase1", "phase2", "phase3", "checkpoint")


def named(config: Config, name: str) -> Config:
    return dataclasses.replace(config, net=dataclasses.replace(config.net, module=f"{HERE}:{name}"))


@pytest.fixture(scope="module")
def drops(tiny: Config) -> Config:
    return named(tiny, "batch_dropout")


@pytest.fixture(scope="module")
def whole(drops: Config, tiny_data: Splits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from beginning to end."""
    path = tmp_path_factory.mktemp("module") / "run"
    train(drops, tiny_data.base, path, quiet=True)
    return path


def trained(tiny_data: Splits, seed: int = 3) -> nn.Module:
    """A network that has weights and running means, as after a training elsewhere."""
    torch.manual_seed(seed)
    net = networks.batch(tiny_data.base.image_shape)
    for _ in range(20):
        net(tiny_data.base.images[:, 0] / 255)
    return net.eval()


def test_buffers_are_kept_with_each_phase(whole: Path) -> None:
    found = [weights(whole / f"{name}.safetensors") for name in PHASES]
    assert [int(t["buffer.norms.0.num_batches_tracked"]) for t in found] == [7, 11, 16, 16]
    assert len({t[MEAN].sum().item() for t in found}) == 3
    assert "theta.norms.0.weight" in found[0]
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert all(m["constraint"] > 0 and m["constraint_share"] > 0 for m in lines if m["phase"] == 3)


def test_the_mask_knows_the_gains_of_normalisation(whole: Path) -> None:
    """They are near one, so they are among the largest."""
    representation = kcciol.load(whole / "phase3.safetensors")
    marks = representation.problem.layout.views(weights(whole / "checkpoint.safetensors")["mask"])
    assert bool(marks["theta.norms.0.weight"].all())


def test_features_are_those_of_the_module_in_evaluation(whole: Path, tiny_data: Splits) -> None:
    representation = kcciol.load(whole / "phase2.safetensors")
    tensors = weights(whole / "phase2.safetensors")
    net = networks.batch_dropout(tiny_data.base.image_shape).eval()
    state = {n.split(".", 1)[1]: t for n, t in tensors.items() if n.startswith(("theta.", "buffer."))}
    assert state.keys() == net.state_dict().keys()
    images = tiny_data.novel.images[:, 0]
    torch.testing.assert_close(representation.features(images), functional_call(net, state, (images / 255,)))


@pytest.mark.parametrize("at", [1, 4, 9, 13])
def test_cut_and_resumed_it_ends_in_the_same_weights(
    drops: Config, tiny_data: Splits, whole: Path, tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, whose numbers are those it would have drawn."""
    done, real = 0, MetaStep.__call__

    def dying(self: MetaStep) -> None:
        nonlocal done
        if done == at:
            raise KeyboardInterrupt
        done += 1
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(MetaStep, "__call__", dying)
        with pytest.raises(KeyboardInterrupt):
            train(drops, tiny_data.base, tmp_path / "run", quiet=True)
    torch.manual_seed(at)  # what others draw changes nothing
    train(drops, tiny_data.base, tmp_path / "run", resume=True, quiet=True)
    for name in PHASES:
        assert_same(whole / f"{name}.safetensors", tmp_path / "run" / f"{name}.safetensors")


def test_it_starts_from_the_end_of_a_phase(drops: Config, tiny_data: Splits, whole: Path, tmp_path: Path) -> None:
    train(drops, tiny_data.base, tmp_path / "run", start=whole / "phase1.safetensors", quiet=True)
    assert_same(whole / "phase3.safetensors", tmp_path / "run" / "phase3.safetensors")
    with pytest.raises(UserError, match=r"is of another network: theta.* is missing"):
        train(named(drops, "Paper"), tiny_data.base, tmp_path / "x", start=whole / "phase1.safetensors", quiet=True)


def without_phase1(config: Config) -> Config:
    return dataclasses.replace(config, phase1=dataclasses.replace(config.phase1, steps=0))


def test_a_trained_module_begins_with_phase_2(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    net, later = trained(tiny_data), without_phase1(tiny)
    kcciol.train(later, tiny_data.base, tmp_path / "run", quiet=True, module=net, W="zero", last=2)
    config = kcciol.config.read(tmp_path / "run" / "config.toml")
    assert config.net.module == GIVEN
    assert not (tmp_path / "run" / "phase1.safetensors").exists()
    kcciol.train(later, tiny_data.base, tmp_path / "run", quiet=True, module=net, resume=True)
    with pytest.raises(UserError, match="was given as an object in Python: give it again, as module="):
        kcciol.load(tmp_path / "run" / "phase3.safetensors")
    found = kcciol.load(tmp_path / "run" / "phase3.safetensors", module=net)
    before = Representation.untrained(tiny, tiny_data.base, module=net)
    images = tiny_data.novel.images[:, :5]
    assert not torch.allclose(found.features(images), before.features(images))
    torch.testing.assert_close(before.features(images).flatten(0, 1), net(images.flatten(0, 1) / 255))
    assert float(found.problem.buffers[MEAN].sub(before.problem.buffers[MEAN]).abs().max()) > 0


def test_a_name_for_the_file_and_an_object_for_the_weights(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    net = trained(tiny_data)
    train(without_phase1(named(tiny, "batch")), tiny_data.base, tmp_path / "run", quiet=True, module=net, W="means")
    other = without_phase1(tiny)
    train(other, tiny_data.base, tmp_path / "other", quiet=True, module=net, W="means")
    assert_same(tmp_path / "run" / "phase3.safetensors", tmp_path / "other" / "phase3.safetensors")
    kcciol.load(tmp_path / "run" / "phase3.safetensors")


def test_the_first_W(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    scratch = dataclasses.replace(without_phase1(tiny), representation="scratch")
    scratch = dataclasses.replace(
        scratch, phase2=dataclasses.replace(tiny.phase2, steps=0), phase3=dataclasses.replace(tiny.phase3, steps=0)
    )
    base, net, found = tiny_data.base.first_samples(6), trained(tiny_data), {}
    how: Any
    for how in ("draw", "zero", "means"):
        train(scratch, tiny_data.base, tmp_path / how, quiet=True, module=net, W=how)
        found[how] = kcciol.load(tmp_path / how / "phase1.safetensors", module=net)
    assert float(found["draw"].W["weight"].abs().min()) > 0
    assert float(found["zero"].Theta[found["zero"].problem.theta_length :].abs().max()) == 0
    z = found["means"].features(base.images)
    nearest = torch.cdist(z, z.mean(1), compute_mode="donot_use_mm_for_euclid_dist").argmin(-1)
    assert torch.equal(found["means"].problem.head.logits(found["means"].W, z).argmax(-1), nearest)
    with pytest.raises(UserError, match="W is 'mean', but must be one of: draw, zero, means"):
        train(tiny, tiny_data.base, tmp_path / "x", module=net, W="mean")  # type: ignore[arg-type]
    hidden = dataclasses.replace(tiny, net=dataclasses.replace(tiny.net, hidden=4))
    with pytest.raises(UserError, match="W = 'means' is for a linear W"):
        train(hidden, tiny_data.base, tmp_path / "x", module=net, W="means")
    assert not (tmp_path / "x").exists()


def test_a_file_without_its_buffers_is_refused(whole: Path, tmp_path: Path) -> None:
    saved = checkpoint.load(whole / "phase1.safetensors")
    del saved.tensors[MEAN]
    saved.save(tmp_path / "phase1.safetensors")
    with pytest.raises(UserError, match=rf"{MEAN} is missing"):
        kcciol.load(tmp_path / "phase1.safetensors")


def test_what_cannot_be_differentiated_twice_is_refused_at_once(
    tiny: Config, tiny_data: Splits, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"Once' cannot be differentiated twice, as phase 3 needs \(RuntimeError: "):
        train(named(tiny, "Once"), tiny_data.base, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    quick = dataclasses.replace(tiny, phase3=dataclasses.replace(tiny.phase3, lam=0.0))
    train(named(quick, "Once"), tiny_data.base, tmp_path / "run", quiet=True)


def test_another_module_is_another_run(drops: Config, tiny_data: Splits, whole: Path) -> None:
    with pytest.raises(UserError, match=r"was started with net\.module = .*:batch_dropout, now it is .*:batch"):
        train(named(drops, "batch"), tiny_data.base, whole, resume=True)


def test_by_the_command_line(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(to_toml(tiny))
    assert main(["train", "small.toml", "--net.module", f"{HERE}:group", "--out", "run", "--quiet"]) == 0
    assert kcciol.config.read(Path("run/config.toml")).net.module == f"{HERE}:group"
    assert main(["train", "run", "--resume", "--quiet"]) == 0
    assert main(["evaluate", "run"]) == 0
    assert main(["evaluate", "run", "--learner", "ncm"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "run", "--trains", "all", "--learner", "online"]) == 2
    assert "know the paper's convolutions only" in capsys.readouterr().err
    assert main(["train", "small.toml", "--net.module", "no.such:thing", "--out", "other"]) == 2
    assert "net.module 'no.such:thing' cannot be imported" in capsys.readouterr().err
    assert not Path("other").exists()


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_on_a_gpu(drops: Config, tiny_data: Splits, tmp_path: Path, precision: Any) -> None:
    """Eager; cut and resumed to the same bits; features as on the host."""
    config = dataclasses.replace(drops, engine=dataclasses.replace(drops.engine, device="cuda", precision=precision))
    train(config, tiny_data.base, tmp_path / "whole", quiet=True)
    train(config, tiny_data.base, tmp_path / "run", quiet=True, last=2)
    train(config, tiny_data.base, tmp_path / "run", quiet=True, resume=True)
    assert_same(tmp_path / "whole" / "phase3.safetensors", tmp_path / "run" / "phase3.safetensors")
    images = tiny_data.novel.images[:, 0]
    host, gpu = (kcciol.load(tmp_path / "run" / "phase3.safetensors", device) for device in ("cpu", "cuda"))
    torch.testing.assert_close(gpu.features(images).cpu(), host.features(images), rtol=1e-4, atol=1e-5)
    assert gpu.identity == host.identity
