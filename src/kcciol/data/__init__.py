"""Data sets: raw files -> class sets. `load` is what the rest of kcciol calls; `get` serves `kcciol data`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from kcciol.config import DataConfig
from kcciol.data.classset import ClassSet, Splits
from kcciol.data.dataset import DataSet, Download, require_dataset
from kcciol.data.fetch import fetch
from kcciol.data.sheet import contact_sheet
from kcciol.errors import UserError, require_kind
from kcciol.files.regular import sentence
from kcciol.plugins import Registry

__all__ = [
    "DATASETS",
    "ClassSet",
    "DataSet",
    "Download",
    "Splits",
    "contact_sheet",
    "get",
    "load",
    "locate",
    "require_outside",
]

DATASETS: Registry[DataSet] = Registry(
    "kcciol.data",
    "data set",
    {
        "omniglot": "kcciol.data.omniglot:DATASET",
        "mini-imagenet": "kcciol.data.mini_imagenet:DATASET",
        "cifar100": "kcciol.data.cifar100:DATASET",
        "mnist": "kcciol.data.mnist:DATASET",
        "glyphs": "kcciol.data.glyphs:DATASET",
        "folder": "kcciol.data.folder:DATASET",
    },
    require_dataset,
)


def load(config: DataConfig) -> Splits:
    """The config's data set, divided into base, validation and novel classes."""
    require_kind(config, DataConfig, "config", "config.data")
    found = DATASETS.find(config.name)
    try:
        base, novel = found.load(locate(config))
    except OSError as error:
        raise UserError(f"{sentence(error.filename or locate(config).root, error)}: check the path.") from None
    base = _first(base, config.base_classes, "base")
    novel = _first(novel, config.novel_classes, "novel")
    if both := set(base.names) & set(novel.names):
        raise UserError(
            f"The class {min(both)!r} is a base class and a novel one, but novel classes must not be trained on: "
            "rename or remove one of the two."
        )
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


def require_outside(out: Path, config: DataConfig) -> None:
    """Refuse a run folder that lies among the classes of its own data."""
    root = Path(locate(config).root).resolve()
    known = config.name in DATASETS  # classes of one's own may be called anything
    if known and DATASETS.find(config.name).owns_root and root in (out.resolve(), *out.resolve().parents):
        raise UserError(f"The run folder {out} lies in the data root {root}: choose a folder outside of it.")


def _first(classset: ClassSet, count: int, split: str) -> ClassSet:
    if count > len(classset):
        raise UserError(
            f"data.{split}_classes is {count}, but there are {len(classset)} {split} classes: lower it, or set 0 for "
            "all."
        )
    return classset.classes(0, count or len(classset))


def get(name: str, root: Path) -> list[str]:
    """Download a data set into root; lines that say what was done.

    >>> get("glyphs", Path("data"))
    Traceback (most recent call last):
        ...
    kcciol.errors.UserError: The data set 'glyphs' cannot be downloaded; what it needs: nothing: no files are needed.
    """
    dataset = DATASETS.find(name)
    if dataset.download is None:
        raise UserError(f"The data set {name!r} cannot be downloaded; what it needs: {dataset.layout}.")
    return fetch(dataset.download, root)
