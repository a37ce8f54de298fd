"""Runs that learn sine functions, and those that learn digits: how each is trained and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from kcciol.cli.terminal import out
from kcciol.paper.gan.settings import GenerationConfig
from kcciol.paper.sine.settings import RegressionConfig

Member = RegressionConfig | GenerationConfig


@dataclass(frozen=True)
class Problem:
    """What sets runs of one kind apart."""

    what: str
    """What they learn."""
    flags: tuple[str, ...]
    """Of evaluate, that are for these alone."""
    train: Callable[[list[Any], Path, bool, bool, str], object]
    """Members, in a folder; whether to resume, whether to be quiet, where data lie."""
    measure: Callable[..., list[dict[str, Any]]]
    """Of the end of a phase, on a device, with those flags: a result of each member. Prints a table of them."""


def _train_functions(members: list[RegressionConfig], folder: Path, resume: bool, quiet: bool, root: str) -> None:
    from kcciol.paper.sine.train import train_sine

    train_sine(members, folder, resume, quiet)


def _measure_functions(path: Path, device: str, runs: int, rate: float) -> list[dict[str, Any]]:
    from kcciol.engine.device import pick_device
    from kcciol.paper.sine.evaluate import measure
    from kcciol.paper.sine.train import load_sine

    configs, state = load_sine(path)
    table = Table("functions seen", *names_of(configs), box=None, pad_edge=False)
    results: list[dict[str, Any]] = []
    for config, Theta in zip(configs, state.tensors["Theta"].to(pick_device(device)), strict=True):
        own = rate or config.phase1.alpha
        rows = measure(config, Theta, config.seed, runs, own)
        results.append({"seed": config.seed, "rate": own, "functions": rows})
    for n in results[0]["functions"]:
        table.add_row(n, *(_error(result["functions"][n]) for result in results))
    out.print(table)
    return results


def _error(cell: dict[str, Any]) -> str:
    if cell["mean"] is None:
        return "all runs diverged"
    form = ".3f" if 1e-2 <= cell["mean"] < 1e5 else ".2g"
    spread = "" if cell["ci95"] is None else f" ± {cell['ci95']:{form}}"
    return f"{cell['mean']:{form}}{spread}" + (f" ({cell['diverged']} diverged)" if cell["diverged"] else "")


def _train_digits(members: list[GenerationConfig], folder: Path, resume: bool, quiet: bool, root: str) -> None:
    from kcciol.paper.gan.digits import BASE, digits
    from kcciol.paper.gan.train import train_digits

    train_digits(members, digits(root).base, BASE, folder, resume, quiet)


def _measure_digits(path: Path, device: str, root: str) -> list[dict[str, Any]]:
    from kcciol.engine.device import pick_device
    from kcciol.paper.gan.digits import BASE, NOVEL, classifier, digits, measure
    from kcciol.paper.gan.train import load_digits

    data = digits(root)
    configs, state = load_digits(data.base, BASE, path)
    judge, real = classifier(data, pick_device(device), epochs=3)
    table = Table("rate", *(f"{name}: {d}" for name in names_of(configs) for d in NOVEL), box=None, pad_edge=False)
    results: list[dict[str, Any]] = []
    for config, Theta in zip(configs, state.tensors["Theta"].to(pick_device(device)), strict=True):
        found = measure(config, Theta, data.novel, judge, batches=25)
        results.append({"seed": config.seed, "classifier on held-out real images": real, **found})
    for rate in results[0]["rates"]:
        shares = [share for r in results for share in r["rates"][rate]["right"][-1]]
        table.add_row(rate, *(f"{100 * share:.0f} %" for share in shares))
    out.print(table)
    return results


def names_of(configs: Sequence[Member]) -> list[str]:
    """What to call runs; numbered where the seed is not enough."""
    seeds = [one.seed for one in configs]
    numbered = len(set(seeds)) < len(seeds)
    return [f"{number}, seed {seed}" if numbered else f"seed {seed}" for number, seed in enumerate(seeds, 1)]


PROBLEMS = {
    "regression": Problem("functions", ("runs", "rate"), _train_functions, _measure_functions),
    "generation": Problem("digits", ("root",), _train_digits, _measure_digits),
}
