"""Tables 1, 5 and 6 of the paper and the matrix of representations and heads, on Omniglot, in parts that resume.

    python benchmarks/tables.py --root data                    # trains and measures what is not there yet
    python benchmarks/tables.py --root data --minutes 9        # the same, for so long; run again to go on

Every representation is trained on the first 863 base classes; the other 100 are where rates and settings are chosen, by
one rule for all. A part is one thing measured on one representation of one seed: a JSON file in the runs folder. What
is there is made into results/table1.json, table5.json, table6.json and heads.json, beside the paper's numbers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import tyro

from kcciol.atomic import write_json
from kcciol.compare import StreamConfig, measure_learner, with_record, world
from kcciol.config import Config, EvaluationConfig, preset, to_dict
from kcciol.data import load as load_data
from kcciol.data.classset import Splits
from kcciol.engine.execute import pick_device
from kcciol.evaluation.choose import Examples
from kcciol.evaluation.metrics import summarize
from kcciol.learners import learner_type
from kcciol.learners.model import Head
from kcciol.measure import measure
from kcciol.meta.phases import train
from kcciol.representation import Representation
from kcciol.representation import load as load_representation
from kcciol.representations import with_method

PAPER = json.loads((Path(__file__).parent / "paper.json").read_text(encoding="utf-8"))
HELD_OUT = 100
CLASSES = (10, 50, 100, 150, 200, 600)


@dataclass(frozen=True)
class Options:
    root: str = "data"
    """Where Omniglot lies."""
    runs: Path = Path("runs/tables")
    """Where representations and parts are kept."""
    out: Path = Path("results")
    """The folder for the tables."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the representations."""
    columns: tuple[str, ...] = ()
    """Only these; none means all."""
    parts: tuple[str, ...] = ()
    """Only these (table1, heads, table5, table6); none means all."""
    minutes: float = 1e9
    """Start nothing new after so many minutes."""
    tiny: bool = False
    """A rehearsal: small images, a small net, few steps; its numbers mean nothing."""


# --- representations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """How a representation is trained; perhaps from the end of a phase of another column's run on."""

    preset: str
    method: str
    change: Callable[[Config], Config] = lambda config: config
    after: tuple[str, int] | None = None


def first_order(config: Config) -> Config:
    return replace(config, meta=replace(config.meta, order="first"))


def together(config: Config) -> Config:
    """MAML-Rep with our trajectories, remember set, reset and steps: what is left of it is that the images of a
    trajectory are learned together."""
    ours = preset("omniglot")
    meta = replace(config.meta, relabel=False, reset=ours.meta.reset)
    return replace(config, trajectory=ours.trajectory, meta=meta, phase1=replace(ours.phase1, steps=ours.total_steps))


COLUMNS = {
    "scratch": Column("omniglot", "scratch"),
    "pretrained": Column("omniglot", "pretrained"),
    "srnn": Column("omniglot", "srnn"),
    "maml-rep-first": Column("omniglot-paper", "maml-rep", first_order),
    "maml-rep": Column("omniglot-paper", "maml-rep"),
    "mrcl-first": Column("omniglot-paper", "mrcl", first_order),
    "mrcl": Column("omniglot-paper", "mrcl"),
    "oml-first": Column("omniglot-paper", "oml", first_order),
    "oml": Column("omniglot-paper", "oml"),
    "maml-rep-same": Column("omniglot", "maml-rep", together),
    "mrcl-same": Column("omniglot", "phase1", first_order),  # all that is left of it
    "oml-same": Column("omniglot", "phase1"),
    "anml": Column("omniglot-paper", "anml"),
    "kcciol-paper": Column("omniglot-paper", "kcciol"),
    "kcciol": Column("omniglot", "kcciol"),
    "kcciol-o": Column("omniglot", "kcciol-o", after=("kcciol", 2)),
    "gamma0": Column("omniglot", "gamma0", after=("kcciol", 1)),
    "lambda0": Column("omniglot", "lambda0", after=("kcciol", 2)),
    "control": Column("omniglot", "control", after=("kcciol", 1)),
}


