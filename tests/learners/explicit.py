"""Learners in float64, and their models with every spare row written out: what closed forms are compared with."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.learners.base import Learner
from kcciol.learners.gradient import GradientLearner
from kcciol.learners.model import ROWS, Parameters


def to_double(learner: Learner) -> None:
    """Go on in float64."""
    for tensors in (learner.state, learner.rows, vars(learner)):
        for name, t in tensors.items():
            tensors[name] = t.double() if isinstance(t, Tensor) and t.is_floating_point() else t
    learner.dtype = torch.float64
    learner._forget_views()


class Explicit:
    """One copy of a learner, with a row for each row that its spare row stands for."""

    def __init__(self, learner: GradientLearner, copy: int) -> None:
        self.model, self.spare = learner.model, int(learner._offset()[1][copy])
        self.seen = np.flatnonzero(learner.seen[copy])
        self.parameters = self.unfold({n: p[copy : copy + 1] for n, p in learner.parameters.items()})

    def unfold(self, values: Parameters) -> Parameters:
        """(1, rows, ...) -> (1, spare + seen, ...), where each spare row has what row 0 has."""
        order = torch.tensor([0] * self.spare + [1 + int(c) for c in self.seen])
        return {n: (v[:, order] if n in ROWS else v).clone() for n, v in values.items()}

    def logits(self, p: Parameters, x: Tensor) -> Tensor:
        """(m, ...) -> (m, spare + seen)."""
        return (self.model.features(p, x[None]) @ p["weight"].mT + p["bias"][:, None])[0]

    def losses(self, p: Parameters, x: Tensor, y: Tensor) -> Tensor:
        targets = torch.tensor([self.spare + int(np.searchsorted(self.seen, int(c))) for c in y])
        return F.cross_entropy(self.logits(p, x), targets, reduction="none")

    def leaves(self) -> Parameters:
        return {n: p.clone().requires_grad_() for n, p in self.parameters.items()}
