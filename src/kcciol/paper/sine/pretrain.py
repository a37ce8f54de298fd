"""The rivals that do not meta-learn: supervised training on many functions, plain or with sparse features (SRNN).

The input has `slots` places for functions and there are more functions than that, so the network gets several outputs:
function t is answered by output t // slots in slot t % slots. theta is kept; W starts anew when functions are learned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kcciol.meta.objectives import set_kl
from kcciol.optim import adam_, corrections
from kcciol.paper.sine import network
from kcciol.paper.sine.functions import REACH, Functions, inputs
from kcciol.paper.sine.network import RegressionNetwork
from kcciol.paper.sine.settings import SineConfig, WidthConfig
from kcciol.random import keyed, keyed_uniform

OUTPUTS, BATCH = 30, 256
MILESTONES, DECAY = (5000, 8000), 0.2
_TIME = 77  # sets its random numbers apart from those of meta-training


def pretrain(
    net: WidthConfig,
    config: SineConfig,
    seeds: list[int],
    sparsity: list[float],
    steps: int = 20000,
    rate: float = 1e-4,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Theta (M, length) of members with these seeds: theta as `fit` leaves it, and W a fresh draw."""
    wide, Theta = fit(net, config, seeds, sparsity, steps, rate, device)
    shape = RegressionNetwork(net, config.slots + 1)
    fresh = torch.stack([shape.init(seed + 1) for seed in seeds]).to(device)
    for (new, bias), (old, old_bias) in zip(shape.layers(fresh, "theta"), wide.layers(Theta, "theta"), strict=True):
        new.copy_(old)
        bias.copy_(old_bias)
    return fresh


def fit(
    net: WidthConfig,
    config: SineConfig,
    seeds: list[int],
    sparsity: list[float],
    steps: int,
    rate: float,
    device: torch.device | str,
) -> tuple[RegressionNetwork, Tensor]:
    """The network of several outputs, and its parameters (M, length) after training. sparsity: the mean activation
    above which a feature is penalised (0: none is)."""
    outputs = min(OUTPUTS, config.functions // config.slots)
    wide = RegressionNetwork(net, config.slots + 1, outputs)
    Theta = torch.stack([wide.init(seed) for seed in seeds]).to(device)
    keys = torch.tensor(seeds, device=device)
    functions = Functions.drawn(keys, config.functions)
    wanted = torch.tensor(sparsity, device=device)[:, None]
    m, v = torch.zeros_like(Theta), torch.zeros_like(Theta)
    for step in range(steps):
        u = keyed_uniform(keyed(keys, _TIME, step), 2 * BATCH)
        function = (u[:, :BATCH] * (outputs * config.slots)).long()
        z = (2 * u[:, BATCH:] - 1) * REACH
        y = functions.at(function, z[..., None])[..., 0]
        x = inputs(config.slots, z, function % config.slots)
        with torch.enable_grad():
            leaf = Theta.detach().requires_grad_()
            features = network.represent(wide.layers(leaf, "theta"), x)
            answers = network.activations(wide.layers(leaf, "W"), features)[-1]
            answer = answers.gather(2, (function // config.slots)[..., None])[..., 0]
            loss = (answer - y).square().mean(1) + _penalty(features, wanted)
            (g,) = torch.autograd.grad(loss.sum(), leaf)
        now = rate * DECAY ** sum(step >= milestone for milestone in MILESTONES)
        adam_(Theta, g, m, v, *corrections(now, step + 1))
    return wide, Theta


def _penalty(features: Tensor, wanted: Tensor) -> Tensor:
    """That of the mean activation of each feature, the mean over features, (M,); none where `wanted` is 0."""
    penalty = set_kl(features.mean(1), torch.where(wanted > 0, wanted, 1.0))
    return torch.where(wanted > 0, penalty, 0.0).mean(1)
