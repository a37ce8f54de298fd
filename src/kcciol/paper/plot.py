"""A figure: its numbers as JSON, and a picture of them beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcciol.files import replacing
from kcciol.paper.cellfile import provenance_of, trained_with
from kcciol.paper.formats import FIGURE
from kcciol.paper.rehearsal import REHEARSAL, is_rehearsal


@dataclass(frozen=True)
class Plot:
    """A figure that is not written yet."""

    name: str
    title: str
    caption: str
    numbers: Mapping[str, float]
    data: Any
    results: Mapping[str, Sequence[Mapping[str, Any]]]
    """What it was made of: by column, a result of each seed, with its config and record."""
    size: tuple[float, float]
    """Of the picture, in inches."""
    paint: Callable[[Any], None]
    """Fill a matplotlib figure of that size."""

    @property
    def seeds(self) -> dict[str, list[int]]:
        return {column: [r["config"]["seed"] for r in results] for column, results in self.results.items()}

    def lost(self, old: Mapping[str, Any]) -> list[str]:
        """The columns of an earlier figure which are not in this one, or here with fewer seeds."""
        try:
            seeds = {str(column): set(numbers) for column, numbers in old["seeds"].items()}
        except (KeyError, TypeError, AttributeError):  # nothing to lose
            return []
        if is_rehearsal(old):
            return []
        return [column for column, there in seeds.items() if not there <= set(self.seeds.get(column, []))]

    def write(self, folder: Path, rehearsal: bool = False) -> Path:
        """NAME.json, and NAME.png where there is matplotlib."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        figure = {
            "title": (REHEARSAL if rehearsal else "") + self.title,
            "caption": self.caption,
            "numbers": dict(self.numbers),
            "seeds": self.seeds,
            "data": self.data,
            "settings": {column: trained_with(results[0]["config"]) for column, results in self.results.items()},
            "record": {column: results[0]["record"] for column, results in self.results.items()},
            **provenance_of([result for results in self.results.values() for result in results]),
        }
        if picture(path.with_suffix(".png"), self.size, self.paint):
            figure["image"] = f"{self.name}.png"
        FIGURE.write(path, figure)
        return path


def picture(path: Path, size: tuple[float, float], paint: Callable[[Any], None], dpi: int = 110) -> bool:
    """A matplotlib figure of this size as a PNG file; False, and none, without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=size, layout="constrained", dpi=dpi)
    paint(figure)
    with replacing(path) as beside:
        figure.savefig(beside, format="png", metadata={"Software": None})
    return True
