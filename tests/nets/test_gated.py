"""The gated encoder and ANML's inner loop, against autograd in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import NetConfig
from kcciol.meta.inner import Plain, TrajectoryLabels
from kcciol.meta.outer import meta_gradient
from kcciol.meta.whole import whole_gradient
from kcciol.nets.classification import Classification
from kcciol.nets.gated import MODULATOR, GatedEncoder

NET = NetConfig(channels=3, strides=(2, 1), gate=2)
IMAGE = (1, 9, 9)
CLASSES = 5


def plain_features(theta: dict[str, Tensor], x: Tensor) -> Tensor:
    def features(prefix: str) -> Tensor:
        a = x
        for layer, stride in enumerate(NET.strides, 1):
            a = F.relu(F.conv2d(a, theta[f"{prefix}conv{layer}.weight"], theta[f"{prefix}conv{layer}.bias"], stride))
        return a.permute(0, 2, 3, 1).flatten(1)

    return features("") * torch.sigmoid(F.linear(features(MODULATOR), theta["gate.weight"], theta["gate.bias"]))


def setting(seed: int = 0, images: int = 7) -> tuple[GatedEncoder, dict[str, Tensor], Tensor]:
    encoder, generator = GatedEncoder(NET, IMAGE), torch.Generator().manual_seed(seed)
    theta = {
        n: t.double() + 0.1 * torch.randn(t.shape, generator=generator).double()
        for n, t in encoder.init(generator).items()
    }
    return encoder, theta, torch.randint(0, 256, (images, *IMAGE), generator=generator).to(torch.uint8)


def test_features_and_all_derivatives() -> None:
    encoder, theta, images = setting()
    assert {n: tuple(t.shape) for n, t in theta.items()} == encoder.shapes
    x = images.double() / 255
    z, tape = encoder.forward(theta, encoder.patches(encoder.rows(images), torch.float64))
    torch.testing.assert_close(z, plain_features(theta, x))
    u, udot = torch.randn_like(z), torch.randn_like(z)
    v = {n: torch.randn_like(t) for n, t in theta.items()}

    def gradient(at: dict[str, Tensor], weights: Tensor) -> dict[str, Tensor]:
        result: dict[str, Tensor] = torch.func.grad(lambda p: (weights * plain_features(p, x)).sum())(at)
        return result

    for name, g in encoder.backward(theta, tape, u).items():
        torch.testing.assert_close(g, gradient(theta, u)[name], msg=name)
    zdot = torch.func.jvp(lambda p: plain_features(p, x), (theta,), (v,))[1]
    torch.testing.assert_close(encoder.tangent(theta, tape, v), zdot)
    moved = torch.func.jvp(gradient, (theta, u), (v, udot))[1]
    for name, g in encoder.tangent_backward(theta, tape, v, udot).items():
        torch.testing.assert_close(g, moved[name], msg=name)


def test_a_gate_that_is_open_is_no_gate() -> None:
    encoder, theta, images = setting()
    theta["gate.weight"].zero_()
    theta["gate.bias"].fill_(50.0)
    patches = encoder.patches(encoder.rows(images), torch.float64)
    torch.testing.assert_close(encoder.forward(theta, patches)[0], encoder.prediction.forward(theta, patches)[0])


def problem(gate: int = 2) -> tuple[Classification, Tensor, Tensor, TrajectoryLabels]:
    net = NetConfig(channels=3, strides=(2, 1), gate=gate)
    it = Classification(net, IMAGE, CLASSES)
    generator = torch.Generator().manual_seed(1)
    noise = it.layout.pack(it.layout.views(torch.randn(it.layout.length, generator=generator)))
    Theta = (it.init(0) + 0.1 * noise).double()  # no bias is zero, where a rectifier has a kink
    images = torch.randint(0, 256, (2 * (3 + 4), *IMAGE), generator=generator).to(torch.uint8)
    y = TrajectoryLabels(torch.tensor([[1, 1, 1], [2, 2, 2]]), torch.randint(0, CLASSES, (2, 4), generator=generator))
    return it, Theta, it.encoder.rows(images), y


def l_meta(it: Classification, Theta: Tensor, rows: Tensor, y: TrajectoryLabels, alpha: float) -> float:
    return float(whole_gradient(it, Theta, rows, y, alpha, "exact").loss)


@pytest.mark.parametrize("gate", [0, 2])
def test_the_gradient_through_an_adapting_network_is_that_of_finite_differences(gate: int) -> None:
    it, Theta, rows, y = problem(gate)
    result = whole_gradient(it, Theta, rows, y, 0.2, "exact")
    for seed in range(4):
        direction = torch.randn(len(Theta), generator=torch.Generator().manual_seed(seed)).double()
        direction = it.layout.pack(it.layout.views(direction)).double()  # nothing in the padding
        eps = 1e-6
        above, below = (l_meta(it, Theta + sign * eps * direction, rows, y, 0.2) for sign in (1, -1))
        slope = (above - below) / (2 * eps)
        assert float(result.gradient @ direction) == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("order", ["exact", "first"])
def test_a_rate_of_zero_leaves_the_plain_gradient(order: Any) -> None:
    it, Theta, rows, y = problem()
    whole = whole_gradient(it, Theta, rows, y, 0.0, order)
    plain = meta_gradient(it, Theta, rows, y, Plain(it.head, 0.0, "exact"))
    torch.testing.assert_close(whole.loss, plain.loss)
    torch.testing.assert_close(whole.gradient, plain.gradient)


def test_first_order_takes_the_gradient_where_the_inner_loop_ends_and_the_modulator_does_not_adapt() -> None:
    it, Theta, rows, y = problem()
    one = TrajectoryLabels(y.train[:1], y.val[:1])
    images = torch.cat([rows[:3], rows[6:10]])
    exact, first = (whole_gradient(it, Theta, images, one, 0.2, order) for order in ("exact", "first"))
    torch.testing.assert_close(exact.loss, first.loss)
    assert not torch.allclose(exact.gradient, first.gradient)
    # the same end, reached by hand: SGD on all but the gate, then the gradient there
    adapted = Theta.clone()
    for j in range(3):
        none = TrajectoryLabels(torch.zeros(1, 0, dtype=torch.int64), one.train[:, j : j + 1])
        step = whole_gradient(it, adapted, images[j : j + 1], none, 0.0, "first").gradient
        for name, view in it.layout.views(step).items():
            if MODULATOR in name or "gate" in name:
                view.zero_()
        adapted = adapted - 0.2 * step
    none = TrajectoryLabels(torch.zeros(1, 0, dtype=torch.int64), one.val)
    there = whole_gradient(it, adapted, images[3:], none, 0.0, "first")
    torch.testing.assert_close(first.loss, there.loss)
    torch.testing.assert_close(first.gradient, there.gradient)
