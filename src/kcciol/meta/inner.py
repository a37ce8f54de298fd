"""The inner loop and its loss (Algorithm 2, lines 5 to 9) on features, and its derivatives: the definition.

theta does not change inside the inner loop, so it sees only features: z (t k + t s, d), those of tau_tr of all t
trajectories, then those of tau_val. It is a function m(W, z) -> l_meta, and the meta-step needs of it

    gradient   dm/dW and u = dm/dz
    hvp        how both move along (W', z')

`Plain` takes them by automatic differentiation of the loop as it is printed. `lowrank` has the fast implementation,
which the tests hold equal to this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import GradientOrder
from kcciol.nets.classification import Classifier

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class TrajectoryLabels:
    """Labels of t trajectories."""

    train: Tensor  # (t, k)
    val: Tensor  # (t, s)

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """z of tau_tr (t, k, d) and of tau_val (t, s, d)."""
        n = self.train.numel()
        return z[:n].view(*self.train.shape, -1), z[n:].view(*self.val.shape, -1)


class Inner(ABC):
    """One evaluation of m. `hvp` may be called after `gradient`, for the same point."""

    def __init__(self, head: Classifier, alpha: float, order: GradientOrder) -> None:
        self.head, self.alpha, self.order = head, alpha, order

    @abstractmethod
    def loss(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> Tensor:
        """l_meta, for autograd to go through, twice where need be."""

    @abstractmethod
    def gradient(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """l_meta, its gradient in W, and its gradient u in z. In first order u is zero on tau_tr."""

    @abstractmethod
    def hvp(self, v: Weights, zdot: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The derivatives of `gradient`'s last two results along (v, zdot)."""


def adapt(head: Classifier, W: Weights, z: Tensor, y: Tensor, alpha: float, order: GradientOrder) -> Weights:
    """W_k after one SGD step on each example of one trajectory in turn; z (k, d), y (k,)."""
    for j in range(len(z)):  # Algorithm 2, line 6
        loss = F.cross_entropy(head.logits(W, z[j : j + 1]), y[j : j + 1])  # line 7
        steps = torch.autograd.grad(loss, list(W.values()), create_graph=order == "exact", retain_graph=True)
        W = {name: w - alpha * step for (name, w), step in zip(W.items(), steps, strict=True)}  # line 8
    return W


class Autograd(Inner):
    """Derivatives by automatic differentiation of `loss`."""

    def gradient(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        with torch.enable_grad():
            self._names = list(W)
            self._leaves = [t.detach().requires_grad_() for t in (*W.values(), z)]
            loss = self.loss(dict(zip(self._names, self._leaves, strict=False)), self._leaves[-1], y)
            self._gradient = torch.autograd.grad(loss, self._leaves, create_graph=True)
        *gW, u = (g.detach() for g in self._gradient)
        return loss.detach(), dict(zip(self._names, gW, strict=True)), u

    def hvp(self, v: Weights, zdot: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        along = [v[name] for name in self._names] + [zdot]
        *gWdot, udot = torch.autograd.grad(self._gradient, self._leaves, along)
        return dict(zip(self._names, gWdot, strict=True)), udot


class Plain(Autograd):
    """Algorithm 2 as printed; any head."""

    def loss(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> Tensor:
        losses = []
        z_trs, z_vals = y.split(z)
        for z_tr, y_tr, z_val, y_val in zip(z_trs, y.train, z_vals, y.val, strict=True):
            W_k = adapt(self.head, W, z_tr, y_tr, self.alpha, self.order)
            losses.append(F.cross_entropy(self.head.logits(W_k, z_val), y_val))  # line 9
        return torch.stack(losses).mean()
