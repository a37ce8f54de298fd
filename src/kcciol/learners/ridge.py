"""Ridge regression on random features, brought up to date with each example (McDonnell et al. 2023, RanPAC)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Labels, Settings
from kcciol.learners.blocks import Bound, ClassSnapshot, Derived, Form, Known, Rows, linear
from kcciol.learners.bounds import bounded
from kcciol.learners.card import Card
from kcciol.learners.grid import Grid
from kcciol.learners.model import Model
from kcciol.learners.snapshot import Classes
from kcciol.learners.statistics import COUNT, MEAN, ClassMeans, Scatter, ScatterSnapshot, factor_of, solve
from kcciol.random import philox

DRAWN = "bookkeeping.drawn"


@dataclass(frozen=True)
class RidgeSettings(Settings):
    units: int = bounded(2048, low=0)
    """Random features, relu(z R); 0 takes the features as they are."""
    penalty: float = bounded(1e-2, above=0)
    """Ridge penalty, relative to the mean of the Gram matrix's diagonal."""


def factor_with_penalty(gram: Tensor, penalty: Tensor) -> Tensor:
    """L with L L^T = gram + penalty I, (B, width, width); gram is used up."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    diagonal.add_((penalty * diagonal.mean(-1).clamp_min(1e-300))[:, None])
    return factor_of(gram)


@dataclass(frozen=True)
class LeastSquares(Form):
    """score_c(z) = phi(z) . (sum phi phi^T + penalty I)^-1 y_c, where y_c is the sum of the class's examples."""

    gram: Scatter | ScatterSnapshot
    penalty: Tensor
    phi: Callable[[Tensor], Tensor]

    @cached_property
    def factor(self) -> Tensor:
        return factor_with_penalty(self.gram.total(), self.penalty)

    def prepare(self, x: Tensor) -> Tensor:
        return self.phi(x).double()

    def solved(self, rows: Rows) -> Rows:
        return {MEAN: solve(self.factor, rows[MEAN])}

    def plain(self, query: Tensor, rows: Rows) -> Tensor:
        return query @ rows[MEAN].mT

    def derive(self, known: Known) -> tuple[Derived, Bound]:
        return linear(known[MEAN], 0 * known[COUNT])


class RidgeByExample(LeastSquares):
    """An example is solved for, not each class."""

    def prepare(self, x: Tensor) -> Tensor:
        return solve(self.factor, self.phi(x).double()[None])[0]

    def solved(self, rows: Rows) -> Rows:
        return rows


class Solution(ClassSnapshot):
    """Few classes are solved for at the first question, all of them; later ones are answered by a product."""

    _found: tuple[Tensor, tuple[Tensor, ...], Bound] | None = None

    def found(self) -> tuple[Tensor, tuple[Tensor, ...], Bound]:
        """The weights (classes, width), and what the quick form needs of them."""
        if self._found is None:
            weights = self.form.solved(self.rows(range(self.classes)))[MEAN][0]
            small, bound = linear(weights.numpy(), np.zeros(self.classes))
            self._found = weights, tuple(map(torch.from_numpy, small)), bound
        return self._found

    def plain(self, query: Tensor, labels: Classes | range) -> Tensor:
        if isinstance(self.form, RidgeByExample):
            return super().plain(query, labels)
        return self.form.plain(query[None], {MEAN: self.found()[0][None, list(labels)]})[0]

    def quick(self, query: Tensor) -> tuple[Tensor, list[float]]:
        if isinstance(self.form, RidgeByExample):
            return super().quick(query)
        _, small, bound = self.found()
        return self.form.quick(query.float(), *small), bound.errors(query)


class Ridge(ClassMeans):
    """W = (sum phi phi^T + penalty I)^-1 sum phi y^T: the least-squares answer to all examples so far, in any order.

    Both sums are kept; sum phi y^T has one row for each class, the sum of its examples.
    """

    card = Card(
        "least squares on random features",
        "McDonnell et al. 2023 (RanPAC)",
        keeps="a sum for each class and one matrix",
        order_free=True,
        trains=("head",),
        solves=True,
    )
    settings_type = RidgeSettings

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        width = int(settings.units) or math.prod(model.input_shape)
        drawn = int(2 * 4 * settings.units) * math.prod(model.input_shape)
        return super().extra_bytes(model, settings, classes) + drawn + 4 * width * (width + 64)

    grid: ClassVar[Grid] = {"penalty": (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)}

    def _setup(self) -> None:
        self.units: int = self.choice("units")
        super()._setup()
        self.penalty = self.column("penalty").double()
        if self.units:
            random = np.random.Generator(philox([0, self.units]))  # the same for all copies
            draw = random.standard_normal((self.model.width, self.units), dtype=np.float32) / np.sqrt(self.model.width)
            drawn = torch.from_numpy(draw.astype(np.float32))
            self.last_drawn = drawn.flatten()[-8:].clone()  # any other draw before would have moved these
            self.projection = drawn.to(self.device, self.model.input_dtype, copy=True)
        self.scatter = Scatter(self.state, self.copies, self.width, self.device)

    def state_dict(self) -> dict[str, Tensor]:
        return super().state_dict() | ({DRAWN: self.last_drawn.clone()} if self.units else {})

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """R is drawn anew and not saved, so its last numbers tell whether it is the same; older files lack them."""
        saved = state.get(DRAWN)
        if self.units and saved is not None:
            own = self.last_drawn
            if saved.shape != own.shape or not torch.allclose(saved.to(own), own, rtol=1e-4, atol=1e-6):
                raise UserError(
                    "The saved learner has other random features than are drawn here: its random numbers are those of "
                    f"another version of numpy than {np.__version__}, so load it with the version that saved it."
                )
            state = {name: tensor for name, tensor in state.items() if name != DRAWN}
        super().load_state_dict(state)

    @property
    def width(self) -> int:
        return 1 + (self.units or self.model.width)

    def phi(self, z: Tensor) -> Tensor:
        """(..., d) -> (..., width): random features and a one."""
        # how a product is rounded may depend on where its factors lie, so they lie in memory of torch's own
        wide = torch.relu(z.clone(memory_format=torch.contiguous_format) @ self.projection) if self.units else z
        return torch.cat([wide, wide.new_ones(*wide.shape[:-1], 1)], -1)

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        phi = self.phi(x)
        self.add_class(phi, self.labels(y))
        self.scatter.add(self.steps, phi)

    def form(self) -> LeastSquares:
        return LeastSquares(self.scatter, self.penalty, self.phi)

    def lasting_form(self) -> LeastSquares:
        # to solve for a class is 2 width^2 products, and the factor has cost width^3 / 3: for so few, 3/8 of that more
        kind = LeastSquares if self.classes <= self.width // 16 else RidgeByExample
        return kind(self.scatter.snapshot(self.steps), self.penalty, self.phi)

    snapshot_type = Solution
