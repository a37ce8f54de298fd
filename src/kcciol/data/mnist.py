"""MNIST: handwritten digits, 28x28 pixels, 70,000 in all.

Classes are the ten digits. Novel ones are 5, 6 and 7, as in the paper's experiment with a GAN, base the other seven.
The images of a class are those of the training files, in their order, then those of the test files: 6,313 to 7,877 of
them. Images are greyscale, black (0) paper and white (255) ink, as they are in the files.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcciol.config import DataConfig
from kcciol.data.cache import Sets, cached
from kcciol.data.classset import ClassSet
from kcciol.data.files import ClassFiles, DiskFile, fingerprint
from kcciol.data.images import from_pixels
from kcciol.errors import UserError

FOLDERS = ("MNIST/raw", "mnist", ".")
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
IMAGES = (60_000, 10_000)  # of a complete copy, for training and for tests
BASE = (0, 1, 2, 3, 4, 8, 9)
NOVEL = (5, 6, 7)

LAYOUT = (
    "{train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, each as it is or as .gz, in MNIST/raw, in "
    "mnist or in the root itself"
)


def load(config: DataConfig, images: tuple[int, int] = IMAGES) -> tuple[ClassSet, ClassSet]:
    """Base and novel digits, all of them. (`images` are other than MNIST's own in tests only.)"""
    root = Path(config.root)
    paths = [_found(root, name) for name in FILES]

    def build() -> Sets:
        train, test = (_part(paths[2 * k], paths[2 * k + 1], images[k], root) for k in (0, 1))
        return {"base": _classset(BASE, train, test, config.size), "novel": _classset(NOVEL, train, test, config.size)}

    mark = fingerprint([ClassFiles("mnist", [DiskFile(str(path)) for path in paths])])
    sets = cached(root, f"mnist-{config.size}", mark, build)
    return sets["base"], sets["novel"]


def locate(root: Path, name: str) -> Path | None:
    """The file of that name, without or with .gz, in the first of the folders that has it."""
    places = [root / folder / f"{name}{ending}" for folder in FOLDERS for ending in ("", ".gz")]
    return next((path for path in places if path.is_file()), None)


def _found(root: Path, name: str) -> Path:
    path = locate(root, name)
    if path is None:
        what = f"has no {name}" if root.is_dir() else "does not exist"
        raise UserError(
            f"The data root {str(root)!r} {what}: run `kcciol data get mnist --root {root}`, or set that root or "
            f"KCCIOL_DATA to a folder that holds {LAYOUT}."
        )
    return path


Part = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


def _part(images: Path, labels: Path, count: int, root: Path) -> Part:
    """Images (N, height, width, 1) and their N labels, complete or refused."""
    pixels, digits = _read_idx(images, 3, root), _read_idx(labels, 1, root)
    for path, there in ((images, len(pixels)), (labels, len(digits))):
        if there != count:
            raise UserError(f"{path} is not all of MNIST: it has {there} entries in place of {count}; {_again(root)}.")
    if not np.isin(digits, [*BASE, *NOVEL]).all():
        raise UserError(f"{labels} has a label that is no digit: {_again(root)}.")
    return pixels[..., None], digits


def _read_idx(path: Path, axes: int, root: Path) -> npt.NDArray[np.uint8]:
    """The array in an idx file: two zeros, the type (8 is a byte), the number of axes, their lengths, the numbers."""
    data = DiskFile(str(path)).read()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is not a whole gz file ({error}): {_again(root)}.") from None
    start = 4 + 4 * axes
    if len(data) < start or data[:4] != bytes([0, 0, 8, axes]):
        raise UserError(f"{path} is not an idx file of bytes in {axes} axes: {_again(root)}.")
    shape = np.frombuffer(data, ">u4", axes, offset=4).tolist()
    wanted = math.prod(shape)
    if len(data) - start != wanted:
        raise UserError(f"{path} has {len(data) - start} bytes of data in place of {wanted}: {_again(root)}.")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _classset(digits: Sequence[int], train: Part, test: Part, size: int) -> ClassSet:
    images = [np.concatenate([pixels[labels == d] for pixels, labels in (train, test)]) for d in digits]
    return from_pixels([str(d) for d in digits], images, size)


def _again(root: Path) -> str:
    return f"delete or move it and run `kcciol data get mnist --root {root}`"
