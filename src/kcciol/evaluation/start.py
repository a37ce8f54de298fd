"""W before the first example (Algorithm 4, line 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.errors import UserError
from kcciol.evaluation.stream import Purpose, generator
from kcciol.learners.head import columns


@dataclass(frozen=True)
class Start:
    """Makes the layers of W, from the features up: one matrix for a linear W, two for a W with a hidden layer.

    A matrix is (rows, columns(inputs)), the bias being the column after the inputs' (see `head.with_bias`).
    """

    W: Mapping[str, Tensor]
    config: EvaluationConfig
    classes: int
    purpose: Purpose
    width: int  # of the features

    @property
    def outputs(self) -> int:
        return self.config.outputs or self.classes

    @property
    def hidden(self) -> int:
        """Width of the hidden layer; 0 when W is linear."""
        return len(self.W["hidden.weight"]) if "hidden.weight" in self.W else 0

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(rows, columns) of each layer."""
        if self.hidden:
            return [(self.hidden, columns(self.width)), (self.outputs, columns(self.hidden))]
        return [(self.outputs, columns(self.width))]

    @property
    def from_zero(self) -> bool:
        """Whether W is one matrix of zeros."""
        return self.config.start == "zero" and not self.hidden

    def check(self) -> None:
        """Refuse what cannot be: too few rows for the classes, or features that W was not made for."""
        if self.outputs < self.classes:
            raise UserError(
                f"evaluation.outputs is {self.outputs}, but a trajectory has {self.classes} classes: "
                "set outputs to 0 or to at least the number of classes."
            )
        rows = len(self.W["weight"])
        if self.config.start == "meta" and rows < self.outputs:
            raise UserError(
                f"evaluation.start is 'meta', but the meta-learned W has {rows} rows and {self.outputs} are needed: "
                "choose start = 'zero' or 'kaiming', or fewer classes."
            )
        takes = self.W["hidden.weight" if self.hidden else "weight"].shape[1]
        if takes != self.width:
            raise UserError(f"W takes {takes} features, but there are {self.width}: both must come from one model.")

    def layers(self, trajectories: Tensor, like: Tensor) -> list[Tensor]:
        """The layers (B, rows, columns) of B copies, given each copy's trajectory number (B,); fresh memory.

        Copies of one trajectory begin alike whatever their rate, and alike on every device.
        """
        numbers, rows = torch.unique(trajectories, return_inverse=True)
        drawn = [[self._layer(depth, int(r), like) for r in numbers] for depth in range(len(self.shapes))]
        return [torch.stack(matrices)[rows.to(like.device)] for matrices in drawn]

    def _layer(self, depth: int, trajectory: int, like: Tensor) -> Tensor:
        """One matrix (rows, columns) of one trajectory."""
        last = depth == len(self.shapes) - 1
        anew = last or self.config.reinit == "all"
        matrix = like.new_zeros(self.shapes[depth])
        if self.config.start == "meta" or not anew:
            prefix = "" if last else "hidden."
            weight, bias = self.W[prefix + "weight"], self.W[prefix + "bias"]
            matrix[:, : weight.shape[1]] = weight[: len(matrix)].to(like)
            matrix[:, weight.shape[1]] = bias[: len(matrix)].to(like)
        elif self.config.start == "kaiming" or not last:
            # A hidden layer of zeros would never learn, so start = zero draws it and zeroes the last layer only.
            inputs = self.hidden if last and self.hidden else self.width
            random = generator(self.config.seed, self.purpose, self.classes, 1 + depth, trajectory)
            draw = random.standard_normal((len(matrix), inputs), dtype=np.float32) * np.float32(math.sqrt(2 / inputs))
            matrix[:, :inputs] = torch.from_numpy(draw).to(like)
        return matrix
