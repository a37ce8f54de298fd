"""What must hold of regression on a GPU: the kernels' inner loop, the step as a graph, the same numbers as a CPU's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor

from kcciol.config import EngineConfig, PhaseConfig
from kcciol.engine.graph import capture
from kcciol.paper.ensemble import Affine
from kcciol.paper.ensemble.train import masks
from kcciol.paper.sine import adjoint, network
from kcciol.paper.sine.adjoint import Through, inner_loops
from kcciol.paper.sine.functions import Functions, draw
from kcciol.paper.sine.network import RegressionNetwork
from kcciol.paper.sine.settings import RegressionConfig, SineConfig, WidthConfig
from kcciol.paper.sine.train import SineStep, train_sine

pytestmark = pytest.mark.cuda

CONFIG = RegressionConfig(
    sine=SineConfig(functions=40, novel=20, slots=5, batches=4, batch=32, query=8, count=2),
    net=WidthConfig(width=70, features=130, theta=3, W=3),
    milestones=(4,),
    phase1=PhaseConfig(steps=8, alpha=3e-3, beta=1e-3),
    phase2=PhaseConfig(steps=4, alpha=3e-3, beta=1e-4, gamma=1e-4),
    phase3=PhaseConfig(steps=4, alpha=3e-3, beta=1e-4, lam=1e-3),
    engine=EngineConfig(checkpoint_every=5, log_every=2),
)


def test_the_same_trajectories_are_drawn() -> None:
    seeds = torch.tensor([1, 5])
    here = draw(Functions.drawn(seeds, 40), CONFIG.sine, seeds, torch.tensor(9), 2)
    seeds = seeds.cuda()
    there = draw(Functions.drawn(seeds, 40), CONFIG.sine, seeds, torch.tensor(9, device="cuda"), 2)
    assert torch.equal(here.chosen, there.chosen.cpu())
    torch.testing.assert_close(here.x, there.x.cpu())
    torch.testing.assert_close(here.y, there.y.cpu(), rtol=1e-4, atol=1e-4)


def printed_size() -> tuple[list[Affine], Tensor, Tensor, Tensor]:
    """W, z, y and alpha of six copies and a function's 40 batches, at the sizes of the paper."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    B, T, n, d, h = 6, 40, 32, 900, 300
    W = [(torch.randn(B, h, d) / 20, torch.zeros(B, h)), (torch.randn(B, h, h) / 12, torch.zeros(B, h))]
    W.append((torch.randn(B, 1, h) / 12, torch.zeros(B, 1)))
    z, y = torch.randn(B, T, n, d, device="cuda").relu(), torch.randn(B, T, n, device="cuda")
    return [(w.cuda(), b.cuda()) for w, b in W], z, y, torch.full((B, 1, 1), 3e-3, device="cuda")


@pytest.mark.parametrize("exact", [True, False])
def test_kernels_learn_as_the_plain_loop_does(exact: bool) -> None:
    from kcciol.paper.sine import regression_triton

    W, z, y, alpha = printed_size()
    fast, plain = regression_triton.learn(W, z, y, alpha, exact), network.learn(W, z, y, alpha)
    bound = 1e-4 if exact else 2e-2
    for (w, b), (w2, b2) in zip(fast, plain, strict=True):
        torch.testing.assert_close(w, w2, rtol=bound, atol=bound)
        torch.testing.assert_close(b, b2, rtol=bound, atol=bound)


def test_kernels_go_back_as_the_plain_way_does() -> None:
    """In float32 the same; with operands rounded to TF32 no further from it than the plain way is with them."""
    W, z, y, alpha = printed_size()
    leaves = [t.requires_grad_() for t in (z, *(t for layer in W for t in layer))]
    asked = torch.randn(6, 50, 900, device="cuda").relu()

    def derivative(through: Through) -> tuple[Tensor, ...]:
        lost = torch.zeros(6, dtype=torch.bool, device="cuda")
        learned = through(W, z, y, alpha, 5, lost)
        ends = [network.predict([(w[i], b[i]) for w, b in learned], asked).square().mean() for i in range(5)]
        found = torch.autograd.grad(torch.stack(ends).sum(), leaves)
        assert not bool(lost.any())
        return found

    truth, fast = derivative(adjoint.learn), derivative(inner_loops(z.device, True).through)
    rough = derivative(inner_loops(z.device, False).through)
    torch.backends.cuda.matmul.allow_tf32 = True
    plain = derivative(adjoint.learn)
    torch.backends.cuda.matmul.allow_tf32 = False
    for values in zip(truth, fast, rough, plain, strict=True):
        near, by_kernels, by_torch = (float((v - values[0]).norm() / values[0].norm()) for v in values[1:])
        assert near < 1e-4
        assert by_kernels < 2 * by_torch + 1e-4


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("order", ["first", "exact"])
def test_a_graph_does_what_single_kernels_do(number: int, order: Literal["first", "exact"]) -> None:
    config = replace(CONFIG, order=order, clip=1.0, retreat=True, rise=3)
    members = [replace(config, seed=0), replace(config, seed=1, loss="every"), replace(config, seed=2)]
    net = RegressionNetwork(CONFIG.net, 6)
    ends = []
    for graph in (True, False):
        Theta = torch.stack([net.init(m.seed) for m in members]).cuda()
        step = SineStep(net, members, number, Theta, masks(net, Theta, members) if number == 3 else None)
        execute = capture(step) if graph else step
        for _ in range(4):
            execute()
        assert int(step.step) == 4
        ends.append(Theta.clone())
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["end", "every"])
@pytest.mark.parametrize("order", ["first", "exact"])
def test_a_gpu_trains_as_a_cpu_does_and_twice_the_same_bits(
    tmp_path: Path, loss: Literal["end", "every"], order: Literal["first", "exact"]
) -> None:
    config = replace(CONFIG, loss=loss, order=order)
    gpu, cpu = (replace(config, engine=replace(CONFIG.engine, device=d)) for d in ("cuda", "cpu"))
    whole = train_sine([gpu], tmp_path / "gpu", quiet=True)
    here = train_sine([cpu], tmp_path / "cpu", quiet=True)
    torch.testing.assert_close(whole.cpu(), here, rtol=2e-2, atol=2e-3)
    assert torch.equal(train_sine([gpu], tmp_path / "again", quiet=True), whole)
