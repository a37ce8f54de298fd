"""A learner's file to try things on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from kcciol.files.tensors import sealed, unsealed
from kcciol.learner import OnlineLearner

WIDTH = 5


def kept(tmp_path: Path, name: str = "ncm", settings: dict[str, Any] | None = None) -> Path:
    """The file of a learner."""
    path = tmp_path / "mine.safetensors"
    OnlineLearner(name, WIDTH, settings).learn_one([1.0] * WIDTH, "a").learn_one([0.0] * WIDTH, "b").save(path)
    return path


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], None]) -> None:
    """Put something else into a file, with a checksum that is right."""
    metadata, tensors = header_of(path), load_file(path)
    change(metadata, tensors)
    text = json.dumps(metadata)
    save_file(tensors, path, sealed(text, tensors))


def header_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found: dict[str, Any] = json.loads(unsealed(header["__metadata__"])[0] or "")
    return found
