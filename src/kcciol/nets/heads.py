"""g_W: the classifier on the features; linear, or with one hidden layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor


class Classifier:
    """The shape of g_W. Holds no parameters: W is an argument."""

    def __init__(self, features: int, outputs: int, hidden: int = 0) -> None:
        self.features, self.outputs, self.hidden = features, outputs, hidden

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """W's tensors; `weight` and `bias` are the last layer, whose rows belong to the classes."""
        last = {"weight": (self.outputs, self.hidden or self.features), "bias": (self.outputs,)}
        if not self.hidden:
            return last
        return {"hidden.weight": (self.hidden, self.features), "hidden.bias": (self.hidden,), **last}

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Kaiming-normal weights, zero biases."""
        W = {}
        for name, shape in self.shapes.items():
            scale = math.sqrt(2 / shape[1]) if len(shape) > 1 else 0.0
            W[name] = torch.randn(shape, generator=generator) * scale
        return W

    def logits(self, W: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """(..., features) -> (..., outputs)."""
        if self.hidden:
            z = F.relu(F.linear(z, W["hidden.weight"], W["hidden.bias"]))
        return F.linear(z, W["weight"], W["bias"])
