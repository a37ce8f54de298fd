"""kcciol data: list data sets, get one, check it, show it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.table import Table
from tyro.conf import Positional, arg

from kcciol.cli.terminal import out, parse
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
    name: Positional[str] = ""
    """The data set, for get, check and show."""
    out: Path = Path("sheet.png")
    """show: the PNG to write."""
    split: Literal["base", "validation", "novel"] = "base"
    """show: which classes."""
    rows: int = 20
    """show: how many classes."""
    columns: int = 10
    """show: how many images of each."""
    data: Annotated[DataConfig, arg(name="")] = field(default_factory=DataConfig)


def data(words: Sequence[str]) -> int:
    """Data sets: list, get (download), check, show (a contact sheet)."""
    from kcciol import data as package

    names = ", ".join(package.DATASETS)
    name = next((word for word in words if word in package.DATASETS), "")
    start = DataOptions("list", name, data=package.DATASETS[name].defaults if name else DataConfig())
    options = parse(DataOptions, "data", list(words) or ["list"], start, f"Data sets: {names}.")
    if options.action == "list":
        table = Table("name", "what it is", "download")
        table.add_column("where its files belong, under the data root", overflow="fold")
        for name, dataset in package.DATASETS.items():
            get = f"kcciol data get {name}" if dataset.download else "-"
            table.add_row(name, dataset.description, get, dataset.layout)
        out.print(table)
        return 0
    if not options.name:
        raise UserError(f"kcciol data {options.action} needs the name of a data set: {names}.")
    package.DATASETS.find(options.name)
    config = dataclasses.replace(options.data, name=options.name)
    if options.action == "get":
        for line in package.get(config.name, Path(package.locate(config).root)):
            out.print(line)
    elif options.action == "check":
        report = package.check(config)
        out.print(f"{report.name}: images of (channels, height, width) {report.image_shape}")
        for part in report.splits:
            out.print(
                f"  {part.split:<10} {part.classes} classes, {part.images} images, {part.fewest} to {part.most} a class"
            )
    else:
        package.contact_sheet(_split(package.load(config), options.split), options.out, options.rows, options.columns)
        out.print(f"wrote {options.out}")
    return 0


def _split(splits: Splits, name: str) -> ClassSet:
    part: ClassSet = getattr(splits, name)
    if len(part) == 0:
        raise UserError(f"There are no {name} classes: set data.{name}_classes to a number above 0.")
    return part
