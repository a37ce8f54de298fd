"""The definition of Adam is torch's; every fast form is the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kcciol import optim

STEPS = 20


def gradients(shape: tuple[int, ...]) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=random, dtype=torch.float64) for _ in range(STEPS + 1)]


def defined(start: Tensor, steps: list[Tensor], rate: Tensor | float, betas: tuple[float, float]) -> Tensor:
    parameters, m, v = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for t, g in enumerate(steps, 1):
        optim.adam_(parameters, g, m, v, *optim.corrections(rate, t, betas), betas)
    return parameters


@pytest.mark.parametrize("betas", [optim.BETAS, (0.5, 0.9)])
def test_the_definition_is_torchs_adam(betas: tuple[float, float]) -> None:
    start, *steps = gradients((50,))
    theirs = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=3e-3, betas=betas)
    for g in steps:
        theirs.grad = g.clone()
        optimizer.step()
    torch.testing.assert_close(defined(start, steps, 3e-3, betas), theirs.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("clamp", [0.0, 0.5])
@pytest.mark.parametrize("gamma", [0.0, 0.1])
def test_the_update_of_algorithm_2_is_the_definition(gamma: float, clamp: float) -> None:
    start, *steps = gradients((50,))
    ours, theirs = start.clone(), start.clone().requires_grad_()
    state, scales = optim.Adam.new(ours), optim.scales(STEPS, 3e-3).double()
    optimizer = torch.optim.Adam([theirs], lr=3e-3)
    for g, scale in zip(steps, scales, strict=True):
        theirs.grad = (g + gamma * theirs.detach().sign()).clamp(-(clamp or 99), clamp or 99)
        optimizer.step()
        optim.update_(ours, g, state, scale, gamma, clamp)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-6)  # the table is of float32


def test_a_table_holds_the_corrections_of_every_step() -> None:
    for t, row in enumerate(optim.scales(2000, 0.02).tolist(), 1):
        assert row == pytest.approx(optim.corrections(0.02, t), rel=1e-6)


def test_copies_step_as_each_would_alone() -> None:
    start, *steps = gradients((3, 4, 5))
    rates = torch.tensor([0.1, 0.02, 0.5], dtype=torch.float64)
    copies, m, v = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for t, g in enumerate(steps, 1):
        optim.adam_copies_(copies, g, m, v, rates, t)
    for i, rate in enumerate(rates.tolist()):
        alone = defined(start[i], [g[i] for g in steps], rate, optim.BETAS)
        torch.testing.assert_close(copies[i], alone, rtol=1e-12, atol=1e-12)


def test_parameters_in_units_of_the_rate_step_as_the_others() -> None:
    start, *steps = gradients((4, 5))
    rate, scratch = 0.02, torch.empty(4, 5, dtype=torch.float64)
    scaled, m, v = start / rate, torch.zeros_like(start), torch.zeros_like(start)
    for t, g in enumerate(steps, 1):
        optim.adam_by_rate_(scaled, scratch.copy_(g), m, v, t, lambda: torch.sqrt(v, out=scratch))
    torch.testing.assert_close(scaled * rate, defined(start, steps, rate, optim.BETAS), rtol=1e-12, atol=1e-12)