def settings(name: str, seed: int, options: Options) -> Config:
    column = COLUMNS[name]
    start = preset(column.preset)
    data = replace(start.data, root=options.root, validation_classes=HELD_OUT)
    config = column.change(with_method(replace(start, seed=seed, data=data), column.method))
    return tiny(config) if options.tiny else config


def tiny(config: Config) -> Config:
    phases = {f"phase{i}": replace(p, steps=min(p.steps, 3)) for i, p in enumerate(config.phases, 1)}
    net = replace(config.net, channels=4, strides=(2, 2, 2), gate=min(config.net.gate, 2))
    return replace(config, data=replace(config.data, size=28), net=net, **phases)  # type: ignore[arg-type]


def trained(name: str, seed: int, options: Options, data: Splits) -> Representation:
    """The representation, trained if it is not there yet."""
    config, folder = settings(name, seed, options), options.runs / f"{name}-seed{seed}"
    if not (folder / "done.json").exists():
        start, after = None, COLUMNS[name].after
        if after is not None:
            trained(after[0], seed, options, data)
            start = options.runs / f"{after[0]}-seed{seed}" / f"phase{after[1]}.safetensors"
        began = time.monotonic()
        train(config, data.base, folder, (folder / "config.toml").exists(), start, quiet=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        seconds = time.monotonic() - began
        write_json(folder / "done.json", {"seconds": seconds})
        print(f"{folder.name}: trained in {seconds:.1f} s", flush=True)
    last = max(i for i in (1, 2, 3) if (folder / f"phase{i}.safetensors").exists())
    return load_representation(folder / f"phase{last}.safetensors", pick_device("auto"))


# --- parts ------------------------------------------------------------------------------------------------------------


def table1(representation: Representation, data: Splits, options: Options) -> dict[str, Any]:
    """Algorithm 4 with Adam, W from zero; for scratch the whole network learns."""
    if representation.config.representation == "scratch":
        stream = streams(options, classes=CLASSES, trajectories=50)
        rates = (3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
        fixed = {"optimizer": "adam", "reserve": 100}
        return measure_learner(world(representation, data, stream, "all"), "online", stream, fixed, {"rate": rates})
    return algorithm4(representation, data, options, CLASSES, "adam")


def algorithm4(
    representation: Representation, data: Splits, options: Options, classes: tuple[int, ...], optimizer: Any
) -> dict[str, Any]:
    config = EvaluationConfig(classes=classes, rule="base", optimizer=optimizer, seed=representation.config.seed)
    if optimizer == "sgd":
        config = replace(config, rates=(1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5))
    if options.tiny:
        config = replace(config, classes=(3, 6), trajectories=2, search_trajectories=2)
    return measure(representation, data, config)


def streams(options: Options, **sizes: Any) -> StreamConfig:
    config = StreamConfig(**sizes)
    if not options.tiny:
        return config
    small = (config.task_classes, 2 * config.task_classes)
    return replace(config, classes=small, trajectories=2, search_trajectories=2, search_classes=5)


HEADS: dict[str, dict[str, Any]] = {"ncm": {}, "gaussian": {"form": "map"}, "slda": {}, "ridge": {}}


def heads(representation: Representation, data: Splits, options: Options) -> dict[str, Any]:
    """Six heads on the same features, after 200 and 600 classes; for scratch the floor of raw pixels too."""
    stream = streams(options, classes=(200, 600), trajectories=50)
    where = world(representation, data, stream)
    found = {"online-sgd": algorithm4(representation, data, options, (200, 600), "sgd")}
    found |= {name: measure_learner(where, name, stream, fixed) for name, fixed in HEADS.items()}
    if representation.config.representation == "scratch":
        novel, base = (pixels(part, stream) for part in (data.novel, data.validation))
        floor = replace(where, novel=novel, base=base, model=Head(novel.train.shape[2]))
        found["pixels"] = measure_learner(floor, "ncm", stream)
    return {"heads": found}


def pixels(data: Any, stream: StreamConfig) -> Examples:
    """Images of 28x28 as features."""
    images = data.images[:, : stream.train_samples + stream.test_samples].to(pick_device("auto")).float() / 255
    small = F.interpolate(images.flatten(0, 1), (28, 28), mode="area").flatten(1).view(*images.shape[:2], -1)
    return Examples(small[:, : stream.train_samples], small[:, stream.train_samples :])


LEARNERS = {"online": "online", "approx-iid": "approx-iid", "mer": "mer", "ewc": "ewc", "er-reservoir": "er"}


def continual(task_classes: int, tasks: int) -> Callable[[Representation, Splits, Options], dict[str, Any]]:
    """Tables 5 and 6: five learners, on a frozen network, and for the supervised one on the whole network too."""

    def part(representation: Representation, data: Splits, options: Options) -> dict[str, Any]:
        order: Any = "task" if task_classes > 1 else "class"
        sizes = {"classes": (task_classes * tasks,), "task_classes": task_classes, "order": order, "trajectories": 10}
        searched = task_classes * min(tasks, HELD_OUT // task_classes)
        stream = streams(options, **sizes, search_classes=searched, budget_images=200)
        cells: dict[str, Any] = {}
        whole = representation.config.representation == "pretrained"
        kinds: tuple[Any, ...] = ("head", "all") if whole else ("head",)
        for trains in kinds:
            if trains == "all":  # a thousand times as costly: choose on shorter streams
                stream = replace(stream, search_classes=4 * max(5, task_classes), search_trajectories=3)
            where = world(representation, data, stream, trains)
            for row, name in LEARNERS.items():
                cells[f"{row}, {trains}"] = measure_learner(where, name, stream, say=say)
                if learner_type(name).card.replay:  # and with the memory that its authors used
                    cells[f"{row} (200 examples), {trains}"] = measure_learner(
                        where, name, stream, {"slots": 200}, say=say
                    )
        return {"cells": cells}

    return part


def say(line: str) -> None:
    print(f"  {line}", flush=True)


PARTS: dict[str, Callable[[Representation, Splits, Options], dict[str, Any]]] = {
    "table1": table1,
    "heads": heads,
    "table5": continual(1, 50),
    "table6": continual(5, 20),
}
ONLY = {"table5": ("pretrained", "oml", "kcciol"), "table6": ("pretrained", "oml", "kcciol")}  # and the first seed


def wanted(options: Options) -> Iterator[tuple[str, int, str]]:
    for seed in options.seeds:
        for column in options.columns or COLUMNS:
            for part in options.parts or PARTS:
                if part not in ONLY or (column in ONLY[part] and seed == options.seeds[0]):
                    yield column, seed, part


def main(options: Options) -> None:
    began = time.monotonic()
    data: Splits | None = None
    for column, seed, part in wanted(options):
        path = options.runs / f"{part}-{column}-seed{seed}.json"
        config = settings(column, seed, options)
        if path.exists():
            check_same(path, config)
            continue
        if time.monotonic() - began > options.minutes * 60:
            print("time is up; run again to go on", flush=True)
            break
        data = data or load_data(config.data)
        representation = trained(column, seed, options, data)
        clock = time.monotonic()
        result = PARTS[part](representation, data, options)
        result = with_record(result, representation, StreamConfig()) if "record" not in result else result
        write_json(path, result | {"part_seconds": time.monotonic() - clock})
        print(f"{path.stem}: {time.monotonic() - clock:.1f} s", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, table in tables(options).items():
        write_json(options.out / f"{name}.json", table)
        print(f"wrote {options.out / name}.json")


def check_same(path: Path, config: Config) -> None:
    """A part of other settings must not stand in for one of these."""
    old, new = json.loads(path.read_text())["config"], to_dict(config)
    for values in (old, new):
        del values["data"]["root"], values["engine"], values["evaluation"]
    if old != new:
        sys.exit(f"{path} was made with other settings: remove it.")


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(options: Options) -> dict[str, Any]:
    """Whatever can be made of the parts that are there."""
    made: dict[str, Any] = {}
    found = {part: gather(options, part) for part in PARTS}
    if found["table1"]:
        made["table1"] = frame("table1", cells1(found["table1"]), found["table1"])
    if found["heads"]:
        for column, results in found["heads"].items():
            for result, one in zip(results, found["table1"].get(column, []), strict=False):
                kept = {n: c for n, c in one["classes"].items() if n in result["heads"]["ncm"]["classes"]}
                result["heads"]["online-adam"] = {"classes": kept}
        made["heads"] = {
            "title": "Omniglot, representations x heads, held-out images",
            "axis": "classes, then representation",
            "rows": cells_heads(found["heads"]),
            **believe(found["heads"]),
        }
    for name in ("table5", "table6"):
        if found[name]:
            made[name] = frame(name, cells5(found[name]), found[name])
    return made


def gather(options: Options, part: str) -> dict[str, list[dict[str, Any]]]:
    """The results of a part by column, one for each seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for column in COLUMNS:
        for seed in options.seeds:
            path = options.runs / f"{part}-{column}-seed{seed}.json"
            if path.exists():
                found.setdefault(column, []).append(json.loads(path.read_text()))
    return found


def frame(name: str, rows: dict[str, dict[str, Any]], parts: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """In the shape of the paper's tables, whose numbers stand in the columns `paper: ...`."""
    for row, cells in PAPER[name]["rows"].items():
        rows.setdefault(row, {}).update({f"paper: {c}": cell for c, cell in cells.items()})
    columns = list(dict.fromkeys(c for cells in rows.values() for c in cells))
    about = {k: PAPER[name][k] for k in ("title", "axis")}
    return {**about, "metric": "accuracy % on held-out images", "columns": columns, "rows": rows, **believe(parts)}


def believe(parts: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Settings, record and time of each column's first seed."""
    first = {column: results[0] for column, results in parts.items()}
    return {
        "seeds": {column: [r["config"]["seed"] for r in results] for column, results in parts.items()},
        "settings": {column: r["config"] for column, r in first.items()},
        "record": {column: r["record"] for column, r in first.items()},
        "seconds": {column: [r["part_seconds"] for r in results] for column, results in parts.items()},
    }


def pooled(values: list[list[float]]) -> dict[str, Any]:
    """All trajectories of all seeds, and the seeds' means."""
    flat = torch.tensor([v for part in values for v in part])
    means = [sum(part) / len(part) for part in values]
    return {**summarize(flat).to_dict(), "by_seed": means, "by_trajectory": flat.tolist()}


def cells1(parts: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for column, results in parts.items():
        for n in results[0]["classes"]:
            cells = [result["classes"][n] for result in results]
            rows.setdefault(n, {})[column] = pooled([c["by_trajectory"] for c in cells]) | {
                "choice": chosen(results, n)
            }
    return rows


def chosen(results: list[dict[str, Any]], n: str) -> list[Any]:
    """The rate that each seed chose."""
    return [
        r["classes"][n]["rate"]["chosen"] if "rate" in r["classes"][n] else r["choice"]["settings"] for r in results
    ]


def cells_heads(parts: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, dict[str, Any]]]:
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for column, results in parts.items():
        for head in results[0]["heads"]:
            for n in results[0]["heads"][head]["classes"]:
                values = [result["heads"][head]["classes"][n]["by_trajectory"] for result in results]
                rows.setdefault(n, {}).setdefault(column, {})[head] = pooled(values)
    return rows


def cells5(parts: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    names = {"oml": "oml", "kcciol": "kcciol"}
    rows: dict[str, dict[str, Any]] = {}
    for column, results in parts.items():
        for key, cell in results[0]["cells"].items():
            row, trains = key.split(", ")
            shown = names.get(column, "standard" if trains == "all" else "pretraining")
            last = list(cell["classes"].values())[-1]
            more = {k: cell.get(k) for k in ("bytes", "replay", "within_budget", "seconds", "chosen_on")}
            rows.setdefault(row, {})[shown] = {
                **{k: last[k] for k in ("mean", "std", "n", "ci95")},
                "settings": cell["choice"]["settings"],
                **more,
            }
    return rows


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
