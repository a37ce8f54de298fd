"""Images of one's own: one folder for each class.

When the root holds the folders base/ and novel/ and no others, these are the splits. Else the root's folders are the
classes, and the last so many of them, by name, are novel. Images are greyscale when all of them are, else RGB.
"""

from __future__ import annotations

from pathlib import Path

from kcciol.config import DataConfig
from kcciol.data.classset import ClassSet
from kcciol.data.dataset import DataSet
from kcciol.data.files import ClassFiles, DiskFile, folders, plain_files
from kcciol.data.images import Mode, is_grey, read_classes
from kcciol.errors import UserError, visible

LAYOUT = (
    "base/CLASS/* and novel/CLASS/*, or CLASS/* with data.novel_classes saying how many of the classes, "
    "the last by name, are novel; image files of any usual format"
)


def load(config: DataConfig) -> tuple[ClassSet, ClassSet]:
    """Base and novel classes, all of them."""
    root = Path(config.root)
    if not root.is_dir():
        raise UserError(f"The data root {str(root)!r} is no folder: set data.root to a folder with one folder a class.")
    there = folders(root)
    if there in (["base"], ["novel"]):
        missing = "novel" if there == ["base"] else "base"
        raise UserError(f"The data root {str(root)!r} has {there[0]}/, but no {missing}/: both are needed, or neither.")
    if {"base", "novel"} <= set(there) and len(there) > 2:
        other = next(name for name in there if name not in ("base", "novel"))
        raise UserError(
            f"The data root {str(root)!r} has base/ and novel/, but also {other!r}: move that into one of the two, or "
            "away."
        )
    if there == ["base", "novel"]:
        base, novel = _classes(root / "base"), _classes(root / "novel")
    else:
        base, novel = _divide(_classes(root), config.novel_classes)
    mode = _mode([*base, *novel])
    return read_classes(base, config.size, mode), read_classes(novel, config.size, mode)


def _classes(where: Path) -> list[ClassFiles]:
    names = folders(where)
    if not names:
        raise UserError(
            f"The folder {visible(where)} has no classes: put one folder with images into it for each class."
        )
    return [ClassFiles(name, _images(where / name)) for name in names]


def _images(where: Path) -> list[DiskFile]:
    inner = folders(where)
    if inner:
        raise UserError(f"The class folder {visible(where)} holds a folder, {inner[0]!r}: put images only into it.")
    files = [DiskFile(str(where / name)) for name in plain_files(where)]
    if not files:
        raise UserError(f"The class folder {visible(where)} is empty: put images into it or remove it.")
    return files


def _divide(classes: list[ClassFiles], novel: int) -> tuple[list[ClassFiles], list[ClassFiles]]:
    if novel == 0:
        raise UserError(
            "data.novel_classes is 0, but the data root has no folders base/ and novel/: say how many of its "
            f"{len(classes)} classes, the last by name, are novel."
        )
    if novel >= len(classes):
        raise UserError(
            f"data.novel_classes is {novel}, but the data root has {len(classes)} classes and one at least must "
            "remain a base class: lower it or add classes."
        )
    return classes[:-novel], classes[-novel:]


def _mode(classes: list[ClassFiles]) -> Mode:
    grey = all(is_grey(file) for c in classes for file in c.files)
    return "L" if grey else "RGB"


DATASET = DataSet(
    defaults=DataConfig(name="folder", base_classes=0),
    description="images of your own, one folder for each class",
    layout=LAYOUT,
    load=load,
    polarity="any",
    channels=None,
    owns_root=True,
    base=None,
    novel=None,
    images=None,
)
