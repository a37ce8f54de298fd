"""Omniglot: 1623 characters of 50 alphabets, each drawn by 20 people.

Base classes are the background set, novel ones the evaluation set, each sorted by (alphabet, character). Images are
greyscale, white (255) paper and black (0) ink, as they are in the files.
"""

from __future__ import annotations

import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kcciol.config import DataConfig
from kcciol.data.cache import Sets, cached
from kcciol.data.classset import ClassSet
from kcciol.data.dataset import DataSet, Download, missing_data
from kcciol.data.files import (
    ClassFiles,
    DiskFile,
    ImageFile,
    ZipMember,
    fingerprint,
    folders,
    open_data,
    plain_files,
)
from kcciol.data.images import read_classes
from kcciol.errors import UserError, visible

FOLDER = "omniglot-py"
MOST_BYTES = 2**26  # of a zip; the official ones have a sixth of that

LAYOUT = (
    "omniglot-py/images_{background,evaluation}/ALPHABET/CHARACTER/*.png or the two official zips, "
    "images_background.zip and images_evaluation.zip, as they are"
)


@dataclass(frozen=True)
class OmniglotHalf:
    """One of the two halves, and how much a complete copy of it holds."""

    name: str
    characters: int
    drawers: int = 20


BACKGROUND = OmniglotHalf("images_background", 964)
EVALUATION = OmniglotHalf("images_evaluation", 659)


def load(
    config: DataConfig, base: OmniglotHalf = BACKGROUND, novel: OmniglotHalf = EVALUATION
) -> tuple[ClassSet, ClassSet]:
    """Base and novel classes, all of them. (`base` and `novel` are other than Omniglot's own in tests only.)"""
    root = Path(config.root)
    with ExitStack() as stack:
        listed = {"base": _list(root, base, stack), "novel": _list(root, novel, stack)}
        mark = fingerprint(listed["base"] + listed["novel"])

        def build() -> Sets:
            return {split: read_classes(classes, config.size, "L") for split, classes in listed.items()}

        return cached(root, f"omniglot-{config.size}", mark, build)


def locate(root: Path, split: str) -> Path | None:
    """The folder or zip that holds a split; folders go before zips."""
    places = (root / FOLDER, root)
    for path in [p / split for p in places]:
        if path.is_dir():
            return path
    for path in [p / f"{split}.zip" for p in places]:
        if path.is_file():
            return path
    return None


def _list(root: Path, split: OmniglotHalf, stack: ExitStack) -> list[ClassFiles]:
    """The split's characters and their files, complete or refused."""
    path = locate(root, split.name)
    if path is None:
        raise missing_data(root, split.name, "omniglot", LAYOUT)
    found = _in_folder(path) if path.is_dir() else _in_zip(path, split.name, root, stack)
    classes = [ClassFiles("/".join(key), found[key]) for key in sorted(found)]
    _require_complete(classes, split, path, root)
    return classes


def _in_folder(path: Path) -> dict[tuple[str, str], list[ImageFile]]:
    """Files by (alphabet, character)."""
    return {
        (alphabet, character): [
            DiskFile(str(path / alphabet / character / name))
            for name in plain_files(path / alphabet / character)
            if name.endswith(".png")
        ]
        for alphabet in folders(path)
        for character in folders(path / alphabet)
    }


def _in_zip(path: Path, split: str, root: Path, stack: ExitStack) -> dict[tuple[str, str], list[ImageFile]]:
    """The same for members SPLIT/ALPHABET/CHARACTER/FILE.png of a zip, which stays open as long as the stack."""
    try:
        file = stack.enter_context(open_data(path, _again(root), MOST_BYTES))
        archive = stack.enter_context(zipfile.ZipFile(file))
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{path} is not a whole zip file ({error}): {_again(root)}.") from None
    found: dict[tuple[str, str], list[ImageFile]] = {}
    for info in sorted(archive.infolist(), key=lambda info: info.filename):
        parts = info.filename.split("/")
        if len(parts) == 4 and parts[0] == split and parts[3].endswith(".png") and not parts[3].startswith("."):
            found.setdefault((parts[1], parts[2]), []).append(ZipMember(archive, info))
    return found


def _require_complete(classes: list[ClassFiles], split: OmniglotHalf, path: Path, root: Path) -> None:
    for c in classes:
        if len(c.files) != split.drawers:
            raise UserError(
                f"{path} is not all of Omniglot: {visible(c.name)} has {len(c.files)} images in place of "
                f"{split.drawers}; {_again(root)}."
            )
    if len(classes) != split.characters:
        raise UserError(
            f"{path} is not all of Omniglot: it has {len(classes)} characters in place of {split.characters}; "
            f"{_again(root)}."
        )


def _again(root: Path) -> str:
    return f"delete or move it and run `kcciol data get omniglot --root {root}`"


DATASET = DataSet(
    defaults=DataConfig(name="omniglot"),
    description="1623 characters of 50 alphabets, 20 drawings each: 964 base and 659 novel classes",
    layout=LAYOUT,
    load=load,
    polarity="dark on light",
    channels=1,
    base=BACKGROUND.characters,
    novel=EVALUATION.characters,
    images=20,
    download=Download(
        "https://raw.githubusercontent.com/brendenlake/omniglot/master/python",
        {
            "images_background.zip": "68d2efa1b9178cc56df9314c21c6e718",
            "images_evaluation.zip": "6b91aef0f799c5bb55b94e3f2daec811",
        },
        there=lambda root, name: locate(root, name.removesuffix(".zip")),
    ),
)
