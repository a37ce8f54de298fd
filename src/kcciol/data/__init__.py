"""Data sets: raw files -> class sets. `load` is what the rest of kcciol calls; the others serve `kcciol data`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kcciol.config import DataConfig
from kcciol.data import cifar100, fetch, folder, glyphs, mini_imagenet, mnist, omniglot
from kcciol.data.classset import ClassSet, Splits
from kcciol.data.sheet import contact_sheet
from kcciol.errors import UserError, require_kind

__all__ = ["DATASETS", "ClassSet", "DataSet", "Report", "SplitReport", "Splits"]
__all__ += ["check", "contact_sheet", "describe", "get", "load", "locate"]


@dataclass(frozen=True)
class DataSet:
    """What kcciol knows of a data set before it is loaded."""

    description: str
    layout: str
    """What to put where under the data root."""
    load: Callable[[DataConfig], tuple[ClassSet, ClassSet]]
    """All base and all novel classes."""
    fetch: Callable[[Path], list[str]] | None = None
    """Downloads it into a root and says what was done; None where nothing can be downloaded."""


DATASETS: dict[str, DataSet] = {
    "omniglot": DataSet(
        "1623 characters of 50 alphabets, 20 drawings each: 964 base and 659 novel classes",
        omniglot.LAYOUT,
        omniglot.load,
        fetch.fetch_omniglot,
    ),
    "mini-imagenet": DataSet(
        "photographs of 84 classes, 600 each, 84x84 in colour: 64 base and 20 novel classes",
        mini_imagenet.LAYOUT,
        mini_imagenet.load,
    ),
    "cifar100": DataSet(
        "photographs of 100 classes, 600 each, 32x32 in colour: 70 base and 30 novel classes",
        cifar100.LAYOUT,
        cifar100.load,
        fetch.fetch_cifar100,
    ),
    "mnist": DataSet(
        "70,000 handwritten digits, 28x28: 5, 6 and 7 are novel, the other seven base",
        mnist.LAYOUT,
        mnist.load,
        fetch.fetch_mnist,
    ),
    "glyphs": DataSet(
        "invented characters that kcciol draws itself, any number of classes",
        "nothing: no files are needed",
        glyphs.load,
    ),
    "folder": DataSet("images of your own, one folder for each class", folder.LAYOUT, folder.load),
}


def load(config: DataConfig) -> Splits:
    """The config's data set, divided into base, validation and novel classes."""
    require_kind(config, DataConfig, "config", "config.data")
    base, novel = _known(config.name).load(locate(config))
    base = _first(base, config.base_classes, "base")
    novel = _first(novel, config.novel_classes, "novel")
    kept = len(base) - config.validation_classes
    if kept < 1:
        raise UserError(
            f"data.validation_classes is {config.validation_classes}, but must leave at least 1 of the {len(base)} "
            "base classes to train on: lower it."
        )
    return Splits(base.classes(0, kept), base.classes(kept, len(base)), novel)


def locate(config: DataConfig) -> DataConfig:
    """The config with its root resolved: by default KCCIOL_DATA, else ./data; ~ is the home folder."""
    root = config.root or os.environ.get("KCCIOL_DATA") or "data"
    return dataclasses.replace(config, root=str(Path(root).expanduser()))


def _first(classset: ClassSet, count: int, split: str) -> ClassSet:
    if count > len(classset):
        raise UserError(
            f"data.{split}_classes is {count}, but there are {len(classset)} {split} classes: lower it, or set 0 for "
            "all."
        )
    return classset.classes(0, count or len(classset))


def _known(name: str) -> DataSet:
    if name not in DATASETS:
        raise UserError(f"There is no data set {name!r}; there are: {', '.join(DATASETS)}.")
    return DATASETS[name]


# --- for `kcciol data` ----------------------------------------------------------------------------------------------


def describe() -> list[tuple[str, str, str, bool]]:
    """A row for each data set: name, description, layout, whether `get` can download it.

    >>> [name for name, _, _, _ in describe()]
    ['omniglot', 'mini-imagenet', 'cifar100', 'mnist', 'glyphs', 'folder']
    """
    return [(name, d.description, d.layout, d.fetch is not None) for name, d in DATASETS.items()]


def get(name: str, root: Path) -> list[str]:
    """Download a data set into root; lines that say what was done.

    >>> get("glyphs", Path("data"))
    Traceback (most recent call last):
        ...
    kcciol.errors.UserError: The data set 'glyphs' cannot be downloaded; what it needs: nothing: no files are needed.
    """
    dataset = _known(name)
    if dataset.fetch is None:
        raise UserError(f"The data set {name!r} cannot be downloaded; what it needs: {dataset.layout}.")
    return dataset.fetch(root)


@dataclass(frozen=True)
class SplitReport:
    """How much a split holds."""

    split: str
    classes: int
    images: int
    fewest: int
    """Images of the class that has the fewest."""
    most: int


@dataclass(frozen=True)
class Report:
    """What `check` found."""

    name: str
    root: str
    image_shape: tuple[int, int, int]
    splits: tuple[SplitReport, ...]


def check(config: DataConfig) -> Report:
    """Load everything and count it; missing or incomplete data are a UserError."""
    splits = load(config)
    parts = {"base": splits.base, "validation": splits.validation, "novel": splits.novel}
    return Report(
        config.name,
        locate(config).root,
        splits.base.image_shape,
        tuple(_count(split, part) for split, part in parts.items()),
    )


def _count(split: str, part: ClassSet) -> SplitReport:
    counts: list[int] = part.counts.tolist()
    return SplitReport(split, len(part), sum(counts), min(counts, default=0), max(counts, default=0))
