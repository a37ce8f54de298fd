"""What all gradient learners share: parameters, the cross-entropy's gradient at the logits, SGD and Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Learner, Settings
from kcciol.learners.bounds import HIGHEST_RATE, bounded
from kcciol.learners.grid import RATES, WHOLE_RATES, Grid
from kcciol.learners.model import ROWS, Gradient, Head, Parameters
from kcciol.optim import adam_copies_

PARAMETERS, MEAN, SQUARE = "parameters.", "adam.mean.", "adam.square."


@dataclass(frozen=True)
class GradientSettings(Settings):
    """What every gradient learner has."""

    rate: float = bounded(0.01, above=0, high=HIGHEST_RATE)
    """Rate of the optimiser."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """What updates the parameters."""
    reserve: int = bounded(100, low=0)
    """Rows of W that stand ready for classes to come and take part in the softmax; 0 means none."""
    outputs: int = bounded(0, low=0)
    """If above 0: W has so many rows in all, as when the number of classes is known, instead of a constant reserve."""


class GradientLearner(Learner):
    """Parameters of B copies and their updates. W starts from zero."""

    settings_type = GradientSettings
    grid: ClassVar[Grid] = {"rate": RATES, "reserve": (0, 100)}
    whole_grid: ClassVar[Grid] = {"rate": WHOLE_RATES, "reserve": (100,)}
    no_adam: ClassVar[str] = ""  # why it takes no steps of Adam, where that is so

    def _setup(self) -> None:
        super()._setup()
        self.adam = self.choice("optimizer") == "adam"
        if self.adam and self.no_adam:
            raise UserError(f"{self.no_adam}: use optimizer 'sgd'.")
        self.rate = self.column("rate")
        self.minus_one = torch.full((), -1.0, dtype=self.dtype, device=self.device)
        for name, value in self.model.start(self.copies, self.device).items():
            self.state[PARAMETERS + name] = value
        self.add_rows(PARAMETERS + "weight", self.model.width, first=1, dtype=self.dtype)
        self.add_rows(PARAMETERS + "bias", first=1, dtype=self.dtype)
        self._group_names = [name.removeprefix(PARAMETERS) for name in (*self.state, *self.rows)]
        self.single = self.copies == 1 and isinstance(self.model, Head) and not self.adam
        self.rate_of_one = float(self.rate[0])
        if self.adam:
            self.add_group(MEAN)
            self.add_group(SQUARE)

    # --- groups of tensors shaped like the parameters ---------------------------------------------------------------

    def add_group(self, prefix: str) -> None:
        """Zeros of the parameters' shapes, such as Adam's moments; a class that comes takes over their spare row."""
        for name in self._group_names:
            like = self.group(PARAMETERS)[name]
            if name in ROWS:
                self.add_rows(prefix + name, *like.shape[2:], first=1, dtype=like.dtype)
            else:
                self.state[prefix + name] = torch.zeros_like(like)

    def group(self, prefix: str) -> Parameters:
        """The tensors of a group, by the parameters' names; of those with rows, the spare one and the classes'."""
        if prefix not in self._views:
            used = 1 + self.classes
            self._views[prefix] = {
                n: self.rows[prefix + n][:, :used] if n in ROWS else self.state[prefix + n] for n in self._group_names
            }
        return self._views[prefix]

    @property
    def parameters(self) -> Parameters:
        return self.group(PARAMETERS)

    def _forget_views(self) -> None:
        super()._forget_views()
        self._views: dict[str, Parameters] = {}
        self._offset_cache: tuple[Tensor, Tensor] | None = None
        self._one_cache: tuple[Tensor, Tensor, Tensor, float] | None = None

    def _new_classes(self, copies: Tensor, labels: Tensor) -> None:
        for name, tensor in self.rows.items():
            if not self.first[name]:
                continue
            if self.copies == 1:  # the same, quicker
                tensor[0, int(labels[0]) + 1] = tensor[0, 0]
            else:
                tensor[copies, labels + 1] = tensor[copies, 0]

    # --- the loss ---------------------------------------------------------------------------------------------------

    def _offset(self) -> tuple[Tensor, Tensor]:
        """What is added to the logits (B, 1, rows), and how many rows the spare row stands for (B, 1)."""
        if self._offset_cache is None:
            rows = self.parameters["bias"]
            total = self.choice("outputs")
            spare = np.maximum(total - self.seen.sum(1), 0) if total else np.full(self.copies, self.choice("reserve"))
            offset = torch.full_like(rows, -torch.inf)
            count = torch.from_numpy(spare).to(rows)
            offset[:, 0] = count.log()
            offset[:, 1:].masked_fill_(self._seen_mask(), 0)
            self._offset_cache = offset[:, None], count.clamp_min(1)[:, None]
        return self._offset_cache

    def cross_entropy_error(self, logits: Tensor, y: Tensor) -> Tensor:
        """The gradient at the logits (B, m, rows) of the sum over examples of the cross-entropy; y (B, m).

        That at row 0 is the sum over the rows that it stands for.
        """
        error = (logits + self._offset()[0]).softmax(-1)
        return error.scatter_add_(-1, y[..., None] + 1, self.minus_one.expand(*y.shape, 1))

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss itself of each example, (B, m)."""
        return -F.log_softmax(logits + self._offset()[0], -1).gather(-1, y[..., None] + 1)[..., 0]

    # --- one example of one stream ----------------------------------------------------------------------------------
    # The usual case outside of benchmarks, where what a call costs beside its arithmetic counts: the same as below.

    def _views_of_one(self) -> tuple[Tensor, Tensor, Tensor, float]:
        """W (rows, d), the bias and the offset (rows,), and how many rows the spare row stands for."""
        if self._one_cache is None:
            parameters, (offset, count) = self.parameters, self._offset()
            self._one_cache = parameters["weight"][0], parameters["bias"][0], offset[0, 0], float(count)
        return self._one_cache

    def error_of_one(self, z: Tensor, label: int) -> Tensor:
        """The gradient at the logits (rows,) of one example's cross-entropy, z (d,)."""
        weight, bias, offset, count = self._views_of_one()
        error = torch.addmv(bias, weight, z).add_(offset).softmax(0)
        values = error if error.is_cuda else error.numpy()  # whose elements are quicker to reach
        values[label + 1] -= 1
        values[0] /= count
        return error

    def descend_one(self, error: Tensor, z: Tensor) -> None:
        """The step of SGD that goes with it."""
        weight, bias, *_ = self._views_of_one()
        scaled = error * self.rate_of_one
        weight.addr_(scaled, z, alpha=-1)
        bias.sub_(scaled)

    # --- the update -------------------------------------------------------------------------------------------------

    def error_step(self, x: Tensor, y: Tensor, weights: Tensor | float = 1.0) -> None:
        """One step of the optimiser on the weighted cross-entropy of x (B, m, ...), y (B, m); weights (B or 1, m)."""
        logits, tape = self.model.forward(self.parameters, x)
        error = self.cross_entropy_error(logits, y)
        if isinstance(weights, Tensor):
            error *= weights[..., None]
        elif weights != 1:
            error *= weights
        self.descend(self.pull_back(tape, error))

    def pull_back(self, tape: Any, error: Tensor) -> Gradient:
        """The gradient in the parameters, from that at the logits."""
        gradient = self.model.backward(self.parameters, tape, error)
        gradient.divide_spare_(self._offset()[1])
        return gradient

    def descend(self, gradient: Gradient) -> None:
        """One step of the optimiser."""
        if not self.adam:
            gradient.descend_(self.parameters, self.rate)
            return
        t = self.steps + 1
        means, squares, dense = self.group(MEAN), self.group(SQUARE), gradient.dense()
        for name, parameter in self.parameters.items():
            adam_copies_(parameter, dense[name], means[name], squares[name], self.rate, t)

    def _scores(self, x: Tensor) -> Tensor:
        return self.model.logits(self.parameters, x)[..., 1:]
