"""Streaming linear discriminant analysis: class means and one covariance for all (Hayes and Kanan 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.learner import Card, Labels, Settings
from kcciol.learners.statistics import MEAN, ClassMeans, Scatter, factor_of


@dataclass(frozen=True)
class SLDASettings(Settings):
    shrinkage: float = 0.1
    """Share of the identity in the covariance, whose mean variance is brought to 1 first; 1 is the nearest mean."""


class SLDA(ClassMeans):
    """score_c(z) = w_c.z - w_c.mu_c / 2 with w_c = ((1 - eps) Sigma + eps I)^-1 mu_c.

    Sigma is the covariance within classes: an example adds n/(n+1) d d^T, where d is its distance to the mean of the n
    examples of its class before it. That is exactly the covariance of all examples around their final means, in any
    order. (The published recursion takes n to be the number of all examples, which is another matrix.)
    """

    card = Card(
        "class means and one covariance for all classes",
        "Hayes and Kanan 2020",
        order_free=True,
        trains=("head",),
        solves=True,
    )
    settings_type = SLDASettings

    def _setup(self) -> None:
        super()._setup()
        self.shrinkage = self.column("shrinkage").double()
        if not bool(((self.shrinkage > 0) & (self.shrinkage <= 1)).all()):
            raise UserError(f"shrinkage is {self.shrinkage.min().item():g}, but must be above 0 and at most 1.")
        self.scatter = Scatter(self.state, self.copies, self.model.width, self.device)

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        """Each example adds n / (n + 1) d d^T, with d its distance from the mean of the n that came before it."""
        z, label, m = x.double(), self.label(y), x.shape[1]
        sums = self.rows[MEAN][self.every, label][:, None]
        n = self.add_class(x, label)[:, None, None]
        if m > 1:
            sums, n = sums + z.cumsum(1) - z, n + torch.arange(m, device=x.device)[:, None]
        self.scatter.add(self.steps, ((z - sums / n.clamp_min(1)) * (n / (n + 1)).sqrt()).to(x.dtype))
        self._restored()

    def _restored(self) -> None:
        self._solved = self._weights = None

    _solved: tuple[Tensor, Tensor, Tensor] | None = None  # L, L^-1 mu and the biases
    _weights: Tensor | None = None

    def _scores(self, x: Tensor) -> Tensor:
        if self._solved is None:
            self._solved = self._factorize()
        factor, half, bias = self._solved
        if x.shape[1] < self.classes:  # then it is less work to bring them to the means than to bring the means to them
            return torch.baddbmm(bias, torch.linalg.solve_triangular(factor, x.double().mT, upper=False).mT, half)
        if self._weights is None:
            self._weights = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        return torch.baddbmm(bias, x.double(), self._weights)

    def _factorize(self) -> tuple[Tensor, Tensor, Tensor]:
        """(1 - eps) Sigma + eps I = L L^T; L, L^-1 mu (B, d, classes) and -w.mu / 2 (B, 1, classes)."""
        sigma = self.scatter.total()
        size = sigma.diagonal(dim1=1, dim2=2).mean(-1)
        eps = self.shrinkage[:, None]
        sigma *= ((1 - eps) / torch.where(size > 0, size, 1)[:, None])[..., None]
        sigma.diagonal(dim1=1, dim2=2).add_(eps)
        factor = factor_of(sigma)
        half = torch.linalg.solve_triangular(factor, self.means().mT, upper=False)
        return factor, half, -half.square().sum(1, keepdim=True) / 2
