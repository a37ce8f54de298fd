"""A results folder, read: the contract between those who measure and the page.

Every `table*.json` and `heads.json` is a table:

    {"title", "axis", "metric", "columns": [column, ...],
     "rows": {row: {column: {"mean", "std", "n", "ci95", "by_seed", "choice" or "settings", "bytes", "seconds", ...}}},
     "seeds", "settings", "record", "training_seconds", "seconds": {column: ...},
     "device_seconds": [{"seconds", "jobs"}, ...], "lower_is_better": true, "notes": {row or column: text}}

Only `rows`, and `mean` in a cell, must be there. A column `paper: X` holds the paper's numbers for column X. The rows
may lie one level deeper, {group: {row: {column: cell}}}, as in heads.json; the axis is then "group, then row". A cell
that is null was not measured. `settings`, `record` and the like hold one entry for each column, or one for all.

Every `figures/NAME.json` is a figure: {"title", "caption", "numbers": {name: value}, "image": "NAME.png"}, the image
being a PNG or SVG file beside it. Every other JSON file is kept as it is. A file that cannot be read, or is not what
its name says, is left out, with a warning.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kcciol.errors import UserError
from kcciol.files import LARGEST_TEXT, parse_json, read_json
from kcciol.files.regular import read_regular
from kcciol.paper.formats import FIGURE, PAPER, TABLE

METHOD = "kcciol"  # the column of the paper's method
IMAGES = {".png": "image/png", ".svg": "image/svg+xml"}
ROUNDING = 1e-9  # a mean of floats that should equal a printed number may fall short of it by so much
DEEPEST = 50  # levels that a person would still follow
LARGEST_IMAGE = 2**26  # bytes
LARGEST = 1e100  # what is larger is no measurement, and its square overflows
Verdict = Literal["reached", "within", "missed"]


class Unfit(Exception):
    """A file is not what its name says. The message is a clause that says why."""


@dataclass(frozen=True)
class TableCell:
    """A number, how sure it is, and whatever else is known about it."""

    mean: float
    ci95: float | None
    std: float | None
    about: dict[str, Any]


@dataclass(frozen=True)
class CellGrid:
    """Rows and columns; a table has one, or one for each group."""

    group: str
    columns: list[str]
    rows: dict[str, dict[str, TableCell]]

    @property
    def paired(self) -> list[str]:
        """Columns that the paper has too, in its order, whether they were measured or not."""
        return [c.removeprefix(PAPER) for c in self.columns if c.startswith(PAPER)]

    @property
    def plain(self) -> list[str]:
        """Columns that the paper does not have."""
        return [c for c in self.columns if not c.startswith(PAPER) and PAPER + c not in self.columns]

    def own(self) -> Iterator[tuple[str, str, TableCell]]:
        """Row, column and cell of all that was measured."""
        for row, cells in self.rows.items():
            for column, cell in cells.items():
                if not column.startswith(PAPER):
                    yield row, column, cell


@dataclass(frozen=True)
class ResultTable:
    name: str
    title: str
    metric: str
    axis: str
    groups: str
    """What the groups are, when there are any."""
    grids: list[CellGrid]
    lower: bool
    """Lower is better."""
    notes: dict[str, str]
    about: dict[str, Any]
    """The file without its rows."""

    @property
    def short(self) -> str:
        """What its title says before the first comma; after a colon, if there is one: that may be a warning."""
        warning, colon, name = self.title.rpartition(": ")
        return warning + colon + name.split(",")[0]

    @property
    def measure(self) -> str:
        """The metric, and which way is better where that is not plain."""
        return self.metric + (" (lower is better)" if self.lower else "")

    @property
    def every(self) -> list[TableCell]:
        """All cells, the paper's too."""
        return [cell for grid in self.grids for cells in grid.rows.values() for cell in cells.values()]

    def aims_at(self, column: str) -> bool:
        """Whether the paper's number is one to reach: those of the method itself, where the file says which."""
        ours = self.about.get("ours")
        return not isinstance(ours, list) or column in ours


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    caption: str
    numbers: dict[str, Any]
    image: bytes
    """None is empty."""
    kind: str
    """The MIME type of the image."""
    about: dict[str, Any]


