"""Adam, once: `adam_` is the definition; its fast forms are beside it, and the tests hold them equal to it.

`update_` is Algorithm 2, lines 11 and 12: the update of Theta, with the l1 term and the clamp folded in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from kcciol.kernels import have_triton

BETAS = BETA1, BETA2 = 0.9, 0.999
EPS = 1e-8
T = TypeVar("T", float, Tensor)


@dataclass
class Adam:
    """Adam's two moments for one vector. A new one for each phase."""

    m: Tensor
    v: Tensor

    @classmethod
    def new(cls, Theta: Tensor) -> Adam:
        return cls(torch.zeros_like(Theta), torch.zeros_like(Theta))


def adam_(
    parameters: Tensor,
    gradient: Tensor,
    m: Tensor,
    v: Tensor,
    step: Tensor | float,
    root: Tensor | float,
    betas: tuple[float, float] = BETAS,
) -> None:
    """One step of Adam, in place.

    Args:
        parameters: what is changed.
        gradient: of the loss, in the parameters; it is left as it is.
        m: the moving mean of the gradient, which is changed too; zero at first.
        v: the moving mean of its square, likewise.
        step: the rate / (1 - beta1^t) at the t-th step, t = 1, 2, ... (see `corrections`). A tensor where copies of the
            parameters have rates of their own.
        root: 1 / sqrt(1 - beta2^t).
        betas: what is kept of m and of v in a step.
    """
    m.lerp_(gradient, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    parameters.sub_(step * m / v.sqrt().mul_(root).add_(EPS))


def corrections(rate: Tensor | float, t: T, betas: tuple[float, float] = BETAS) -> tuple[Tensor | float, T]:
    """`step` and `root` of `adam_` at the t-th step.

    >>> step, root = corrections(0.1, 1)
    >>> f"{step:.4f} {root:.4f}"
    '1.0000 31.6228'
    """
    return rate / (1 - betas[0] ** t), (1 - betas[1] ** t) ** -0.5


# --- Algorithm 2 ------------------------------------------------------------------------------------------------------


def scales(steps: int, beta: float, device: torch.device | str = "cpu") -> Tensor:
    """(steps, 2): `corrections` for each step of a phase.

    A table, so that a step on the GPU looks them up by a counter that lives there.
    """
    t = torch.arange(1, steps + 1, dtype=torch.float64)
    table = torch.stack([beta / (1 - BETA1**t), (1 - BETA2**t).rsqrt()], 1)
    return table.to(torch.float32).to(device)


def with_l1(gradient: Tensor, Theta: Tensor, gamma: Tensor | float, clamp: float) -> Tensor:
    """The gradient with that of gamma |Theta|_1, each element of the sum clamped to +-clamp (0: not)."""
    if isinstance(gamma, Tensor) or gamma:
        gradient = gradient + gamma * Theta.sign()
    return gradient.clamp(-clamp, clamp) if clamp else gradient


def update_(
    Theta: Tensor, gradient: Tensor, adam: Adam, scale: Tensor, gamma: float, clamp: float, shrink: float = 0.0
) -> None:
    """One step in place on `with_l1` of the gradient; scale is a row of `scales`.

    shrink: this share of every parameter is taken away first, rate times weight decay, which Adam's moments do not see.
    """
    if shrink:
        Theta.mul_(1 - shrink)
    if Theta.is_cuda and have_triton():
        from kcciol.kernels import adam_triton

        adam_triton.update_(Theta, gradient, adam.m, adam.v, scale, gamma, clamp, (*BETAS, EPS))
        return
    adam_(Theta, with_l1(gradient, Theta, gamma, clamp), adam.m, adam.v, scale[0], scale[1])


# --- copies -----------------------------------------------------------------------------------------------------------


def adam_copies_(w: Tensor, gradient: Tensor, m: Tensor, v: Tensor, rate: Tensor, t: int) -> None:
    """`adam_` on copies (B, ...) with a rate (B,) each, in one pass over memory on a GPU."""
    if w.is_cuda and w.dtype == torch.float32 and have_triton():
        from kcciol.kernels.adam_triton import step_copies_  # here, because it needs Triton

        step_copies_(w, gradient, m, v, rate, t, (*BETAS, EPS))
        return
    adam_(w, gradient, m, v, *corrections(rate.view(-1, *[1] * (w.ndim - 1)), t))


def adam_by_rate_(
    scaled: Tensor, gradient: Tensor, m: Tensor, v: Tensor, t: int, take_root: Callable[[], object]
) -> None:
    """`adam_` on parameters that are kept in units of their rate, parameters / rate, without new memory.

    take_root puts the square root of v into the gradient's memory, which the caller gives up.
    """
    m.lerp_(gradient, 1 - BETA1)
    v.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    step, eps = scalars_by_rate(t)
    take_root()
    scaled.addcdiv_(m, gradient.add_(eps), value=-step)


def scalars_by_rate(t: int) -> tuple[float, float]:
    """The step for rate 1 and eps, both times sqrt(1 - beta2^t): then the update is step * m / (sqrt(v) + eps), which
    saves a pass over all parameters."""
    root = math.sqrt(1 - BETA2**t)
    return root / (1 - BETA1**t), EPS * root
