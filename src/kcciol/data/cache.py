"""Decoded class sets kept beside the data, so that the second start is quick.

A cache is a convenience only: one that cannot be read is built anew, one that cannot be written is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kcciol.data.classset import ClassSet
from kcciol.errors import UserError

if TYPE_CHECKING:  # to list data sets must not wait for torch
    from torch import Tensor

    from kcciol.files.tensors import Format

FOLDER = ".kcciol-cache"

Sets = dict[str, ClassSet]


def cached(root: Path, name: str, fingerprint: str, build: Callable[[], Sets]) -> tuple[ClassSet, ClassSet]:
    """The "base" and "novel" classes that `build` makes, from root's cache when it has them by this name and
    fingerprint."""
    path = root / FOLDER / f"{name}-{fingerprint}.safetensors"
    found = _read(path)
    if found is None:
        found = build()
        _write(path, found)
        _remove_stale(path, name)
    return found["base"], found["novel"]


def _read(path: Path) -> Sets | None:
    if not path.is_file():
        return None
    from kcciol.files.tensors import read_tensors

    try:
        header, tensors = read_tensors(path, _format())
        return {
            split: ClassSet(tensors[f"{split}.images"], tensors[f"{split}.counts"], tuple(header["names"][split]))
            for split in ("base", "novel")
        }
    except (UserError, KeyError, TypeError, AttributeError, AssertionError):
        return None


def _write(path: Path, sets: Sets) -> None:
    from kcciol.files.tensors import write_tensors

    tensors: dict[str, Tensor] = {}
    for split, part in sets.items():
        tensors |= {f"{split}.images": part.images, f"{split}.counts": part.counts}
    try:
        path.parent.mkdir(exist_ok=True)
        write_tensors(path, _format(), {"names": {split: part.names for split, part in sets.items()}}, tensors)
    except (OSError, UserError):
        pass  # a root that cannot be written to, or is full


def _format() -> Format:
    from kcciol.files.tensors import Format

    return Format("cache", ())


def _remove_stale(path: Path, name: str) -> None:
    """Remove the caches of what the data were before they changed."""
    for other in path.parent.glob(f"{name}-*.safetensors"):
        if other != path:
            try:
                other.unlink()
            except OSError:
                return
