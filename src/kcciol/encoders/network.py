"""A preprocessing, a network and what is done to its output, in one object: any `torch.nn.Module` as an encoder.

encoder = NetworkEncoder(network, Photo(size=224, mean=(124, 116, 104), scale=(58, 57, 57)))
encoder.features("cat.jpg")                  # (width,)
encoder.features(["cat.jpg", "dog.jpg"])     # (2, width)
encoder.remarks("cat.jpg")                   # what is odd about it, such as that it is empty
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kcciol.encoders.output import PLAIN, Output, digest
from kcciol.encoders.pictures import Pixels, picture_of, several_of
from kcciol.encoders.preprocessing import Preprocessing
from kcciol.engine.device import precision, usable_device
from kcciol.errors import UserError, lacks_memory, quoted

BATCH = 64  # images at once
CACHED = 2**18  # numbers of images at once, on a CPU: of more, the maps of a network fall out of its cache


class PictureEncoder(ABC):
    """An encoder that takes pictures of any kind and size; whatever computes its network. Threads may share it."""

    preprocessing: Preprocessing
    output: Output
    device: torch.device
    width: int
    """How many features an image has."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """A hash of all that decides the features."""

    @abstractmethod
    def _run(self, inputs: Tensor) -> object:
        """The network on what the preprocessing has made."""

    @property
    def _name(self) -> str:
        """What the network is called in a sentence."""
        return f"The network of {type(self).__name__}"

    def features(self, images: object, batch: int | None = None) -> Tensor:
        """One picture -> (width,), several -> (n, width), float32 of unit length.

        images: see `kcciol.encoders.pictures`; an array (..., channels, h, w) gives (..., width).
        batch: how many go through the network at once; left out, what is quick here.
        """
        batch = self._at_once if batch is None else batch
        if isinstance(batch, bool) or not isinstance(batch, (int, np.integer)) or batch < 1:
            raise UserError(f"batch is {quoted(batch)}, but must be a whole number of at least 1.")
        several = several_of(images)
        parts = [self._features(several.read(i, int(batch))) for i in range(0, len(several.sources), int(batch))]
        found = torch.cat(parts) if parts else torch.empty(0, self.width, device=self.device)
        return found.reshape(*several.shape, self.width)

    def remarks(self, image: object) -> tuple[str, ...]:
        """What is odd about one picture, so that its features may be worth little; nothing, if all is well."""
        return self.preprocessing.remarks(picture_of(image))

    def _features(self, pictures: Sequence[Pixels]) -> Tensor:
        return self._finished(self._outputs(self.preprocessing(pictures)))

    def _finished(self, outputs: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.output(outputs)

    def _outputs(self, inputs: Tensor) -> Tensor:
        """What the network gives, when it is a row of numbers for each picture."""
        try:
            with torch.inference_mode(), precision("float32", self.device):
                found = self._run(inputs.to(self.device))
        except Exception as error:  # whatever somebody's network raises
            if isinstance(error, UserError) or lacks_memory(error):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f"{self._name} cannot take images {tuple(inputs.shape[1:])} ({type(error).__name__}: {reason}): give "
                "the preprocessing that it was trained with."
            ) from error
        if not isinstance(found, Tensor):
            raise UserError(
                f"{self._name} gives a {type(found).__name__}, but features must be one tensor (images, features): "
                "wrap it in a module that gives that."
            )
        if found.ndim != 2 or len(found) != len(inputs) or not found.is_floating_point():
            raise UserError(
                f"{self._name} gives {tuple(found.shape)} of {found.dtype} for {len(inputs)} images, but features must "
                "be a row of numbers for each image: put a pooling, and a Flatten, at its end."
            )
        if not bool(found.isfinite().all()):
            raise UserError(
                f"{self._name} gives NaN or infinite numbers for an image, so there are no features: look at its "
                "weights, and at the scale of its inputs."
            )
        if (known := self.__dict__.get("_raw", found.shape[1])) != found.shape[1]:
            raise UserError(f"{self._name} gives {found.shape[1]} numbers for an image, and gave {known} before.")
        return found

    def _measure(self) -> None:
        """Find out, on a drawn picture, how many numbers there are for an image."""
        inputs = self.preprocessing([example()])
        self._raw = self._outputs(inputs).shape[1]
        self.width = self.output.width(self._raw)
        if self.device.type == "cpu":
            self._at_once = min(BATCH, max(1, CACHED // inputs.numel()))

    _raw: int
    _at_once = BATCH


class NetworkEncoder(PictureEncoder):
    """A network of torch, in evaluation mode. It has a copy of its own, which no training elsewhere changes."""

    def __init__(
        self,
        network: nn.Module,
        preprocessing: Preprocessing,
        output: Output = PLAIN,
        device: torch.device | str = "cpu",
    ) -> None:
        """network: takes (n, channels, h, w) and gives (n, d), each row of one image alone.
        preprocessing: makes the one of pictures, as in the network's training.
        output: what is done to the other; without one, features are only made of unit length.
        """
        self.preprocessing, self.device = preprocessing, usable_device(device)
        self.output = output.to(self.device)
        try:
            self.network = copy.deepcopy(network).to(self.device).eval().requires_grad_(False)
        except Exception as error:
            if lacks_memory(error):
                raise
            raise UserError(
                f"The network {type(network).__name__} cannot be used ({type(error).__name__}: {error}): give a "
                "torch.nn.Module that can be copied."
            ) from error
        try:
            self._lay_out(torch.channels_last)
            self._measure()
        except UserError:  # a view of a map, say, which must lie as torch has it otherwise
            self._lay_out(torch.contiguous_format)
            self._measure()

    def _lay_out(self, layout: torch.memory_format) -> None:
        """Images and weights; with the channels last a CPU takes half as long."""
        self._layout = layout
        lay_out(self.network, layout)

    @property
    def _name(self) -> str:
        return f"The network {type(self.network).__name__}"

    def _run(self, inputs: Tensor) -> object:
        return self.network(inputs.contiguous(memory_format=self._layout))

    @property
    def identity(self) -> str:
        """A hash of the weights with their names, of the preprocessing's settings and of the output: the same on every
        device. What a network does with its weights is not in it."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        about: list[Any] = [self.preprocessing.settings, self.output.identity]
        return digest(dict(self.network.state_dict()), about)


def lay_out(network: nn.Module, layout: torch.memory_format) -> nn.Module:
    """Bring the weights to lie so in memory."""
    return network.to(memory_format=layout)  # type: ignore[call-overload, no-any-return]


def example() -> Pixels:
    """A dark square on white paper, which every preprocessing can take."""
    found = np.full((64, 64), 255, np.uint8)
    found[16:48, 24:40] = 30
    return found
