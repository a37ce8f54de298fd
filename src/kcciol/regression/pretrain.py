"""The rivals that do not meta-learn: supervised training on many functions, plain or with sparse features (SRNN).

The input has `slots` places for functions and there are more functions than that, so the network gets several outputs:
function t is answered by output t // slots in slot t % slots. theta is kept; W starts anew when functions are learned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kcciol.kernels import EPS
from kcciol.regression import network
from kcciol.regression.functions import REACH, Functions, inputs
from kcciol.regression.network import Network
from kcciol.regression.settings import SineConfig, WidthConfig
from kcciol.together.noise import keyed, uniform
from kcciol.together.step import adam_

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
    shape = Network(net, config.slots + 1)
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
) -> tuple[Network, Tensor]:
    """The network of several outputs, and its parameters (M, length) after training. sparsity: the mean activation
    above which a feature is penalised (0: none is)."""
    outputs = min(OUTPUTS, config.functions // config.slots)
    wide = Network(net, config.slots + 1, outputs)
    Theta = torch.stack([wide.init(seed) for seed in seeds]).to(device)
    keys = torch.tensor(seeds, device=device)
    functions = Functions.drawn(keys, config.functions)
    wanted = torch.tensor(sparsity, device=device)[:, None]
    m, v = torch.zeros_like(Theta), torch.zeros_like(Theta)
    for step in range(steps):
        u = uniform(keyed(keys, _TIME, step), 2 * BATCH)
        function = (u[:, :BATCH] * (outputs * config.slots)).long()
        z = (2 * u[:, BATCH:] - 1) * REACH
        y = functions.at(function, z[..., None])[..., 0]
        x = inputs(config.slots, z, function % config.slots)
        with torch.enable_grad():
            leaf = Theta.detach().requires_grad_()
            features = network.represent(wide.layers(leaf, "theta"), x)
            answers = network.answers(wide.layers(leaf, "W"), features)
            answer = answers.gather(2, (function // config.slots)[..., None])[..., 0]
            loss = (answer - y).square().mean(1) + _penalty(features, wanted)
            (g,) = torch.autograd.grad(loss.sum(), leaf)
        adam_(Theta, g, m, v, rate * DECAY ** sum(step >= milestone for milestone in MILESTONES), step + 1)
    return wide, Theta


def _penalty(features: Tensor, wanted: Tensor) -> Tensor:
    """KL(Exp(b) | Exp(b')) where the mean activation b' of a feature is above b, the mean over features: (M,)."""
    ratio = (features.mean(1) / wanted.clamp_min(EPS)).clamp_min(1)
    return torch.where(wanted > 0, ratio.log() + 1 / ratio - 1, 0.0).mean(1)
