"""The rivals' losses on features against the plain way to write them, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import MetaConfig, TrajectoryConfig
from kcciol.errors import UserError
from kcciol.meta.inner import Plain, TrajectoryLabels
from kcciol.meta.objectives import Episodes, Supervised, set_kl
from kcciol.nets.classification import Classifier

D, C = 6, 8
HEAD = Classifier(D, C)
ALPHA = 0.3


def point(k: int, s: int, trajectories: int = 2, seed: int = 0) -> tuple[dict[str, Tensor], Tensor, TrajectoryLabels]:
    g = torch.Generator().manual_seed(seed)
    W = {"weight": torch.randn(C, D, generator=g).double(), "bias": torch.randn(C, generator=g).double()}
    z = torch.randn(trajectories * (k + s), D, generator=g).double().relu()
    y = TrajectoryLabels(*(torch.randint(0, C, (trajectories, n), generator=g) for n in (k, s)))
    return W, z, y


def one_episode(W: dict[str, Tensor], z: Tensor, y: Tensor, steps: int, exact: bool) -> dict[str, Tensor]:
    for _ in range(steps):
        loss = F.cross_entropy(HEAD.logits(W, z), y)
        gradient = torch.autograd.grad(loss, list(W.values()), create_graph=exact, retain_graph=True)
        W = {n: w - ALPHA * g for (n, w), g in zip(W.items(), gradient, strict=True)}
    return W


def plain_episodes(W: dict[str, Tensor], z: Tensor, y: TrajectoryLabels, steps: int, exact: bool) -> Tensor:
    z_tr, z_val = y.split(z)
    losses = []
    for i in range(len(y.train)):
        adapted = one_episode(W, z_tr[i], y.train[i], steps, exact)
        losses.append(F.cross_entropy(HEAD.logits(adapted, z_val[i]), y.val[i]))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("order", ["exact", "first"])
@pytest.mark.parametrize("relabel", [False, True])
def test_episodes_are_what_they_say(order: Any, relabel: bool) -> None:
    W, z, y = point(6, 4)
    config = MetaConfig(loss="episodes", order=order, episode_steps=3, relabel=relabel)
    inner = Episodes(HEAD, ALPHA, config, TrajectoryConfig(classes=2, support=3, query=2, remember=0))
    loss, gW, u = inner.gradient(W, z, y)
    if relabel:
        y = TrajectoryLabels(torch.tensor([[0, 0, 0, 1, 1, 1]] * 2), torch.tensor([[0, 0, 1, 1]] * 2))
    leaves = {n: t.clone().requires_grad_() for n, t in W.items()} | {"z": z.clone().requires_grad_()}
    used = {n: leaves[n][:2] if relabel else leaves[n] for n in W}
    expected = plain_episodes(used, leaves["z"], y, steps=3, exact=order == "exact")
    gradients = torch.autograd.grad(expected, list(leaves.values()))
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-10, atol=1e-12)
    for name, gradient in zip(leaves, gradients, strict=True):
        got = u if name == "z" else gW[name]
        torch.testing.assert_close(got, gradient, rtol=1e-10, atol=1e-12)
    if order == "first":
        assert not u[:12].any()  # the support counts only through where W is


def test_one_step_of_an_episode_of_one_image_is_one_step_of_a_trajectory() -> None:
    W, z, y = point(1, 5)
    config = MetaConfig(loss="episodes", episode_steps=1)
    inner = Episodes(HEAD, ALPHA, config, TrajectoryConfig(classes=1, support=1, query=5))
    for ours, theirs in zip(inner.gradient(W, z, y), Plain(HEAD, ALPHA, "exact").gradient(W, z, y), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_hidden_layer_is_refused_in_episodes() -> None:
    with pytest.raises(UserError, match="linear W"):
        Episodes(Classifier(D, C, 4), ALPHA, MetaConfig(loss="episodes"), TrajectoryConfig())


@pytest.mark.parametrize("loss", ["supervised", "sparse"])
def test_supervised_training_is_cross_entropy_and_its_curvature_is_right(loss: Any) -> None:
    W, z, y = point(0, 9, trajectories=1)
    inner = Supervised(HEAD, MetaConfig(loss=loss, reset="none", sparsity=0.2))
    value, gW, u = inner.gradient(W, z, y)

    def expected(weight: Tensor, bias: Tensor, features: Tensor) -> Tensor:
        total = F.cross_entropy(F.linear(features, weight, bias), y.val[0])
        if loss == "sparse":
            mean = features.mean(0)
            total = total + torch.where(mean > 0.2, (mean / 0.2).log() + 0.2 / mean - 1, torch.zeros_like(mean)).mean()
        return total

    arguments = (W["weight"], W["bias"], z)
    torch.testing.assert_close(value, expected(*arguments))
    gradient = torch.func.grad(expected, argnums=(0, 1, 2))
    for got, want in zip((gW["weight"], gW["bias"], u), gradient(*arguments), strict=True):
        torch.testing.assert_close(got, want)
    along = tuple(torch.randn_like(t) for t in arguments)
    moved, udot = inner.hvp({"weight": along[0], "bias": along[1]}, along[2])
    want = torch.func.jvp(gradient, arguments, along)[1]
    for got, expect in zip((moved["weight"], moved["bias"], udot), want, strict=True):
        torch.testing.assert_close(got, expect)


def test_the_penalty_begins_smoothly_and_grows() -> None:
    b = 0.3
    means = torch.tensor([0.0, 0.1, 0.3, 0.4, 0.9, 5.0], dtype=torch.float64, requires_grad=True)
    penalty = set_kl(means, b)
    assert penalty[:3].tolist() == [0.0, 0.0, 0.0]
    assert (penalty[3:].diff() > 0).all()
    (slope,) = torch.autograd.grad(penalty.sum(), means)
    assert slope[:3].abs().max() == 0
    assert (slope[3:] > 0).all()
