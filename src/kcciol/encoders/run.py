"""A trained representation: theta, and the W it was trained with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kcciol.config import Config
from kcciol.data.classset import ClassSet
from kcciol.data.examples import Examples
from kcciol.engine import checkpoint
from kcciol.engine.device import precision, usable_device
from kcciol.errors import UserError, quoted, require_kind
from kcciol.files import enough_memory, path_of
from kcciol.nets.classification import Classification


class Representation:
    """h_theta with its parameters, ready to turn images into features."""

    def __init__(self, config: Config, problem: Classification, Theta: Tensor, base_names: tuple[str, ...]) -> None:
        """base_names: the classes it was trained on."""
        self.config, self.problem, self.Theta, self.base_names = config, problem, Theta, base_names

    @classmethod
    def untrained(
        cls, config: Config, base: ClassSet, device: torch.device | str = "cpu", module: nn.Module | None = None
    ) -> Representation:
        """The random network that training would begin with, or the module given, with the weights that it has."""
        problem = Classification(config.net, base.image_shape, len(base), module)
        return cls(config, problem, problem.init(config.seed).to(device), base.names)

    @property
    def W(self) -> dict[str, Tensor]:
        return self.problem.W(self.Theta)

    @property
    def width(self) -> int:
        """How many features an image has."""
        return self.problem.encoder.features

    @property
    def identity(self) -> str:
        """A hash of theta and of what else decides the features: the same on every device, whatever W is."""
        digest = hashlib.sha256(json.dumps(self.problem.encoder.about).encode())
        for name, tensor in sorted((self.problem.theta(self.Theta) | self.problem.buffers).items()):
            digest.update(json.dumps([name, tensor.shape]).encode() + tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @torch.no_grad()
    def features(self, images: Tensor | NDArray[np.uint8], batch: int = 256) -> Tensor:
        """Images (..., c, h, w), bytes from 0 to 255, -> features (..., d) float32, on the representation's device."""
        if not isinstance(images, (Tensor, np.ndarray)):
            found = f"the file name '{images}'" if isinstance(images, (str, Path)) else f"a {type(images).__name__}"
            raise UserError(
                f"Images must be a tensor or an array of bytes (..., channels, height, width), not {found}: open files "
                "first, and make arrays of pictures."
            )
        if images.dtype not in (torch.uint8, np.uint8):
            raise UserError(f"Images must be bytes from 0 to 255 (uint8), not {images.dtype}: convert them.")
        if np.ma.is_masked(images) or (
            isinstance(images, Tensor) and (images.is_meta or images.layout != torch.strided)
        ):
            raise UserError("Images must be whole: masked and sparse ones, and tensors that hold nothing, are refused.")
        if isinstance(images, np.ndarray):
            flipped = any(step < 0 for step in images.strides)  # which torch does not take, nor what is read-only
            images = torch.from_numpy(images.copy() if flipped or not images.flags.writeable else images)
        shape = tuple(images.shape[-3:])
        if shape != self.problem.encoder.image_shape:
            raise UserError(
                f"The images are {shape} (channels, height, width), but the representation was trained on "
                f"{self.problem.encoder.image_shape}: bring them to that size."
            )
        encoder, theta = self.problem.encoder, self.problem.theta(self.Theta)
        flat = images.reshape(-1, *shape)
        parts = []
        with precision("float32", self.Theta.device):
            for part in torch.split(flat, batch) if len(flat) else ():
                rows = encoder.rows(part.to(self.Theta.device))
                parts.append(encoder.apply(theta, rows, self.Theta.dtype))
        found = torch.cat(parts) if parts else self.Theta.new_zeros(0, encoder.features)
        return found.view(*images.shape[:-3], encoder.features)

    def refuse_known(self, classes: ClassSet, split: str) -> None:
        """Classes that it was trained on are not novel."""
        seen = set(classes.names) & set(self.base_names)
        if seen:
            raise UserError(
                f"The class {min(seen)!r} and {len(seen) - 1} others were trained on, so they are not {split} classes: "
                "the data have changed since training; bring them back to what they were, or train again."
            )

    def split_features(self, data: ClassSet, train_samples: int, test_samples: int, every: bool = False) -> Examples:
        """Features of the first images of each class, to learn from, and of the next ones, held out; every: of all
        the others that each class has."""
        require_kind(data, ClassSet, "data", "data.novel")
        for count in (train_samples, test_samples):
            if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
                raise UserError(f"There must be 1 or more images to learn from and to hold out, not {quoted(count)}.")
        data.require(train_samples + test_samples, "evaluation (evaluation.train_samples + evaluation.test_samples)")
        count = int(data.counts.min()) if every and len(data) else train_samples + test_samples
        features = self.features(data.images[:, :count])
        return Examples(features[:, :train_samples], features[:, train_samples:])


def load(path: Path | str, device: torch.device | str = "cpu", module: nn.Module | None = None) -> Representation:
    """A representation from a file that training has written.

    module: the network that training was given as an object, where no name in the file says what it is.
    """
    path, device = path_of(path), usable_device(device)
    saved = checkpoint.load(path)
    problem = Classification(saved.config.net, saved.image_shape, len(saved.base_names), module)
    with enough_memory(path, checkpoint.FORMAT.kind):
        Theta = saved.vector(problem.layout, path, problem.buffers).to(device)
    return Representation(saved.config, problem, Theta, saved.base_names)
