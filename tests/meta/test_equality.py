"""The fast meta-step equals the plain one, and both equal a naive unrolled full-network reference, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kcciol.config import GradientOrder, NetConfig
from kcciol.meta.inner import Inner, Plain, TrajectoryLabels
from kcciol.meta.lowrank import HiddenLowRank, LinearLowRank
from kcciol.meta.outer import meta_gradient
from kcciol.nets.classification import Classification
from kcciol.paper.bench.naive import naive_loss

ALPHA, LAMBDA = 0.3, 0.7


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def case(
    hidden: int, classes: int, trajectories: int, channels: int = 1
) -> tuple[Classification, Tensor, Tensor, TrajectoryLabels]:
    """A tiny net on random images; the trajectory's classes also appear in tau_val."""
    torch.manual_seed(classes + 10 * trajectories + hidden)
    problem = Classification(NetConfig(channels=5, strides=(2, 1), hidden=hidden), (channels, 12, 11), 13)
    Theta = problem.init(3).double()
    Theta += 0.05 * torch.randn_like(Theta) * (Theta != 0)
    for name, view in problem.layout.views(Theta).items():
        if name.endswith("bias"):
            view.normal_(std=0.1)
    k, s = 2 * classes if classes > 1 else 4, 6
    train = torch.stack([torch.randperm(13)[:classes].repeat_interleave(k // classes) for _ in range(trajectories)])
    val = torch.cat([train[:, ::2], torch.randint(0, 13, (trajectories, s))], 1)
    images = torch.randint(0, 256, (train.numel() + val.numel(), channels, 12, 11), dtype=torch.uint8)
    return problem, Theta, images, TrajectoryLabels(train, val)


CASES = [(h, c, t) for h in (0, 7) for c in (1, 3) for t in (1, 2)]


@pytest.mark.parametrize("order", ["first", "exact"])
@pytest.mark.parametrize(("hidden", "classes", "trajectories"), CASES)
def test_plain_lowrank_and_naive_are_equal(order: GradientOrder, hidden: int, classes: int, trajectories: int) -> None:
    problem, Theta, images, y = case(hidden, classes, trajectories)
    mask = (torch.rand_like(Theta) > 0.5).double()
    leaf = Theta.clone().requires_grad_()
    loss = naive_loss(problem, leaf, images, y, ALPHA, order)
    (g,) = torch.autograd.grad(loss, leaf, create_graph=True)
    (pull,) = torch.autograd.grad((mask * g).square().sum(), leaf)
    lowrank: type[Inner] = HiddenLowRank if hidden else LinearLowRank
    rows = problem.encoder.rows(images)
    for kind in (Plain, lowrank):
        inner = kind(problem.head, ALPHA, order)
        one = meta_gradient(problem, Theta, rows, y, inner)
        assert relative(one.loss, loss.detach()) < 1e-12
        assert relative(one.gradient, g.detach()) < 1e-10
        three = meta_gradient(problem, Theta, rows, y, kind(problem.head, ALPHA, order), mask, LAMBDA)
        assert three.constraint is not None
        assert relative(three.constraint, (mask * g).square().sum().detach()) < 1e-10
        assert relative((three.gradient - one.gradient) / LAMBDA, pull) < 1e-8


def test_colour_images_are_read_the_same_way() -> None:
    problem, Theta, images, y = case(0, 3, 1, channels=3)
    leaf = Theta.clone().requires_grad_()
    (g,) = torch.autograd.grad(naive_loss(problem, leaf, images, y, ALPHA, "exact"), leaf)
    result = meta_gradient(problem, Theta, problem.encoder.rows(images), y, LinearLowRank(problem.head, ALPHA, "exact"))
    assert relative(result.gradient, g) < 1e-10


def test_first_order_differs_from_exact() -> None:
    problem, Theta, images, y = case(0, 3, 1)
    rows = problem.encoder.rows(images)
    first = meta_gradient(problem, Theta, rows, y, LinearLowRank(problem.head, ALPHA, "first"))
    exact = meta_gradient(problem, Theta, rows, y, LinearLowRank(problem.head, ALPHA, "exact"))
    assert torch.equal(first.loss, exact.loss)
    assert relative(first.gradient, exact.gradient) > 0.05
