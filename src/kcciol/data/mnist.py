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
from kcciol.data.dataset import DataSet, Download, missing_data
from kcciol.data.files import ClassFiles, DiskFile, fingerprint, open_data
from kcciol.data.images import from_pixels
from kcciol.errors import UserError, visible

FOLDERS = ("MNIST/raw", "mnist", ".")
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SIDE = 28
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
    return cached(root, f"mnist-{config.size}", mark, build)


def locate(root: Path, name: str) -> Path | None:
    """The file of that name, without or with .gz, in the first of the folders that has it."""
    places = [root / folder / f"{name}{ending}" for folder in FOLDERS for ending in ("", ".gz")]
    return next((path for path in places if path.is_file()), None)


def _found(root: Path, name: str) -> Path:
    path = locate(root, name)
    if path is None:
        raise missing_data(root, name, "mnist", LAYOUT)
    return path


LabelledImages = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


def _part(images: Path, labels: Path, count: int, root: Path) -> LabelledImages:
    """Images (N, height, width, 1) and their N labels, complete or refused."""
    pixels, digits = _read_idx(images, 3, count, root), _read_idx(labels, 1, count, root)
    if not np.isin(digits, [*BASE, *NOVEL]).all():
        raise UserError(f"{visible(labels)} has a label that is no digit: {_again(root)}.")
    return pixels[..., None], digits


def _read_idx(path: Path, axes: int, count: int, root: Path) -> npt.NDArray[np.uint8]:
    """The array in an idx file: two zeros, the type (8 is a byte), the number of axes, their lengths, the numbers.

    The first axis must be `count` long, the others at most SIDE: that is known before the numbers are read.
    """
    again = _again(root)
    with open_data(path, again) as raw:
        file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        try:
            head = file.read(4 + 4 * axes)
            if len(head) < 4 + 4 * axes or head[:4] != bytes([0, 0, 8, axes]):
                raise UserError(f"{visible(path)} is not an idx file of bytes in {axes} axes: {again}.")
            shape = np.frombuffer(head, ">u4", axes, offset=4).tolist()
            if shape[0] != count:
                raise UserError(
                    f"{visible(path)} is not all of MNIST: it has {shape[0]} entries in place of {count}; {again}."
                )
            if max(shape[1:], default=0) > SIDE:
                raise UserError(
                    f"{visible(path)} is not MNIST: its images are {' x '.join(map(str, shape[1:]))} pixels, not "
                    f"{SIDE} x {SIDE}; {again}."
                )
            wanted = math.prod(shape)
            data = file.read(wanted + 1)  # one more, to see whether there is more, and the end's checksum
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{visible(path)} is not a whole gz file ({error}): {again}.") from None
    if len(data) != wanted:
        there = "more" if len(data) > wanted else str(len(data))
        raise UserError(f"{visible(path)} has {there} bytes of data in place of {wanted}: {again}.")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _classset(digits: Sequence[int], train: LabelledImages, test: LabelledImages, size: int) -> ClassSet:
    images = [np.concatenate([pixels[labels == d] for pixels, labels in (train, test)]) for d in digits]
    return from_pixels([str(d) for d in digits], images, size)


def _again(root: Path) -> str:
    return f"delete or move it and run `kcciol data get mnist --root {root}`"


DATASET = DataSet(
    defaults=DataConfig(name="mnist", size=32, base_classes=0),
    description="70,000 handwritten digits, 28x28: 5, 6 and 7 are novel, the other seven base",
    layout=LAYOUT,
    load=load,
    polarity="light on dark",
    channels=1,
    base=len(BASE),
    novel=len(NOVEL),
    images=6313,
    download=Download(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        there=lambda root, name: locate(root, name.removesuffix(".gz")),
        folder=FOLDERS[0],
    ),
)
