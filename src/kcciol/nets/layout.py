"""All parameters Theta = {theta, W} in one vector, with a named view for each tensor.

One vector makes the rest of Algorithm 2 plain: Adam, the l1 term, the mask and a checkpoint each touch one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_ALIGN = 64  # elements: each tensor starts on a 128-byte line in bfloat16 too, as fast kernels want it


@dataclass(frozen=True)
class Layout:
    """Names and shapes, in order. Between tensors there may be padding, which is zero and stays zero."""

    shapes: Mapping[str, tuple[int, ...]]

    @cached_property
    def offsets(self) -> dict[str, int]:
        offsets, end = {}, 0
        for name, shape in self.shapes.items():
            offsets[name] = end
            end += math.ceil(math.prod(shape) / _ALIGN) * _ALIGN
        return offsets

    @cached_property
    def length(self) -> int:
        """Length of the vector, padding included."""
        name = list(self.shapes)[-1]
        return self.offsets[name] + math.ceil(math.prod(self.shapes[name]) / _ALIGN) * _ALIGN

    def views(self, vector: Tensor, prefix: str = "") -> dict[str, Tensor]:
        """The tensors whose name begins with prefix, as views of the vector, named without the prefix.

        A convolution's weight (out, in, 3, 3) lies in memory as (out, 3, 3, in), the order fast kernels read it in.
        """
        views = {}
        for name, shape in self.shapes.items():
            if name.startswith(prefix):
                flat = vector[self.offsets[name] : self.offsets[name] + math.prod(shape)]
                if len(shape) == 4:
                    out, inputs, height, width = shape
                    view = flat.view(out, height, width, inputs).permute(0, 3, 1, 2)
                else:
                    view = flat.view(shape)
                views[name.removeprefix(prefix)] = view
        return views

    def pack(self, tensors: Mapping[str, Tensor], like: Tensor | None = None) -> Tensor:
        """A vector that holds these tensors, of float32 on the CPU unless it is to be like another."""
        vector = torch.zeros(self.length) if like is None else torch.zeros_like(like)
        for name, view in self.views(vector).items():
            view.copy_(tensors[name])
        return vector
