"""CIFAR-100: 100 kinds of things, photographs of 32x32 pixels in colour, 600 of each.

Base classes are the first 70 fine labels, novel ones the last 30, by number; their names are those in the file meta.
The images of a class are its 500 training images, in the order of the file, then its 100 test images: the paper counts
600 a class and makes no difference between them.
"""

from __future__ import annotations

import gzip
import io
import itertools
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
from kcciol.data.dataset import DataSet, Download, missing_data
from kcciol.data.files import Bounded, ClassFiles, DiskFile, fingerprint, open_data, require_size
from kcciol.data.images import from_pixels
from kcciol.data.pickles import read_pickle
from kcciol.errors import UserError, visible

FOLDER = "cifar-100-python"
ARCHIVE = "cifar-100-python.tar.gz"
PARTS = ("train", "test", "meta")
SIDE = 32
MOST_BYTES = 2**28  # of the files together; the official ones have two thirds of that
MOST_MEMBERS = 100  # of the archive; the official one has five

LAYOUT = "cifar-100-python/{train,test,meta}, the official Python files, or cifar-100-python.tar.gz as it is"


@dataclass(frozen=True)
class Cifar100Counts:
    """How much a complete copy holds."""

    base: int = 70
    novel: int = 30
    train: int = 500
    """Images of each class in the file train."""
    test: int = 100


WHOLE = Cifar100Counts()


def load(config: DataConfig, whole: Cifar100Counts = WHOLE) -> tuple[ClassSet, ClassSet]:
    """Base and novel classes, all of them. (`whole` is other than CIFAR-100's own in tests only.)"""
    root = Path(config.root)
    where = locate(root)
    if where is None:
        raise missing_data(root, FOLDER, "cifar100", LAYOUT)
    files = [where / part for part in PARTS] if where.is_dir() else [where]
    for file in files:
        if not file.exists():
            raise UserError(f"{where} is not all of CIFAR-100: it has no file {file.name!r}; {_again(where, root)}.")

    def build() -> Sets:
        return _build(_read(where, root), whole, config.size, where, root)

    mark = fingerprint([ClassFiles("cifar100", [DiskFile(str(file)) for file in files])])
    return cached(root, f"cifar100-{config.size}", mark, build)


def locate(root: Path) -> Path | None:
    """The folder or archive; the folder goes before the archive."""
    if (root / FOLDER).is_dir():
        return root / FOLDER
    return root / ARCHIVE if (root / ARCHIVE).is_file() else None


def _read(where: Path, root: Path) -> dict[str, dict[str, Any]]:
    """What each of the three files holds."""
    again = _again(where, root)
    if where.is_file():
        return _read_archive(where, again)
    values = {}
    for part in PARTS:
        with open_data(where / part, again) as file:
            values[part] = read_pickle(file, visible(where / part), again, MOST_BYTES)
    return values


def _read_archive(where: Path, again: str) -> dict[str, dict[str, Any]]:
    """The same from the archive, in one pass."""
    values = {}
    try:
        with (
            open_data(where, again) as file,
            gzip.GzipFile(fileobj=file) as unpacked,
            tarfile.open(fileobj=Bounded(unpacked, MOST_BYTES), mode="r|") as archive,  # type: ignore[call-overload]
        ):
            for member in itertools.islice(archive, MOST_MEMBERS):
                part = member.name.removeprefix(f"{FOLDER}/")
                found = archive.extractfile(member) if part in PARTS and member.name != part else None
                if found is not None:
                    label = f"{visible(where)}/{member.name}"
                    require_size(label, member.size, MOST_BYTES, again)
                    values[part] = read_pickle(io.BytesIO(found.read()), label, again, MOST_BYTES)
    except OSError as error:
        raise UserError(f"{visible(where)} cannot be read ({error.strerror or error}): {again}.") from None
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{visible(where)} is not a whole tar.gz file ({error}): {again}.") from None
    for part in PARTS:
        if part not in values:
            raise UserError(f"{visible(where)} is not all of CIFAR-100: it has no file '{FOLDER}/{part}'; {again}.")
    return values


def _build(values: dict[str, dict[str, Any]], whole: Cifar100Counts, size: int, where: Path, root: Path) -> Sets:
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


DATASET = DataSet(
    defaults=DataConfig(name="cifar100", size=32, base_classes=0),
    description="photographs of 100 classes, 600 each, 32x32 in colour: 70 base and 30 novel classes",
    layout=LAYOUT,
    load=load,
    polarity="any",
    channels=3,
    base=WHOLE.base,
    novel=WHOLE.novel,
    images=WHOLE.train + WHOLE.test,
    download=Download(
        "https://www.cs.toronto.edu/~kriz",
        {ARCHIVE: "eb9058c3a382ffc7106e4002c42a8d85"},
        there=lambda root, _: locate(root),
    ),
)
