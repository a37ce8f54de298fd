"""A variational autoencoder of the weights of linear heads, which reads and writes them in chunks.

A chunk is a piece of one class's row, so a head of any number of classes can be read and written: rows x pieces chunks.
The decoder knows a chunk's place from the sum of two learned vectors, one of its class and one of its piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.learners.model import Parameters


@dataclass(frozen=True)
class Shape:
    """Of the autoencoder of rows of `width` numbers."""

    width: int
    chunk: int
    hidden: int
    latent: int
    place: int

    @property
    def pieces(self) -> int:
        return math.ceil(self.width / self.chunk)

    def start(self, generator: torch.Generator) -> Parameters:
        """Random weights, zero biases; all but the vectors of the classes, which come with the classes."""
        sizes = {
            "read": (self.hidden, self.chunk),
            "mean": (self.latent, self.hidden),
            "logvar": (self.latent, self.hidden),
            "expand": (self.hidden, self.place + self.latent),
            "write": (self.chunk, self.hidden),
        }
        weights = {"piece": torch.randn(self.pieces, self.place, generator=generator)}
        for name, (out, into) in sizes.items():
            weights[name + ".weight"] = torch.randn(out, into, generator=generator) / math.sqrt(into)
            weights[name + ".bias"] = torch.zeros(out)
        return weights


def to_chunks(rows: Tensor, size: int) -> Tensor:
    """(..., width) -> (..., pieces, size), the last piece filled up with zeros."""
    return F.pad(rows, (0, -rows.shape[-1] % size)).reshape(*rows.shape[:-1], -1, size)


def from_chunks(chunks: Tensor, width: int) -> Tensor:
    """The inverse of `to_chunks`."""
    return chunks.flatten(-2)[..., :width]


def encode(weights: Parameters, chunks: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and logarithm of the variance, (..., latent) each, of q(z | chunk)."""
    hidden = _linear(weights, "read", chunks).relu()
    return _linear(weights, "mean", hidden), _linear(weights, "logvar", hidden)


def decode(weights: Parameters, z: Tensor, classes: Tensor) -> Tensor:
    """Chunks (..., n, pieces, size) of z (..., n, pieces, latent) and the classes' vectors (n, place)."""
    places = classes[:, None] + weights["piece"]
    hidden = _linear(weights, "expand", torch.cat([places.expand(*z.shape[:-1], -1), z], -1)).tanh()
    return _linear(weights, "write", hidden)


def _linear(weights: Parameters, name: str, x: Tensor) -> Tensor:
    return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])


def divergence(mean: Tensor, logvar: Tensor, prior_mean: Tensor, prior_logvar: Tensor) -> Tensor:
    """KL(q || prior) of normal distributions with independent elements, summed over the last dimension."""
    distance = (mean - prior_mean).square() / prior_logvar.exp()
    return 0.5 * (prior_logvar - logvar + (logvar - prior_logvar).exp() + distance - 1).sum(-1)
