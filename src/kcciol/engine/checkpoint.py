"""A state of training as one file: tensors in safetensors, the rest as JSON in its header. No pickle.

Two kinds have the same form. `checkpoint.safetensors` can be resumed in the middle of a phase: it holds Adam's moments
and the mask. `phase1.safetensors` and so on are Theta at the end of a phase: representations, to evaluate and to share.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialize
from safetensors.torch import save_file
from torch import Tensor

from kcciol.atomic import replacing, share
from kcciol.config import Config
from kcciol.errors import UserError
from kcciol.nets.layout import Layout
from kcciol.values import from_dict, to_dict

FORMAT = 1


class Unusable(UserError):
    """What was saved of a training is missing or damaged."""


@dataclass
class Checkpoint:
    """Where a run stands: phase 1 to 3, the steps done in it, and the tensors."""

    config: Config
    image_shape: tuple[int, int, int]
    base_names: tuple[str, ...]  # the classes it was trained on
    phase: int
    step: int
    tensors: dict[str, Tensor]  # theta.*, W.*; while a phase runs also adam.m, adam.v and perhaps mask

    def save(self, path: Path) -> None:
        meta = {
            "format": FORMAT,
            "config": to_dict(self.config),
            "image_shape": self.image_shape,
            "base_names": self.base_names,
            "phase": self.phase,
            "step": self.step,
        }
        write(path, meta, self.tensors)

    def vector(self, layout: Layout, path: Path) -> Tensor:
        """Theta as one vector, when the file's tensors have the shapes of the layout."""
        for name, shape in layout.shapes.items():
            found = f"has shape {tuple(self.tensors[name].shape)}" if name in self.tensors else "is missing"
            if found != f"has shape {shape}":
                raise UserError(
                    f"The checkpoint {path} is of another network: {name} {found}, but {shape} is needed; "
                    "use the config it was trained with."
                )
        return layout.pack(self.tensors)


def write(path: Path, meta: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Tensors and what belongs to them as one file, which appears whole or not at all."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as beside:
        try:
            save_file(held, beside, metadata={"kcciol": json.dumps(meta)})
        except SafetensorError as error:  # so it calls a full disk, in words that end with the number
            number = re.search(r"os error (\d+)", str(error))
            raise OSError(int(number[1]) if number else errno.EIO, str(error), str(path)) from None
        share(beside)


def read(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """What `write` has written."""
    if path.is_dir():
        raise Unusable(f"{path} is a folder: name a file in it, such as {path / 'phase3.safetensors'}.")
    if not path.is_file():
        raise Unusable(f"There is no checkpoint {path}.")
    try:
        data = path.read_bytes()  # at once: another process may put a newer file in its place meanwhile
    except OSError as error:
        raise UserError(f"The checkpoint {path} cannot be read ({error.strerror}).") from None
    try:
        tensors = deserialize(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return json.loads((header.get("__metadata__") or {}).get("kcciol", "null")), tensors
    except (SafetensorError, ValueError) as error:
        raise Unusable(f"The checkpoint {path} is damaged or truncated ({error}): use another one.") from None


def load(path: Path) -> Checkpoint:
    """Read a checkpoint or representation."""
    meta, tensors = read(path)
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise Unusable(f"The file {path} is not a representation, or not of this version of kcciol.")
    if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
        raise Unusable(f"The checkpoint {path} holds numbers that are not finite: use an earlier one.")
    try:
        return Checkpoint(
            from_dict(Config, meta["config"]),
            tuple(meta["image_shape"]),
            tuple(meta["base_names"]),
            meta["phase"],
            meta["step"],
            tensors,
        )
    except KeyError as error:
        raise Unusable(f"The checkpoint {path} lacks {error} in its header: use another one.") from None
