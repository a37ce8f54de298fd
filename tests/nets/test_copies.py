"""Convolutions of copies side by side: both ways give the same maps and derivatives, and no copy sees another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import NetConfig
from kcciol.nets.copies import by_patches, grouped
from kcciol.nets.encoder import ConvEncoder

NET = NetConfig(channels=3, strides=(2, 1, 2))
COPIES, EXAMPLES = 4, 2


def problem(channels: int, side: int) -> tuple[dict[str, Tensor], Tensor]:
    random = torch.Generator().manual_seed(1)
    shapes = ConvEncoder(NET, (channels, side, side + 2)).shapes
    theta = {n: torch.randn(COPIES, *s, generator=random, dtype=torch.float64) for n, s in shapes.items()}
    x = torch.rand(COPIES, EXAMPLES, channels, side, side + 2, generator=random, dtype=torch.float64)
    return {n: t.requires_grad_() for n, t in theta.items()}, x.requires_grad_()


@pytest.mark.parametrize("way", [grouped, by_patches])
@pytest.mark.parametrize(("channels", "side"), [(1, 20), (3, 17)])
def test_each_copy_is_a_network_of_its_own(way: Any, channels: int, side: int) -> None:
    theta, x = problem(channels, side)
    found = list(way(theta, x, NET.strides))
    for copy in range(COPIES):
        a = x[copy]
        for layer, stride in enumerate(NET.strides, 1):
            a = F.relu(F.conv2d(a, theta[f"conv{layer}.weight"][copy], theta[f"conv{layer}.bias"][copy], stride))
            torch.testing.assert_close(found[layer - 1][copy], a)


@pytest.mark.parametrize(("channels", "side"), [(1, 20), (3, 17)])
def test_both_ways_have_the_same_derivatives_of_first_and_second_order(channels: int, side: int) -> None:
    theta, x = problem(channels, side)
    inputs = [*theta.values(), x]
    results = []
    for way in (grouped, by_patches):

        def loss(way: Any = way) -> Tensor:
            return torch.stack([(a * a.detach().cos()).sum() for a in way(theta, x, NET.strides)]).sum()

        plain = torch.autograd.grad(loss(), inputs)
        first = torch.autograd.grad(loss(), inputs, create_graph=True)
        again = torch.stack([g.square().sum() for g in first]).sum()
        second = torch.autograd.grad(again, inputs, materialize_grads=True)
        results.append((*plain, *first, *second))
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two)
