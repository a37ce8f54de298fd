"""The images of a setting: from the data set, or from one file that holds no more than is needed.

Such a file is for a machine that the data set is too large to be sent to.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kcciol.data import load as load_data
from kcciol.data import locate
from kcciol.data.classset import ClassSet, Splits
from kcciol.files.tensors import Format, read_tensors, write_tensors
from kcciol.paper.consolidation.plan import Setting

FORMAT = Format("images", ())
PARTS = ("base", "validation", "novel")


def load_sets(setting: Setting, root: str = "") -> Splits:
    """Base, validation and novel classes, from the folder `root` or that of KCCIOL_DATA."""
    config = locate(replace(setting.config.data, root=root))
    packed = packed_file(setting, Path(config.root))
    return _read(packed) if packed.exists() else trimmed(setting, load_data(config))


def trimmed(setting: Setting, data: Splits) -> Splits:
    """The same without images that nobody looks at."""
    samples = setting.streams.train_samples + setting.streams.test_samples
    base = data.base.first_samples(setting.config.data.train_samples or data.base.images.shape[1])
    return Splits(base, data.validation.first_samples(samples), data.novel.first_samples(samples))


def packed_file(setting: Setting, folder: Path) -> Path:
    return folder / f"consolidation-{setting.name}.safetensors"


def pack(setting: Setting, folder: Path) -> Path:
    """Write the images of a setting into one file of a folder."""
    data, path = load_sets(setting), packed_file(setting, folder)
    parts = {name: getattr(data, name) for name in PARTS}
    tensors = {f"{name}.images": part.images.contiguous() for name, part in parts.items()}
    tensors |= {f"{name}.counts": part.counts for name, part in parts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(path, FORMAT, {"names": {name: part.names for name, part in parts.items()}}, tensors)
    return path


def _read(path: Path) -> Splits:
    header, tensors = read_tensors(path, FORMAT)
    sets = (ClassSet(tensors[f"{p}.images"], tensors[f"{p}.counts"], tuple(header["names"][p])) for p in PARTS)
    return Splits(*sets)
