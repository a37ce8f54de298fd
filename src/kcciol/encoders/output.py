"""What is done to a network's output: it is made narrow where classes scatter, and then of unit length.

Images of one class differ more in some directions than in others. `Output.fit` measures that on base classes, once:
with C the covariance within them, and s the shrinkage,

    S = (1 - s) C + s trace(C)/d I,    features = (z - mean) S^(-1/2), divided by its length

so that a mean of few examples is a good guess of its class. Nothing of it is learned from a stream.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError, quoted

MEAN, MATRIX = "output.mean", "output.matrix"


@dataclass(frozen=True, eq=False)
class Output:
    """Outputs (n, d) -> features (n, k) of unit length: the sign and a power of each number, less a mean, times a
    matrix. By itself it only makes them of unit length."""

    mean: Tensor | None = None
    """(d,)"""
    matrix: Tensor | None = None
    """(d, k)"""
    power: float = 1.0
    unit_length: bool = True
    """Without it what the network gives may be seen as it is: what `fit` takes."""

    def __post_init__(self) -> None:
        if not 0 < self.power <= 1:
            raise UserError(f"The power of an output is {quoted(self.power)}, but must be above 0 and at most 1.")
        for name, tensor, axes in (("mean", self.mean, 1), ("matrix", self.matrix, 2)):
            if tensor is not None and (tensor.ndim != axes or not tensor.numel() or not bool(tensor.isfinite().all())):
                raise UserError(f"The {name} of an output must be finite numbers in {axes} axes.")
            object.__setattr__(self, name, None if tensor is None else tensor.detach().float().contiguous())
        if self.mean is not None and self.matrix is not None and len(self.mean) != len(self.matrix):
            raise UserError(
                f"The mean of an output has {len(self.mean)} numbers, but its matrix takes {len(self.matrix)}."
            )

    @classmethod
    def fit(cls, features: Tensor, shrinkage: float, counts: Tensor | None = None, power: float = 1.0) -> Output:
        """From what the network gives for images of base classes.

        features: (classes, samples, d).
        shrinkage: how much of the covariance is replaced by one that is the same in all directions, 0 to 1.
        counts: how many of each class's samples are real; all of them by default.
        power: see the class.
        """
        mask = _real(features, counts)
        if not 0 <= shrinkage <= 1:
            raise UserError(f"shrinkage is {quoted(shrinkage)}, but must be between 0 and 1.")
        z = powered(features.double(), power) * mask[:, :, None]
        count = mask.sum()
        mean = z.sum((0, 1)) / count
        centred = (z - (z.sum(1) / mask.sum(1)[:, None])[:, None]) * mask[:, :, None]
        rows = centred.flatten(0, 1)
        covariance = rows.mT @ rows / (count - len(z)).clip(1)
        return cls(mean, root_of_inverse(shrunk(covariance, shrinkage)), power)

    def narrowed(self, rows: Tensor, width: int) -> Output:
        """The same with so many features: the directions in which those of rows (n, d) of a network's outputs spread
        most."""
        if self.matrix is None or not 0 < width <= self.matrix.shape[1]:
            raise UserError(f"An output cannot be narrowed to {width} features: it has no matrix that is as wide.")
        spread = self._linear(rows).double()
        directions = torch.linalg.eigh(spread.mT @ spread)[1][:, -width:]
        return replace(self, matrix=self.matrix.double() @ directions)

    def __call__(self, z: Tensor) -> Tensor:
        z = self._linear(z)
        return F.normalize(z, dim=-1) if self.unit_length else z

    def _linear(self, z: Tensor) -> Tensor:
        z = powered(z.float(), self.power)
        if self.mean is not None:
            z = z - self.mean
        return z if self.matrix is None else z @ self.matrix

    def width(self, inputs: int) -> int:
        """How many features it makes of so many numbers; another number than it takes is refused."""
        taken = next((len(t) for t in (self.mean, self.matrix) if t is not None), inputs)
        if taken != inputs:
            raise UserError(f"The network gives {inputs} numbers for an image, but its output is made for {taken}.")
        return inputs if self.matrix is None else self.matrix.shape[1]

    def to(self, device: torch.device | str) -> Output:
        """The same on a device."""
        return self.of({name: tensor.to(device) for name, tensor in self.tensors.items()}, self.settings)

    def halved(self) -> Output:
        """The same in numbers that half precision has, as a file keeps them."""
        return self.of({name: tensor.half() for name, tensor in self.tensors.items()}, self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """What is no tensor of it."""
        return {"power": self.power, "unit_length": self.unit_length}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What a file keeps of it; `of` takes it back."""
        return {name: t for name, t in ((MEAN, self.mean), (MATRIX, self.matrix)) if t is not None}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], settings: Any) -> Output:
        """What a file has kept."""
        known = isinstance(settings, dict) and settings.keys() == PLAIN.settings.keys()
        power, unit_length = (settings["power"], settings["unit_length"]) if known else (0.0, None)
        if not isinstance(power, (int, float)) or not isinstance(unit_length, bool):
            raise UserError(f"The settings of an output are {quoted(settings)}, which are none of ours.")
        return cls(tensors.get(MEAN), tensors.get(MATRIX), float(power), unit_length)

    @property
    def identity(self) -> str:
        """A hash of all of it."""
        return digest(self.tensors, self.settings)


PLAIN, RAW = Output(), Output(unit_length=False)


def powered(z: Tensor, power: float) -> Tensor:
    """The power of what each number is in size, with its sign."""
    return z if power == 1 else z.sign() * z.abs().pow(power)


def shrunk(covariance: Tensor, shrinkage: float) -> Tensor:
    """(d, d), nearer to one that is the same in all directions."""
    mean = covariance.diagonal().mean()
    return (1 - shrinkage) * covariance + shrinkage * mean * torch.eye(len(covariance), dtype=covariance.dtype)


def root_of_inverse(matrix: Tensor) -> Tensor:
    """S^(-1/2) of a symmetric matrix (d, d)."""
    values, vectors = torch.linalg.eigh(matrix)
    if not values[0] > 1e-12 * values[-1]:
        raise UserError(
            "The covariance within base classes is singular, so nothing can be whitened with it: give a larger "
            "shrinkage, or more images."
        )
    found: Tensor = (vectors * values.rsqrt()) @ vectors.mT
    return found


def digest(tensors: dict[str, Tensor], settings: Any) -> str:
    """A hash of tensors with their names, types and shapes, and of settings: the same on every machine."""
    found = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if tensor.numel():
            found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _real(features: Tensor, counts: Tensor | None) -> Tensor:
    """(classes, samples), 1 where a sample is real, else 0."""
    if features.ndim != 3 or not features.numel():
        raise UserError(
            f"An output is fitted to features (classes, samples, d), not to {tuple(features.shape)}: give several "
            "images of each base class."
        )
    samples = features.shape[1]
    counts = torch.full((len(features),), samples) if counts is None else counts
    if counts.shape != (len(features),) or not bool(((counts >= 1) & (counts <= samples)).all()):
        raise UserError(f"counts must say for each of the {len(features)} classes how many of its {samples} are real.")
    if not bool((counts > 1).any()):
        raise UserError("An output is fitted to how the images of one class differ: give several of each.")
    if not bool(features.isfinite().all()):
        raise UserError("An output cannot be fitted to features that are NaN or infinite.")
    return (torch.arange(samples) < counts[:, None]).double()
