"""kcciol data: list data sets, get one, check it, show it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg

from kcciol.cli.terminal import out, parse, say, with_flags
from kcciol.config import DataConfig
from kcciol.errors import UserError

if TYPE_CHECKING:
    from kcciol.data.classset import ClassSet, Splits


@dataclass(frozen=True)
class DataOptions:
    """Look at data sets: list them, download one, check what is there, or draw a contact sheet.

    list: which data sets there are, and where their files belong. get: download one. check: load one and count.
    show: write a PNG with some images of some classes.
    """

    action: Positional[Literal["list", "get", "check", "show"]]
    """What to do."""
    name: Positional[Annotated[str, arg(metavar="[NAME]")]] = ""
    """The data set; list shows all without it."""
    out: Path = Path("sheet.png")
    """show: the PNG to write."""
    split: Literal["base", "validation", "novel"] = "base"
    """show: which classes."""
    rows: int = 20
    """show: how many classes."""
    columns: int = 10
    """show: how many images of each."""
    data: OmitArgPrefixes[DataConfig] = field(default_factory=DataConfig)


def data(words: Sequence[str]) -> int:
    """Data sets: list, get (download), check, show (a contact sheet)."""
    from kcciol import data as package

    names = ", ".join(package.DATASETS)
    places = zip(["", *words], words, strict=False)  # a word behind a flag is its value
    name = next((word for before, word in places if word in package.DATASETS and not before.startswith("--")), "")
    start = DataOptions("list", name, data=package.DATASETS[name].defaults if name else DataConfig())
    options = parse(DataOptions, "data", list(words) or ["list"], start, f"Data sets: {names}.")
    if options.action == "list":
        table = Table("name", box=None, pad_edge=False)
        table.add_column("what it is, and its files under the data root", overflow="fold")  # a path must not be cut
        if options.name:
            package.DATASETS.find(options.name)
        found, wrong = package.DATASETS.survey(package.DATASETS.find)
        found = {name: dataset for name, dataset in found.items() if options.name in ("", name)}
        for name, dataset in found.items():
            lines = [dataset.description, f"files: {with_flags(dataset.layout)}"]
            table.add_row(name, "\n".join(lines + [f"download: kcciol data get {name}"] * bool(dataset.download)))
        out.print(table)
        for sentence in wrong:
            say(f"kcciol: {sentence}")
        return 0
    if not options.name:
        raise UserError(
            f"kcciol data {options.action} needs the name of a data set behind it, without a flag: {names}."
        )
    package.DATASETS.find(options.name)
    if options.data.name not in (start.data.name, options.name):
        raise UserError(
            f"--name is {options.data.name!r}, but the data set is named without a flag: kcciol data {options.action} "
            f"{options.data.name}."
        )
    config = dataclasses.replace(options.data, name=options.name)
    if options.action == "get":
        for line in package.get(config.name, Path(package.locate(config).root)):
            out.print(line)
    elif options.action == "check":
        splits = package.load(config)
        out.print(f"{config.name}: images of (channels, height, width) {splits.base.image_shape}")
        for split, part in vars(splits).items():
            n = part.counts.tolist() or [0]
            out.print(f"  {split:<10} {len(part)} classes, {sum(n)} images, {min(n)} to {max(n)} a class")
    else:
        package.contact_sheet(_split(package.load(config), options.split), options.out, options.rows, options.columns)
        out.print(f"wrote {options.out}")
    return 0


def _split(splits: Splits, name: str) -> ClassSet:
    part: ClassSet = getattr(splits, name)
    if len(part) == 0:
        raise UserError(f"There are no {name} classes: set data.{name}_classes to a number above 0.")
    return part
