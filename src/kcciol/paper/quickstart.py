"""The whole method in minutes: train three phases on glyphs, then learn novel glyphs online, before and after each."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from kcciol.config import Config
from kcciol.data import load as load_data
from kcciol.encoders.run import Representation, load
from kcciol.engine.device import pick_device
from kcciol.engine.record import record
from kcciol.engine.run_folder import RunFolder
from kcciol.errors import visible
from kcciol.evaluation.measure import measure
from kcciol.evaluation.metrics import STAR, with_interval
from kcciol.evaluation.results import RESULT
from kcciol.meta.phases import train
from kcciol.paper.plot import picture
from kcciol.serialization import to_dict


def run(config: Config, out: Path) -> dict[str, Any]:
    """Train (or continue) in the folder `out`, evaluate, print the table, save numbers and plot."""
    console = Console(highlight=False, markup=False)
    began = time.perf_counter()
    data = load_data(config.data)
    console.print(
        f"{len(data.base)} base classes to meta-train on, {len(data.novel)} novel classes to learn afterwards, "
        f"images of {config.data.size}x{config.data.size} pixels."
    )
    device = pick_device(config.engine.device)

    def learn(name: str, representation: Representation) -> None:
        """Learn novel classes online, for each number of classes."""
        with console.status(f"learning novel classes online: {name}"):
            results[name] = measure(representation, data, config.evaluation)["classes"]

    results: dict[str, Any] = {}
    learn("scratch", Representation.untrained(config, data.base, device))  # shows at once what the data cannot meet
    folder = RunFolder(out)
    clock = time.perf_counter()
    train(config, data.base, out, resume=folder.config.exists())
    trained = time.perf_counter() - clock
    for number in (1, 2, 3):
        if folder.phase(number).exists():
            learn(f"phase {number}", load(folder.phase(number), device))
    seconds = {"training": trained, "total": time.perf_counter() - began}
    summary = {
        "title": "quickstart: accuracy (%) on held-out images of novel glyph classes, each learned online",
        "columns": results,
        "seconds": seconds,
        "peak_memory_gib": peak_memory_gib(),
        "config": to_dict(config),
        "seed": config.seed,
        "record": record(),
    }
    RESULT.write(out / "quickstart.json", summary)
    console.print(_table(config, results))
    if any("ci95_of_images" in cell for column in results.values() for cell in column.values()):
        console.print(STAR)
    console.print(
        f"{config.evaluation.trajectories} trajectories each, ± 95 % interval; every image seen once, nothing stored; "
        "scratch is the untrained network. "
        f"{seconds['total']:.0f} s in all."
    )
    if picture(out / "quickstart.png", (6.0, 4.0), lambda figure: _plot(figure, results), dpi=150):
        console.print(visible(f"The plot is {out / 'quickstart.png'}; the representation is {folder.phase(3)}."))
    else:
        more = "pip install 'kcciol[plots]' to have a plot too."
        console.print(visible(f"The representation is {folder.phase(3)}; {more}"))
    return summary


def _table(config: Config, results: dict[str, Any]) -> Table:
    table = Table("classes", *results, title="Accuracy (%) on held-out images of novel classes learned online")
    for n in config.evaluation.classes:
        cells = [results[name][str(n)]["test"] for name in results]
        table.add_row(str(n), *(with_interval(c) for c in cells))
    return table


def _plot(figure: Any, results: dict[str, Any]) -> None:
    """Accuracy over classes seen, in the longest trajectories."""
    axes = figure.subplots()
    for name, by_length in results.items():
        curve = by_length[max(by_length, key=int)]["curve"]
        seen, mean = [p["classes_seen"] for p in curve], [p["mean"] for p in curve]
        half = [p["ci95"] or 0 for p in curve]
        (line,) = axes.plot(seen, mean, marker="o", markersize=3, label=name)
        low, high = [m - h for m, h in zip(mean, half, strict=True)], [m + h for m, h in zip(mean, half, strict=True)]
        axes.fill_between(seen, low, high, color=line.get_color(), alpha=0.2)
    axes.set(xlabel="novel classes seen", ylabel="accuracy on held-out images (%)", ylim=(0, 100))
    axes.set_title("Learning new classes one example at a time")
    axes.grid(alpha=0.3)
    axes.legend()


def peak_memory_gib() -> float:
    """The most memory this process has held, on the host and on the GPU; 0 for the host where it cannot be known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
    return host + (torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0)
