"""Decoded class sets kept beside the data, so that the second start is quick.

A cache is a convenience only: one that cannot be read is built anew, one that cannot be written is left out.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from kcciol.atomic import replacing, share
from kcciol.data.classset import ClassSet

FOLDER = ".kcciol-cache"

Sets = dict[str, ClassSet]


def cached(root: Path, name: str, fingerprint: str, build: Callable[[], Sets]) -> Sets:
    """The class sets that `build` makes, from root's cache when it holds them under this name and fingerprint."""
    path = root / FOLDER / f"{name}-{fingerprint}.safetensors"
    found = _read(path)
    if found is None:
        found = build()
        _write(path, found)
        _remove_stale(path, name)
    return found


def _read(path: Path) -> Sets | None:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            sets = {}
            for split, names in json.loads(metadata["names"]).items():
                images, counts = file.get_tensor(f"{split}.images"), file.get_tensor(f"{split}.counts")
                if metadata[f"{split}.crc32"] != _crc32(images, counts):
                    return None
                sets[split] = ClassSet(images, counts, tuple(names))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, AssertionError):
        return None
    return sets


def _write(path: Path, sets: Sets) -> None:
    tensors: dict[str, Tensor] = {}
    metadata = {"names": json.dumps({split: part.names for split, part in sets.items()})}
    for split, part in sets.items():
        tensors |= {f"{split}.images": part.images, f"{split}.counts": part.counts}
        metadata[f"{split}.crc32"] = _crc32(part.images, part.counts)
    try:
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata)
            share(temporary)
    except (OSError, SafetensorError):
        pass  # a root that cannot be written to, or is full


def _remove_stale(path: Path, name: str) -> None:
    """Remove the caches of what the data were before they changed."""
    for other in path.parent.glob(f"{name}-*.safetensors"):
        if other != path:
            try:
                other.unlink()
            except OSError:
                return


def _crc32(images: Tensor, counts: Tensor) -> str:
    # safetensors checks its header, but not its numbers
    return str(zlib.crc32(images.contiguous().numpy().data, zlib.crc32(counts.numpy().data)))
