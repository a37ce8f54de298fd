"""mini-ImageNet: photographs of 84x84 pixels in colour, 600 of each class, in the split of Ravi and Larochelle.

Base classes are the split's 64 training classes, novel ones its 20 test classes; the 16 validation classes are not
used. Classes are sorted by name in each layout; the images of a class are in the order of the csv, of the pickle's list
of them, or of their file names. A copy with fewer than 600 images of a class is taken as it is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kcciol.config import DataConfig
from kcciol.data.cache import Sets, cached
from kcciol.data.classset import ClassSet
from kcciol.data.dataset import DataSet
from kcciol.data.files import ClassFiles, DiskFile, fingerprint, folders, open_data, plain_files, read_whole
from kcciol.data.images import from_pixels, read_classes
from kcciol.data.pickles import read_pickle
from kcciol.errors import UserError, visible

FOLDER = "mini-imagenet"
IMAGES = ("jpg", "jpeg", "png")
CSV, PICKLE = "{}.csv", "mini-imagenet-cache-{}.pkl"

LAYOUT = (
    "mini-imagenet/{train,test}/CLASS/*.jpg; or mini-imagenet/{train,test}.csv, with the columns filename and label, "
    "and mini-imagenet/images/*.jpg; or mini-imagenet-cache-{train,test}.pkl, in mini-imagenet/ or in the root itself"
)
MOST_BYTES = 2**31  # of a pickle; that of the base classes has 813 million
MOST_CSV_BYTES = 2**23  # a file and its class for each of 38,400 images take 1.2 million
MEND = "mend the file or put a whole copy in its place (mini-ImageNet cannot be downloaded by kcciol)"


@dataclass(frozen=True)
class MiniImagenetPart:
    """One part of the split, and how many classes a complete copy of it holds."""

    name: str
    classes: int


TRAIN = MiniImagenetPart("train", 64)
TEST = MiniImagenetPart("test", 20)

Reader = Callable[[int], ClassSet]  # from a size
# files to know a change by; how to read them
Prepare = Callable[[Path, MiniImagenetPart], tuple[list[ClassFiles], Reader]]


def load(
    config: DataConfig, base: MiniImagenetPart = TRAIN, novel: MiniImagenetPart = TEST
) -> tuple[ClassSet, ClassSet]:
    """Base and novel classes, all of them. (`base` and `novel` are other than the split's own in tests only.)"""
    root = Path(config.root)
    prepare, where = _layout(root, base, novel)
    marks, readers = [], {}
    for split, part in (("base", base), ("novel", novel)):
        files, readers[split] = prepare(where, part)
        marks += files

    def build() -> Sets:
        return {split: read(config.size) for split, read in readers.items()}

    return cached(root, f"mini-imagenet-{config.size}", fingerprint(marks), build)


def _layout(root: Path, base: MiniImagenetPart, novel: MiniImagenetPart) -> tuple[Prepare, Path]:
    """How to read what is there: the first layout that has both splits."""
    inner = root / FOLDER
    layouts: list[tuple[Prepare, Path, str]] = [
        (_from_folders, inner, "{}"),
        (_from_csv, inner, CSV),
        (_from_pickle, inner, PICKLE),
        (_from_pickle, root, PICKLE),
    ]
    half = ""
    for prepare, where, name in layouts:
        paths = [where / name.format(split.name) for split in (base, novel)]
        there = [path.exists() for path in paths]
        if all(there):
            return prepare, where
        if any(there) and not half:
            has, lacks = paths if there[0] else paths[::-1]
            half = f"has {has.relative_to(root)}, but not {lacks.relative_to(root)}"
    what = half or ("has no mini-ImageNet" if root.is_dir() else "does not exist")
    raise UserError(
        f"The data root {str(root)!r} {what}, and kcciol cannot download mini-ImageNet: set that root or KCCIOL_DATA "
        f"to a folder that holds {LAYOUT}."
    )


# --- image files ----------------------------------------------------------------------------------------------------


def _from_folders(where: Path, split: MiniImagenetPart) -> tuple[list[ClassFiles], Reader]:
    place = where / split.name
    found = {name: [place / name / file for file in _image_names(place / name)] for name in folders(place)}
    return _from_files(found, place, split)


def _from_csv(where: Path, split: MiniImagenetPart) -> tuple[list[ClassFiles], Reader]:
    path = where / CSV.format(split.name)
    found: dict[str, list[Path]] = {}
    for file, name in _lines(path):
        found.setdefault(name, []).append(where / "images" / file)
    return _from_files(found, path, split)


def _from_files(found: dict[str, list[Path]], where: Path, split: MiniImagenetPart) -> tuple[list[ClassFiles], Reader]:
    classes = [ClassFiles(name, [DiskFile(str(file)) for file in found[name]]) for name in sorted(found)]
    _require_complete({c.name: len(c.files) for c in classes}, where, split)
    return classes, lambda size: read_classes(classes, size, "RGB")


def _image_names(where: Path) -> list[str]:
    return [name for name in plain_files(where) if name.lower().rpartition(".")[2] in IMAGES]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """File and class of each line after the first, which names the columns."""
    data = read_whole(path, MOST_CSV_BYTES, MEND)
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{visible(path)} cannot be read as csv ({error}): {MEND}.") from None
    if not rows or rows[0][:2] != ["filename", "label"]:
        raise UserError(f"The first line of {path} is not 'filename,label': {MEND}.")
    for number, row in enumerate(rows[1:], 2):
        if row and (len(row) != 2 or not all(row)):
            raise UserError(f"Line {number} of {path} is not a file and its class: {MEND}.")
        if row:
            yield row[0], row[1]


# --- pickles --------------------------------------------------------------------------------------------------------


def _from_pickle(where: Path, split: MiniImagenetPart) -> tuple[list[ClassFiles], Reader]:
    path = where / PICKLE.format(split.name)
    return [ClassFiles(split.name, [DiskFile(str(path))])], lambda size: _read_pickle(path, split, size)


def _read_pickle(path: Path, split: MiniImagenetPart, size: int) -> ClassSet:
    """image_data (N, height, width, 3) and class_dict, which has the list of its images for each class."""
    with open_data(path, MEND) as file:
        values = read_pickle(file, visible(path), MEND, MOST_BYTES)
    pixels, lists = values.get("image_data"), values.get("class_dict")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3:
        raise UserError(f"{path} has no array 'image_data' of colour images as bytes: {MEND}.")
    if not isinstance(lists, dict) or not all(isinstance(name, str) for name in lists):
        raise UserError(f"{path} has no dictionary 'class_dict' of classes by name: {MEND}.")
    found = {}
    for name in sorted(lists):
        numbers = lists[name].tolist() if isinstance(lists[name], np.ndarray) else lists[name]
        if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < len(pixels) for n in numbers):
            raise UserError(f"The class {name!r} in {path} is not a list of some of its {len(pixels)} images: {MEND}.")
        found[name] = numbers
    _require_complete({name: len(numbers) for name, numbers in found.items()}, path, split)
    return from_pixels(list(found), [pixels[numbers] for numbers in found.values()], size)


def _require_complete(counts: dict[str, int], where: Path, split: MiniImagenetPart) -> None:
    """Refuse a class without images and a number of classes other than the split's."""
    for name, count in counts.items():
        if count == 0:
            raise UserError(f"The class {name!r} in {where} has no images: put them there.")
    if len(counts) != split.classes:
        raise UserError(
            f"{where} is not mini-ImageNet's split {split.name!r}: it has {len(counts)} classes in place of "
            f"{split.classes}; put all of them there."
        )


DATASET = DataSet(
    defaults=DataConfig(name="mini-imagenet", size=84, base_classes=0),
    description="photographs of 84 classes, 600 each, 84x84 in colour: 64 base and 20 novel classes",
    layout=LAYOUT,
    load=load,
    polarity="any",
    channels=3,
    base=TRAIN.classes,
    novel=TEST.classes,
    images=600,
    batch=128,
    sparsity=0.3,
)
