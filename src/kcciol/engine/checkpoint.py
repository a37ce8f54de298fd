"""A state of training as one file (see `kcciol.files`).

Two kinds have the same form. `checkpoint.safetensors` can be resumed in the middle of a phase: it holds Adam's moments
and the mask. `phase1.safetensors` and so on are Theta at the end of a phase: representations, to evaluate and to share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kcciol.config import Config
from kcciol.errors import UserError, quoted
from kcciol.files.tensors import Format, Header, add_nothing, read_tensors, write_tensors
from kcciol.nets.layout import Layout
from kcciol.serialization import from_dict, to_dict

LARGEST_SIDE, MOST_CHANNELS = 2**12, 2**10  # of images


class Unusable(UserError):
    """What was saved of a training is missing or damaged."""


def _early(header: Header) -> int | None:
    found = header.pop("format", None)
    return found if type(found) is int else None


FORMAT = Format("checkpoint", (add_nothing, add_nothing), Unusable, _early, sums_since=2)


@dataclass
class Checkpoint:
    """Where a run stands: phase 1 to 3, the steps done in it, and the tensors."""

    config: Config
    image_shape: tuple[int, int, int]
    base_names: tuple[str, ...]  # the classes it was trained on
    phase: int
    step: int
    tensors: dict[str, Tensor]  # theta.*, W.*, buffer.*; while a phase runs also adam.m, adam.v and perhaps mask

    def save(self, path: Path) -> None:
        header = {
            "config": to_dict(self.config),
            "image_shape": self.image_shape,
            "base_names": self.base_names,
            "phase": self.phase,
            "step": self.step,
        }
        write_tensors(path, FORMAT, header, self.tensors)

    def vector(self, layout: Layout, path: Path, buffers: Mapping[str, Tensor] | None = None) -> Tensor:
        """Theta as one vector, when the file's tensors have the shapes of the layout. buffers, which the network keeps
        besides, are set to those of the file."""
        buffers = buffers or {}
        self._require(path, layout.shapes)
        for name, buffer in buffers.items():
            self._require(path, {name: tuple(buffer.shape)}, buffer.dtype)
        for name, buffer in buffers.items():
            buffer.copy_(self.tensors[name])
        return layout.pack(self.tensors)

    def require_state(self, layout: Layout, mask: bool, path: Path) -> None:
        """Refuse a file that lacks what a phase is resumed from."""
        if "adam.m" not in self.tensors:
            raise Unusable(f"The file {path} is a representation, not a checkpoint: use it by --start.")
        names = ("adam.m", "adam.v", "mask") if mask else ("adam.m", "adam.v")
        self._require(path, dict.fromkeys(names, (layout.length,)))

    def _require(self, path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype = torch.float32) -> None:
        for name, shape in shapes.items():
            tensor, needed = self.tensors.get(name), f"{shape}"
            if tensor is None:
                found = "is missing"
            elif tensor.shape != shape:
                found = f"has shape {tuple(tensor.shape)}"
            elif tensor.dtype != dtype:
                found, needed = f"is of {tensor.dtype}", f"{dtype}"
            else:
                continue
            raise UserError(
                f"The checkpoint {path} is of another network: {name} {found}, but {needed} is needed; "
                "use the config it was trained with."
            )


def load(path: Path) -> Checkpoint:
    """Read a checkpoint or representation."""
    header, tensors = read_tensors(path, FORMAT)
    if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
        raise Unusable(f"The checkpoint {path} holds numbers that are not finite: use an earlier one.")
    try:
        return Checkpoint(
            from_dict(Config, header["config"]),
            _image_shape(header["image_shape"]),
            _names(header["base_names"]),
            _count(header["phase"], 1, 3),
            _count(header["step"], 0, 10**9),
            tensors,
        )
    except UserError as error:
        raise Unusable(f"The checkpoint {path} cannot be used: {error}") from None
    except KeyError as error:
        raise Unusable(f"The checkpoint {path} lacks {error} in its header: use another one.") from None
    except ValueError as error:
        raise Unusable(f"The checkpoint {path} is damaged ({error}): use another one.") from None


def _count(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{quoted(value)} is no number from {low} to {high}")
    return value


def _image_shape(value: Any) -> tuple[int, int, int]:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError(f"{quoted(value)} is not the shape of an image")
    channels, height, width = value
    return _count(channels, 1, MOST_CHANNELS), _count(height, 1, LARGEST_SIDE), _count(width, 1, LARGEST_SIDE)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{quoted(value)} are not the names of classes")
    return tuple(value)
