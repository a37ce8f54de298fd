"""What must hold on a GPU: kernels equal their plain forms, a graph equals eager steps, a resumed run a whole one."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol import optim as adam
from kcciol.config import Config
from kcciol.data.classset import Splits
from kcciol.engine import checkpoint
from kcciol.engine.device import encoder_dtype, precision
from kcciol.engine.graph import capture
from kcciol.kernels import scan
from kcciol.meta.inner import TrajectoryLabels
from kcciol.meta.lowrank import LinearLowRank
from kcciol.meta.mask import get_mask
from kcciol.meta.outer import meta_gradient
from kcciol.meta.phases import train
from kcciol.meta.step import MetaStep
from kcciol.nets.classification import Classification
from kcciol.serialization import to_toml

pytestmark = pytest.mark.cuda
like_training = pytest.mark.usefixtures("as_trained")


@pytest.fixture
def as_trained() -> Iterator[None]:
    """Steps that are taken here and not by `train`: with convolutions that are the same from run to run."""
    with precision("bf16", torch.device("cuda")):
        yield


def distance(a: Tensor, b: Tensor) -> float:
    return float((a.double().cpu() - b.double().cpu()).norm() / b.double().norm())


@like_training
@pytest.mark.parametrize(("t", "k", "c"), [(1, 10, 963), (2, 25, 963), (3, 7, 50), (1, 1, 3)])
def test_scans(t: int, k: int, c: int) -> None:
    torch.manual_seed(0)
    z, P = torch.randn(t, k, 64).double(), torch.randn(t, k + 3, c).double()[:, :k]
    G, y = z @ z.mT / 64 + 1, torch.randint(0, c, (t, k))
    p = scan.softmax_scan(P, G, y, 0.5)
    P_gpu = torch.cat([P, P], 1).float().cuda()[:, :k]  # a slice, as in the inner loop
    assert distance(scan.softmax_scan(P_gpu, G.float().cuda(), y.cuda(), 0.5), p) < 1e-5
    start, offset = torch.randn(2, t, k, c).double().unbind()
    for reverse in (False, True):
        for extra in (None, offset):
            plain = scan.jacobian_scan(start, G, p, 0.5, reverse, extra)
            gpu = [x if x is None else x.float().cuda() for x in (start, G, p, extra)]
            fast = scan.jacobian_scan(gpu[0], gpu[1], gpu[2], 0.5, reverse, gpu[3])  # type: ignore[arg-type]
            assert distance(fast, plain) < 1e-5


@like_training
@pytest.mark.parametrize(("gamma", "clamp"), [(0.0, 0.0), (1e-2, 5.0)])
def test_adam(gamma: float, clamp: float) -> None:
    torch.manual_seed(0)
    Theta = torch.randn(100_003)
    copy, scales = Theta.cuda(), adam.scales(6, 1e-3)
    states = adam.Adam.new(Theta), adam.Adam.new(copy)
    for step in range(6):
        g = 4 * torch.randn(100_003)
        adam.update_(Theta, g, states[0], scales[step], gamma, clamp)
        adam.update_(copy, g.cuda(), states[1], scales[step].cuda(), gamma, clamp)
    torch.testing.assert_close(copy.cpu(), Theta, rtol=1e-5, atol=1e-6)
    adam.update_(copy, torch.full_like(copy, float("nan")), states[1], scales[5].cuda(), gamma, clamp)
    assert copy.isnan().all()  # the clamp must not hide what went wrong


@pytest.mark.parametrize("order", ["exact", "first"])
@pytest.mark.parametrize(("name", "bound"), [("float32", 1e-4), ("tf32", 1e-2), ("bf16", 5e-2)])
def test_the_meta_gradient_on_the_gpu(tiny: Config, order: Any, name: Any, bound: float) -> None:
    torch.manual_seed(0)
    net = dataclasses.replace(tiny.net, channels=64, strides=(2, 1, 2))
    problem = Classification(net, (1, 28, 28), 50)
    Theta = problem.init(0)
    y = TrajectoryLabels(torch.arange(3).repeat_interleave(4)[None], torch.arange(20)[None])
    rows = problem.encoder.rows(torch.randint(0, 256, (32, 1, 28, 28), dtype=torch.uint8))
    mask = get_mask(problem.layout, Theta, tiny.mask)
    inner = LinearLowRank(problem.head, 0.01, order)
    true = meta_gradient(problem, Theta.double(), rows, y, inner, mask.double(), 1e-3)
    there, gpu = TrajectoryLabels(y.train.cuda(), y.val.cuda()), torch.device("cuda")
    with precision(name, gpu):
        dtype = encoder_dtype(name, gpu)
        got = meta_gradient(problem, Theta.cuda(), rows.cuda(), there, inner, mask.cuda(), 1e-3, dtype)
    assert distance(got.loss, true.loss) < bound
    assert distance(got.gradient, true.gradient) < bound


def gpu_config(config: Config, graph: bool = True, precision: Any = "bf16") -> Config:
    engine = dataclasses.replace(config.engine, device="cuda", graph=graph, precision=precision, checkpoint_every=60)
    phases = {f"phase{i}": dataclasses.replace(p, steps=300) for i, p in enumerate(config.phases, 1)}
    return dataclasses.replace(config, engine=engine, **phases)  # type: ignore[arg-type]


@like_training
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_graph_does_what_eager_steps_do(tiny: Config, tiny_data: Splits, number: int) -> None:
    results = []
    for graph in (False, True):
        config = gpu_config(tiny, graph)
        problem = Classification(config.net, tiny_data.base.image_shape, len(tiny_data.base))
        Theta = problem.init(0).cuda()
        mask = get_mask(problem.layout, Theta, config.mask) if number == 3 else None
        step = MetaStep(problem, tiny_data.base, config, config.phases[number - 1], number, Theta, mask)
        step.load_block(0, 0)
        run = capture(step) if graph else step
        for _ in range(20):
            run()
        results.append(Theta.cpu())
        assert int(step.step) == 20
    assert torch.equal(*results)


KILLER = """
import os, signal, sys
from kcciol import config, data
from kcciol.meta import phases, step
count, real = 0, step.MetaStep.load_block
def dying(self, block, slot):
    global count
    count += 1
    if count == 6:  # the second block of phase 3
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, block, slot)
step.MetaStep.load_block = dying
c = config.read(config.Path(sys.argv[1]))
phases.train(c, data.load(c.data).base, sys.argv[2], quiet=True)
"""


@like_training
def test_killed_and_resumed_on_the_gpu(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    config = gpu_config(tiny)
    train(config, tiny_data.base, tmp_path / "whole", quiet=True)
    (tmp_path / "gpu.toml").write_text(to_toml(config))
    words = [sys.executable, "-c", KILLER, str(tmp_path / "gpu.toml"), str(tmp_path / "cut")]
    assert subprocess.run(words, check=False, capture_output=True).returncode == -signal.SIGKILL
    saved = checkpoint.load(tmp_path / "cut" / "checkpoint.safetensors")
    assert (saved.phase, saved.step) == (3, 240)
    train(config, tiny_data.base, tmp_path / "cut", resume=True, quiet=True)
    for name in ("phase1", "phase2", "phase3", "checkpoint"):
        one = checkpoint.load(tmp_path / "whole" / f"{name}.safetensors").tensors
        two = checkpoint.load(tmp_path / "cut" / f"{name}.safetensors").tensors
        assert all(torch.equal(one[key], two[key]) for key in one)


@like_training
@pytest.mark.parametrize(("steps", "at"), [(2, 1), (260, 249), (260, 259)])
def test_capturing_near_the_end_of_a_table(tiny: Config, tiny_data: Splits, steps: int, at: int) -> None:
    """The trial runs before a capture must not run off the end of a block or a phase."""
    config = dataclasses.replace(gpu_config(tiny), phase1=dataclasses.replace(tiny.phase1, steps=steps))
    problem = Classification(config.net, tiny_data.base.image_shape, len(tiny_data.base))
    step = MetaStep(problem, tiny_data.base, config, config.phase1, 1, problem.init(0).cuda())
    step.load_block(at // 250, at % 250)
    capture(step)()
    torch.cuda.synchronize()
    assert int(step.step) == at + 1
