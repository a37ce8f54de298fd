"""Algorithm 2, lines 11 and 12: the update of Theta, by Adam, with the l1 term and the clamp folded in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.kernels import BETA1, BETA2, EPS, have_triton


@dataclass
class Adam:
    """Adam's two moments for one vector. A new one for each phase."""

    m: Tensor
    v: Tensor

    @classmethod
    def new(cls, Theta: Tensor) -> Adam:
        return cls(torch.zeros_like(Theta), torch.zeros_like(Theta))


def scales(steps: int, beta: float, device: torch.device | str = "cpu") -> Tensor:
    """(steps, 2): for each step beta / (1 - beta1^t) and 1 / sqrt(1 - beta2^t), t = 1, 2, ...

    A table, so that a step on the GPU looks its bias correction up by a counter that lives there.
    """
    t = torch.arange(1, steps + 1, dtype=torch.float64)
    table = torch.stack([beta / (1 - BETA1**t), (1 - BETA2**t).rsqrt()], 1)
    return table.to(torch.float32).to(device)


def update_(Theta: Tensor, gradient: Tensor, adam: Adam, scale: Tensor, gamma: float, clamp: float) -> None:
    """One step in place: add the gradient of gamma |Theta|_1, clamp the sum to +-clamp (0: not), apply Adam."""
    if Theta.is_cuda and have_triton():
        from kcciol.kernels import adam_triton

        adam_triton.update_(Theta, gradient, adam.m, adam.v, scale, gamma, clamp, (BETA1, BETA2, EPS))
        return
    if gamma:
        gradient = gradient + gamma * Theta.sign()
    if clamp:
        gradient = gradient.clamp(-clamp, clamp)
    adam.m.lerp_(gradient, 1 - BETA1)
    adam.v.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    Theta.sub_(scale[0] * adam.m / (adam.v.sqrt().mul_(scale[1]).add_(EPS)))
