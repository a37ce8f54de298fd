"""Ridge regression on random features, brought up to date with each example (McDonnell et al. 2023, RanPAC)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.learner import Card, Labels, Settings
from kcciol.learners.statistics import MEAN, ClassMeans, Scatter, factor_of


@dataclass(frozen=True)
class RidgeSettings(Settings):
    units: int = 2048
    """Random features, relu(z R); 0 takes the features as they are."""
    penalty: float = 1e-2
    """Ridge penalty, relative to the mean of the Gram matrix's diagonal."""


class Ridge(ClassMeans):
    """W = (sum phi phi^T + penalty I)^-1 sum phi y^T: the least-squares answer to all examples so far, in any order.

    Both sums are kept; sum phi y^T has one row for each class, the sum of its examples.
    """

    card = Card(
        "least squares on random features",
        "McDonnell et al. 2023 (RanPAC)",
        order_free=True,
        trains=("head",),
        solves=True,
    )
    settings_type = RidgeSettings

    def _setup(self) -> None:
        self.units: int = self.choice("units")
        super()._setup()
        self.penalty = self.column("penalty").double()
        if self.units < 0 or not bool((self.penalty > 0).all()):
            raise UserError("units must be 0 or more, and penalty above 0.")
        if self.units:
            random = np.random.Generator(np.random.Philox(key=[0, self.units]))  # the same for all copies
            draw = random.standard_normal((self.model.width, self.units), dtype=np.float32) / np.sqrt(self.model.width)
            self.projection = torch.from_numpy(draw.astype(np.float32)).to(self.device, self.model.input_dtype)
        self.scatter = Scatter(self.state, self.copies, self.width, self.device)

    @property
    def width(self) -> int:
        return 1 + (self.units or self.model.width)

    def phi(self, z: Tensor) -> Tensor:
        """(..., d) -> (..., width): random features and a one."""
        wide = torch.relu(z @ self.projection) if self.units else z
        return torch.cat([wide, wide.new_ones(*wide.shape[:-1], 1)], -1)

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        phi = self.phi(x)
        self.add_class(phi, self.label(y))
        self.scatter.add(self.steps, phi)
        self._weights = None

    def _restored(self) -> None:
        self._weights = None

    _weights: Tensor | None = None

    def _scores(self, x: Tensor) -> Tensor:
        if self._weights is None:
            gram = self.scatter.total()
            diagonal = gram.diagonal(dim1=1, dim2=2)
            diagonal.add_((self.penalty * diagonal.mean(-1).clamp_min(1e-300))[:, None])
            self._weights = torch.cholesky_solve(self.rows[MEAN][:, : self.classes].mT, factor_of(gram))
        return self.phi(x).double() @ self._weights