@dataclass(frozen=True)
class Other:
    """A JSON file that is neither."""

    name: str
    value: Any
    text: bytes


@dataclass(frozen=True)
class Results:
    tables: list[ResultTable]
    figures: list[Figure]
    others: list[Other]
    warnings: list[str]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Every record (time, commit, versions, hardware), wherever it lies."""
        values = [t.about for t in self.tables] + [f.about for f in self.figures] + [o.value for o in self.others]
        return [r for value in values for r in records_in(value)]


def verdict(ours: TableCell, paper: TableCell, lower: bool = False) -> Verdict:
    """Whether the paper's number is reached, missed by less than the 95 % interval, or missed.

    >>> verdict(TableCell(81.0, 0.5, None, {}), TableCell(81.4, None, None, {}))
    'within'
    """
    short = (ours.mean - paper.mean) if lower else (paper.mean - ours.mean)
    if short <= ROUNDING:
        return "reached"
    return "within" if short <= (ours.ci95 or 0.0) else "missed"


def read(folder: Path) -> Results:
    """All that lies in the folder."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}: name the one that holds the results.")
    found = Results([], [], [], [])
    figures = folder / "figures"
    if figures.exists() and not figures.is_dir():
        found.warnings.append("figures is left out: it is no folder.")
    for path in [*_json_files(folder), *_json_files(figures)]:
        try:
            _take(path, path.parent != folder, found)
        except Unfit as unfit:
            found.warnings.append(f"{path.relative_to(folder).as_posix()} is left out: {unfit}.")
    if not (found.tables or found.figures or found.others):
        broken = f" that can be read ({' '.join(found.warnings)})" if found.warnings else ""
        raise UserError(f"The folder {folder} holds no result{broken}: name one with JSON files of results.")
    return found


def read_table(path: Path) -> ResultTable:
    """One table."""
    try:
        return _table(path.stem, TABLE.updated(read_json(path)))
    except (Unfit, ValueError) as error:
        raise UserError(f"{path} cannot be shown: {error}.") from None


def records_in(value: Any) -> list[dict[str, Any]]:
    """The records in a file's value: one for all, or one for each column."""
    record = value.get("record") if isinstance(value, dict) else None
    if not isinstance(record, dict):
        return []
    return [record] if "time" in record else [r for r in record.values() if isinstance(r, dict) and "time" in r]


def _json_files(folder: Path) -> list[Path]:
    """As a person would order them: table2 before table10, tables before heads."""

    def order(path: Path) -> tuple[bool, list[tuple[int, str]]]:
        parts = re.findall(r"\d+|\D+", path.stem)
        return not path.stem.startswith("table"), [(int(p), "") if p.isdecimal() else (-1, p) for p in parts]

    return sorted(folder.glob("*.json"), key=order)


