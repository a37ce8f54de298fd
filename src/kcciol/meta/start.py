"""W before the first step. Algorithm 1 draws it along with theta; with a theta that is trained already, by whatever
recipe, a W that fits it is at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from kcciol.data.classset import ClassSet
from kcciol.errors import UserError, quoted
from kcciol.nets.classification import Classification

FirstW = Literal["draw", "zero", "means"]
_IMAGES = 256  # at once


def first_W_(how: str, problem: Classification, Theta: Tensor, base: ClassSet) -> None:
    """Set W in Theta: leave it as drawn ("draw"), to zero, or to the class means of the base classes ("means")."""
    if how not in STARTS:
        raise UserError(f"W is {quoted(how)}, but must be one of: {', '.join(STARTS)}.")
    STARTS[how](problem, Theta, base)


def _as_drawn(problem: Classification, Theta: Tensor, base: ClassSet) -> None:
    pass


def _zero(problem: Classification, Theta: Tensor, base: ClassSet) -> None:
    Theta[problem.theta_length :] = 0


@torch.no_grad()
def _means(problem: Classification, Theta: Tensor, base: ClassSet) -> None:
    """w_c = m_c, b_c = -|m_c|^2 / 2 with m_c the mean of the features of class c: the largest logit is that of the
    nearest mean. Rows without a class are zero."""
    if problem.head.hidden:
        raise UserError("W = 'means' is for a linear W: set net.hidden to 0, or start from another W.")
    theta, W = problem.theta(Theta), problem.W(Theta)
    _zero(problem, Theta, base)
    for label, (images, count) in enumerate(zip(base.images, base.counts.tolist(), strict=True)):
        parts = torch.split(problem.encoder.rows(images[:count]).to(Theta.device), _IMAGES)
        mean = torch.cat([problem.encoder.apply(theta, rows, Theta.dtype) for rows in parts]).mean(0)
        W["weight"][label], W["bias"][label] = mean, -mean @ mean / 2


STARTS: dict[str, Callable[[Classification, Tensor, ClassSet], None]] = {
    "draw": _as_drawn,
    "zero": _zero,
    "means": _means,
}
