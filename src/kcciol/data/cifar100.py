"""CIFAR-100: 100 kinds of things, photographs of 32x32 pixels in colour, 600 of each.

Base classes are the first 70 fine labels, novel ones the last 30, by number; their names are those in the file meta.
The images of a class are its 500 training images, in the order of the file, then its 100 test images: the paper counts
600 a class and makes no difference between them.
"""

from __future__ import annotations

import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kcciol.config import DataConfig
from kcciol.data.cache import Sets, cached
from kcciol.data.classset import ClassSet
from kcciol.data.files import ClassFiles, DiskFile, fingerprint
from kcciol.data.images import from_pixels
from kcciol.data.pickles import read_pickle
from kcciol.errors import UserError

FOLDER = "cifar-100-python"
ARCHIVE = "cifar-100-python.tar.gz"
PARTS = ("train", "test", "meta")
SIDE = 32

LAYOUT = "cifar-100-python/{train,test,meta}, the official Python files, or cifar-100-python.tar.gz as it is"


@dataclass(frozen=True)
class Whole:
    """How much a complete copy holds."""

    base: int = 70
    novel: int = 30
    train: int = 500
    """Images of each class in the file train."""
    test: int = 100


WHOLE = Whole()


def load(config: DataConfig, whole: Whole = WHOLE) -> tuple[ClassSet, ClassSet]:
    """Base and novel classes, all of them. (`whole` is other than CIFAR-100's own in tests only.)"""
    root = Path(config.root)
    where = locate(root)
    if where is None:
        what = f"has no {FOLDER}" if root.is_dir() else "does not exist"
        raise UserError(
            f"The data root {str(root)!r} {what}: run `kcciol data get cifar100 --root {root}`, or set that root or "
            f"KCCIOL_DATA to a folder that holds {LAYOUT}."
        )
    files = [where / part for part in PARTS] if where.is_dir() else [where]
    for file in files:
        if not file.exists():
            raise UserError(f"{where} is not all of CIFAR-100: it has no file {file.name!r}; {_again(where, root)}.")

    def build() -> Sets:
        return _build(_read(where, root), whole, config.size, where, root)

    mark = fingerprint([ClassFiles("cifar100", [DiskFile(str(file)) for file in files])])
    sets = cached(root, f"cifar100-{config.size}", mark, build)
    return sets["base"], sets["novel"]


def locate(root: Path) -> Path | None:
    """The folder or archive; the folder goes before the archive."""
    if (root / FOLDER).is_dir():
        return root / FOLDER
    return root / ARCHIVE if (root / ARCHIVE).is_file() else None


def _read(where: Path, root: Path) -> dict[str, dict[str, Any]]:
    """What each of the three files holds."""
    again = _again(where, root)
    try:
        if where.is_dir():
            values = {}
            for part in PARTS:
                with (where / part).open("rb") as file:
                    values[part] = read_pickle(file, str(where / part), again)
            return values
        with tarfile.open(where, "r:gz") as archive:
            return {part: _read_member(archive, f"{FOLDER}/{part}", where, again) for part in PARTS}
    except OSError as error:
        raise UserError(f"{where} cannot be read ({error.strerror or error}): {again}.") from None
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{where} is not a whole tar.gz file ({error}): {again}.") from None


def _read_member(archive: tarfile.TarFile, name: str, where: Path, again: str) -> dict[str, Any]:
    member = next((m for m in archive if m.name == name and m.isfile()), None)
    file = archive.extractfile(member) if member else None
    if file is None:
        raise UserError(f"{where} is not all of CIFAR-100: it has no file {name!r}; {again}.")
    with file:
        return read_pickle(file, f"{where}/{name}", again)


def _build(values: dict[str, dict[str, Any]], whole: Whole, size: int, where: Path, root: Path) -> Sets:
    again = _again(where, root)
    names = _names(values["meta"], whole.base + whole.novel, where, again)
    by_class = []
    for part, samples in (("train", whole.train), ("test", whole.test)):
        pixels, labels = _images(values[part], part, where, again)
        rows = [np.flatnonzero(labels == number) for number in range(len(names))]
        for name, there in zip(names, rows, strict=True):
            if len(there) != samples:
                raise UserError(
                    f"{where} is not all of CIFAR-100: {name!r} has {len(there)} images in the file {part!r} in place "
                    f"of {samples}; {again}."
                )
        by_class.append([pixels[there] for there in rows])
    images = [np.concatenate(parts) for parts in zip(*by_class, strict=True)]
    cut = whole.base
    return {
        "base": from_pixels(names[:cut], images[:cut], size),
        "novel": from_pixels(names[cut:], images[cut:], size),
    }


def _names(meta: dict[str, Any], count: int, where: Path, again: str) -> list[str]:
    names = meta.get("fine_label_names")
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise UserError(f"{where} is not all of CIFAR-100: its file 'meta' does not name {count} fine labels; {again}.")
    return names


def _images(
    values: dict[str, Any], part: str, where: Path, again: str
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (N, height, width, channel) and their N labels."""
    pixels, labels = values.get("data"), values.get("fine_labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3 * SIDE * SIDE,):
        raise UserError(
            f"{where} is not CIFAR-100: the file {part!r} has no array 'data' of {3 * SIDE * SIDE} bytes an image; "
            f"{again}."
        )
    if not isinstance(labels, list) or len(labels) != len(pixels) or not all(map(_is_label, labels)):
        raise UserError(
            f"{where} is not CIFAR-100: the file {part!r} has no list 'fine_labels' with a number for each of its "
            f"{len(pixels)} images; {again}."
        )
    planes = pixels.reshape(-1, 3, SIDE, SIDE)  # a plane for each colour
    return planes.transpose(0, 2, 3, 1), np.array(labels, np.int64)


def _is_label(label: object) -> bool:
    return type(label) is int and 0 <= label < 100


def _again(where: Path, root: Path) -> str:
    return f"delete or move {where.name} and run `kcciol data get cifar100 --root {root}`"
