"""What a module of `data/`, or one of another package, says of its data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kcciol.config import DataConfig
from kcciol.data.classset import ClassSet
from kcciol.errors import UserError

Polarity = Literal["dark on light", "light on dark", "any"]


@dataclass(frozen=True)
class Download:
    """Files that can be had from the network."""

    url: str
    """What a file's name is put after, with a slash between."""
    md5: Mapping[str, str]
    """The hash of each file, by name."""
    there: Callable[[Path, str], Path | None]
    """Where under a root a file is already, or what was in it; None where it is not."""
    folder: str = "."
    """Where under the root the files go."""


@dataclass(frozen=True)
class DataSet:
    """All that is known of a data set before its files are read."""

    defaults: DataConfig
    """Its name, and what `kcciol data check` and `show` load when nothing else is said."""
    description: str
    """One line for lists."""
    layout: str
    """Which files belong where under the data root."""
    load: Callable[[DataConfig], tuple[ClassSet, ClassSet]]
    """All base and all novel classes, from a config whose root is resolved."""
    polarity: Polarity
    """Which way round images are; any: photographs, or as the user's own are."""
    channels: int | None
    """1 or 3; None where the files decide. So with the three that follow."""
    base: int | None
    """Base classes that there are."""
    novel: int | None
    """Novel classes that there are."""
    images: int | None
    """Images of each class; of the smallest, where classes differ."""
    download: Download | None = None
    """None where nothing can be downloaded."""
    owns_root: bool = False
    """Every folder in its root belongs to it, so that a run must not be put there."""
    batch: int | None = None
    """Images in a step of supervised training; None: by the number of images."""
    sparsity: float | None = None
    """Mean activation above which SRNN penalises a feature; None: as the config says."""


def require_dataset(found: object) -> None:
    """Raise TypeError for what another package calls a data set, but is none."""
    if not isinstance(found, DataSet):
        raise TypeError(f"its entry point leads to a {type(found).__name__}, not to a kcciol.data.DataSet")


def missing_data(root: Path, lacks: str, name: str, layout: str) -> UserError:
    """What to say where a root has not what a data set that can be downloaded needs."""
    what = f"has no {lacks}" if root.is_dir() else "does not exist"
    return UserError(
        f"The data root {str(root)!r} {what}: run `kcciol data get {name} --root {root}`, or set that root or "
        f"KCCIOL_DATA to a folder that holds {layout}."
    )