def _take(path: Path, figure: bool, found: Results) -> None:
    if path.exists() and not path.is_file():
        raise Unfit("it is no file")
    try:
        text = read_regular(path, LARGEST_TEXT)
        value = parse_json(text, levels=DEEPEST, parse_int=_integer)
    except OSError as error:
        raise Unfit(f"it cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise Unfit(f"it is not whole JSON ({error})") from None
    table = path.stem.startswith("table") or path.stem == "heads"
    if not figure and not table:
        found.others.append(Other(path.name, value, text))
        return
    try:
        value = (FIGURE if figure else TABLE).updated(value)
    except ValueError as error:
        raise Unfit(str(error)) from None
    if figure:
        found.figures.append(_figure(path, value, found.warnings))
    else:
        found.tables.append(_table(path.stem, value))


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(name: str, value: Any) -> ResultTable:
    about = _dict(value, "it")
    rows = _dict(about.get("rows"), "rows")
    axis, _, inner = _text(about.get("axis")).partition(", then ")
    if inner or _is_deep(rows):
        grids = [_grid(group, about, _dict(part, f"group {group!r}")) for group, part in rows.items()]
    else:
        grids = [_grid("", about, rows)]
    if not any(grid.rows for grid in grids):
        raise Unfit("it has no cell")
    return ResultTable(
        name=name,
        title=_text(about.get("title")) or name,
        metric=_text(about.get("metric")),
        axis=inner if inner else ("" if _is_deep(rows) else axis),
        groups=axis,
        grids=grids,
        lower=about.get("lower_is_better") is True,
        notes=_notes(about.get("notes")),
        about={k: v for k, v in about.items() if k != "rows"},
    )


def _is_deep(rows: dict[str, Any]) -> bool:
    """Whether cells lie one level deeper: what stands in a cell's place holds cells."""
    for cells in rows.values():
        for cell in cells.values() if isinstance(cells, dict) else ():
            if isinstance(cell, dict):
                return "mean" not in cell
    return False


def _grid(group: str, about: dict[str, Any], rows: dict[str, Any]) -> CellGrid:
    read: dict[str, dict[str, TableCell]] = {}
    for row, cells in rows.items():
        found = {c: _cell(v, f"row {row!r}, column {c!r}") for c, v in _dict(cells, f"row {row!r}").items() if v}
        if found:
            read[row] = found
    compared = about.get("compared")
    for column, printed in compared.items() if isinstance(compared, dict) else ():
        for cells in read.values():
            if column in cells and f"{PAPER}{printed}" in cells:
                cells[f"{PAPER}{column}"] = cells[f"{PAPER}{printed}"]
    named = about.get("columns")
    used = {c: None for cells in read.values() for c in cells}
    first = [c for c in named if isinstance(c, str) and c in used] if isinstance(named, list) else []
    return CellGrid(group, list(dict.fromkeys([*first, *used])), read)


def _cell(value: Any, place: str) -> TableCell:
    cell = _dict(value, place)
    mean = _number(cell.get("mean"), f"the mean of {place}")
    if mean is None and cell.get("diverged"):  # an error that is not finite in some of its runs
        mean = math.inf
    if mean is None:
        raise Unfit(f"{place} has no mean")
    ci95, std = (_number(cell.get(k), f"{k} of {place}", lowest=0.0) for k in ("ci95", "std"))
    if ci95 == 0:  # as older results have it where all values are equal: there is no spread to measure
        ci95 = None
    return TableCell(mean, ci95, std, {k: v for k, v in cell.items() if k not in ("mean", "ci95", "std")})


def _notes(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        return {"": value}
    return {k: _text(v) for k, v in _dict(value or {}, "notes").items()}


# --- figures ----------------------------------------------------------------------------------------------------------


def _figure(path: Path, value: Any, warnings: list[str]) -> Figure:
    about = _dict(value, "it")
    name, image, kind = _text(about.get("image")), b"", ""
    if name:
        try:
            image, kind = _image(path.parent, name)
        except Unfit as unfit:
            warnings.append(f"figures/{path.name} is shown without its image: {unfit}.")
    return Figure(
        name=path.stem,
        title=_text(about.get("title")) or path.stem,
        caption=_text(about.get("caption")),
        numbers=_dict(about.get("numbers") or {}, "numbers"),
        image=image,
        kind=kind,
        about=about,
    )


def _image(folder: Path, name: str) -> tuple[bytes, str]:
    if Path(name).name != name or Path(name).suffix not in IMAGES:
        raise Unfit(f"{name!r} is not the name of a PNG or SVG file beside it")
    try:
        image = read_regular(folder / name, LARGEST_IMAGE)
    except OSError as error:
        raise Unfit(f"{name!r} cannot be read ({error.strerror or error})") from None
    whole = image.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in image[-12:]
    if not whole if name.endswith(".png") else b"<svg" not in image:
        raise Unfit(f"{name!r} is not a {Path(name).suffix[1:].upper()} image")
    return image, IMAGES[Path(name).suffix]


# --- values -----------------------------------------------------------------------------------------------------------


def _dict(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unfit(f"{what} is not an object with names")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _number(value: Any, what: str, lowest: float = -LARGEST) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= LARGEST:
        large = not isinstance(value, bool) and isinstance(value, int | float) and LARGEST < abs(value) < math.inf
        kind = "too large a number" if large else "not a number of 0 or more" if lowest == 0 else "not a number"
        raise Unfit(f"{what} is {str(value)[:40]!r}, {kind}")
    return float(value)


def _integer(text: str) -> int:
    value = int(text) if len(text) < 1000 else 10**1000
    if abs(value) > LARGEST:
        raise Unfit(f"a number in it has {len(text)} digits")
    return value
