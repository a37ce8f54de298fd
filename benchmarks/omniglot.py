"""Omniglot at full size: three presets, three seeds, 50 trajectories each, beside the paper's numbers.

    python benchmarks/omniglot.py --root data --out results/omniglot.json

Trains and evaluates what is not there yet, so it can be stopped and run again, then writes the table; a quarter of an
hour on one H200. `omniglot-control` has phase 1 in common with `omniglot` and then runs the same steps at the same
rates with gamma = lambda = 0: what is left between the two is what consolidation adds.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from kcciol.atomic import write_json
from kcciol.config import Config, preset
from kcciol.data import load as load_data
from kcciol.data.classset import Splits
from kcciol.engine.execute import pick_device
from kcciol.evaluation.metrics import summarize, t_quantile
from kcciol.measure import measure
from kcciol.meta.phases import train
from kcciol.representation import load as load_representation
from kcciol.representations import with_method
from kcciol.values import to_dict

# Table 1 of the paper: mean and standard deviation
PAPER = {"10": (95.4, 3.4), "50": (85.8, 2.5), "100": (81.4, 2.3), "150": (77.1, 1.6), "200": (72.6, 1.5)}


@dataclass(frozen=True)
class Options:
    root: str = "data"
    """Where Omniglot lies."""
    runs: Path = Path("runs/omniglot-table")
    """Where the runs are kept."""
    out: Path = Path("results/omniglot.json")
    """The table to write."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the representations."""
    minutes: float = 1e9
    """Start no new part after so many minutes; run again to go on."""


# column -> (preset, whether it is the control, phase whose end is evaluated)
COLUMNS = {
    "omniglot-phase1": ("omniglot", False, 1),
    "omniglot-phase2": ("omniglot", False, 2),
    "omniglot": ("omniglot", False, 3),
    "omniglot-control": ("omniglot", True, 3),
    "omniglot-paper": ("omniglot-paper", False, 3),
    "omniglot-literal": ("omniglot-literal", False, 3),
}


PAIR = ("omniglot", "omniglot-control")


def main(options: Options) -> None:
    began = time.monotonic()
    data: Splits | None = None
    for seed in options.seeds:
        for column, (name, is_control, phase) in COLUMNS.items():
            result = options.runs / f"{column}-seed{seed}.json"
            config = settings(name, is_control, seed, options.root)
            if result.exists():
                check_same(result, config)
                continue
            if time.monotonic() - began > options.minutes * 60:
                print("time is up; run again to go on", flush=True)
                return
            data = data or load_data(config.data)
            folder = options.runs / f"{name}{'-control' if is_control else ''}-seed{seed}"
            if not (folder / f"phase{phase}.safetensors").exists():
                start = options.runs / f"{name}-seed{seed}" / "phase1.safetensors" if is_control else None
                clock = time.monotonic()
                train(config, data.base, folder, resume=(folder / "config.toml").exists(), start=start, quiet=True)
                torch.cuda.empty_cache()
                print(f"{folder.name}: trained in {time.monotonic() - clock:.1f} s", flush=True)
            clock = time.monotonic()
            representation = load_representation(folder / f"phase{phase}.safetensors", pick_device("auto"))
            evaluation = replace(config.evaluation, seed=seed)
            write_json(result, measure(representation, data, evaluation))
            cells = json.loads(result.read_text())["classes"]
            row = " / ".join(f"{cell['test']['mean']:.1f}" for cell in cells.values())
            print(f"{result.stem}: {row}  ({time.monotonic() - clock:.1f} s)", flush=True)
    options.out.parent.mkdir(exist_ok=True)
    write_json(options.out, table(options))
    print(f"wrote {options.out}")


def check_same(result: Path, config: Config) -> None:
    """A result of other settings must not stand in for one of these."""
    old = json.loads(result.read_text())
    new = to_dict(config)
    del old["config"]["data"]["root"], new["data"]["root"]
    for part in ("data", "net", "trajectory", "meta", "mask", "phase1", "phase2", "phase3"):
        if old["config"][part] != new[part]:
            sys.exit(f"{result} was made with {part} = {old['config'][part]}, now it is {new[part]}: remove it.")
    if old["evaluation"] | {"seed": 0} != new["evaluation"] | {"seed": 0}:
        sys.exit(f"{result} was evaluated with other settings: remove it.")


def settings(name: str, is_control: bool, seed: int, root: str) -> Config:
    config = with_method(preset(name), "control" if is_control else "kcciol")
    return replace(config, seed=seed, data=replace(config.data, root=root))


def table(options: Options) -> dict[str, Any]:
    """The cells of all columns, pooled over seeds, with what is needed to believe them."""
    parts = {
        column: [json.loads((options.runs / f"{column}-seed{seed}.json").read_text()) for seed in options.seeds]
        for column in COLUMNS
    }
    rows: dict[str, dict[str, Any]] = {
        n: {column: cell([part["classes"][n] for part in parts[column]]) for column in COLUMNS} for n in PAPER
    }
    for n, (mean, std) in PAPER.items():
        rows[n]["paper"] = {"mean": mean, "std": std}
    adds = {n: difference(*([part["classes"][n] for part in parts[c]] for c in PAIR)) for n in PAPER}
    return {
        "title": "Omniglot, online, novel classes, gradient head, held-out images",
        "metric": "accuracy % on images never learned from (mean, std over all trajectories of all seeds)",
        "axis": "classes",
        "columns": [*COLUMNS, "paper"],
        "rows": rows,
        "consolidation adds": adds,
        "seeds": list(options.seeds),
        "settings": {c: p[0]["config"] | {"evaluation": p[0]["evaluation"]} for c, p in parts.items()},
        "record": {c: p[0]["record"] for c, p in parts.items()},
    }


def cell(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One number of classes: pooled over seeds, and by seed."""
    return {
        **pool([part["test"] for part in parts]),
        "by_seed": [part["test"]["mean"] for part in parts],
        "training_images": pool([part["train"] for part in parts]),
        "forgetting": pool([part["forgetting"] for part in parts]),
        "rate": [part["rate"] for part in parts],
    }


def difference(ours: list[dict[str, Any]], control: list[dict[str, Any]]) -> dict[str, Any]:
    """Accuracy minus the control's on the same trajectories: over all of them, and seed by seed."""
    pairs = [
        torch.tensor(a["by_trajectory"]) - torch.tensor(b["by_trajectory"]) for a, b in zip(ours, control, strict=True)
    ]
    return {**summarize(torch.cat(pairs)).to_dict(), "by_seed": [float(pair.mean()) for pair in pairs]}


def pool(parts: list[dict[str, Any]]) -> dict[str, float]:
    """Mean, standard deviation and 95 % half-width over the union of groups of which these are known."""
    n = sum(part["n"] for part in parts)
    mean = sum(part["n"] * part["mean"] for part in parts) / n
    squares = sum((part["n"] - 1) * part["std"] ** 2 + part["n"] * (part["mean"] - mean) ** 2 for part in parts)
    std = math.sqrt(squares / (n - 1))
    return {"mean": mean, "std": std, "n": n, "ci95": t_quantile(n - 1) * std / math.sqrt(n)}


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
