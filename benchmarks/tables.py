"""Tables 1, 5 and 6 of the paper and the matrix of representations and heads, on Omniglot, in parts that resume.

    python benchmarks/tables.py --root data                    # trains and measures what is not there yet
    python benchmarks/tables.py --root data --minutes 9        # the same, for so long; run again to go on
    python benchmarks/tables.py --root data --jobs 6           # in six processes (start CUDA's MPS daemon before)

Every representation is trained on the first 863 base classes; the other 100 are where rates and settings are chosen, by
one rule for all. A cell is one thing measured on one representation of one seed: a JSON file in the runs folder. What
is there is made into results/table1.json, table5.json, table6.json and heads.json, beside the paper's numbers.
"""

from __future__ import annotations

import functools
import json
import math
import subprocess
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
from kcciol.compare import StreamConfig, Trained, World, measure_learner, with_record, world
from kcciol.config import Config, EngineConfig, EvaluationConfig, preset, to_dict
from kcciol.data import load as load_data
from kcciol.data.classset import ClassSet, Splits
from kcciol.engine.execute import pick_device, set_precision
from kcciol.engine.stop import Stopped
from kcciol.evaluation import Features, evaluate
from kcciol.evaluation.choose import RATES, Examples, grid_of
from kcciol.evaluation.metrics import summarize
from kcciol.learners import learner_type
from kcciol.learners.model import Head
from kcciol.meta.phases import train
from kcciol.representation import Representation
from kcciol.representation import load as load_representation
from kcciol.representations import with_method

PAPER = json.loads((Path(__file__).parent / "paper.json").read_text(encoding="utf-8"))
HELD_OUT = 100
CLASSES = (10, 50, 100, 150, 200, 600)
CHOSEN_ON = "base classes kept out of training"


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
    """Stop after so many minutes; what is being trained goes on from there the next time."""
    jobs: int = 1
    """Processes at once."""
    tables: bool = True
    """Write the tables at the end."""
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
        start, after, resume = None, COLUMNS[name].after, (folder / "config.toml").exists()
        if after is not None and not resume:
            trained(after[0], seed, options, data)
            start = options.runs / f"{after[0]}-seed{seed}" / f"phase{after[1]}.safetensors"
        spent, began = folder / "seconds.json", time.monotonic()
        before = json.loads(spent.read_text()) if spent.exists() else 0.0
        try:
            train(config, data.base, folder, resume, start, quiet=True)
        finally:
            seconds = before + time.monotonic() - began
            if folder.exists():
                write_json(spent, seconds)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        write_json(folder / "done.json", {"seconds": seconds})
        print(f"{folder.name}: trained in {seconds:.1f} s", flush=True)
    last = max(i for i in (1, 2, 3) if (folder / f"phase{i}.safetensors").exists())
    return load_representation(folder / f"phase{last}.safetensors", pick_device("auto"))


def trained_seconds(name: str, seed: int, options: Options) -> float:
    """How long that took, without the phases of another column that it began after."""
    return float(json.loads((options.runs / f"{name}-seed{seed}" / "done.json").read_text())["seconds"])


# --- cells ------------------------------------------------------------------------------------------------------------


class Bench:
    """One representation, and what is needed to measure on it, made when it is first asked for."""

    def __init__(self, column: str, seed: int, options: Options) -> None:
        self.column, self.seed, self.options = column, seed, options

    @functools.cached_property
    def data(self) -> Splits:
        return _data(settings(self.column, self.seed, self.options).data)

    @functools.cached_property
    def representation(self) -> Representation:
        return trained(self.column, self.seed, self.options, self.data)

    def stream(self, **sizes: Any) -> StreamConfig:
        config = StreamConfig(seed=self.seed, **sizes)
        if not self.options.tiny:
            return config
        small = (config.task_classes, 2 * config.task_classes)
        return replace(config, classes=small, trajectories=2, search_trajectories=2, search_classes=5)

    @functools.cached_property
    def features(self) -> dict[str, Features]:
        """Of novel classes, of those that settings are chosen on, and of those trained on."""
        stream, r = StreamConfig(), self.representation
        set_precision(EngineConfig(), r.Theta.device)
        parts = {"novel": self.data.novel, "validation": self.data.validation, "base": self.data.base}
        r.refuse_known(self.data.novel, "novel")
        return {n: r.split_features(part, stream.train_samples, stream.test_samples) for n, part in parts.items()}

    @functools.cache  # noqa: B019
    def world(self, trains: Trained) -> World:
        if trains == "all":
            return world(self.representation, self.data, self.stream(classes=(max(CLASSES),)), trains)
        novel, base = (Examples(f.train, f.test) for f in (self.features["novel"], self.features["validation"]))
        size = math.prod(self.data.base.image_shape)
        return World(novel, base, Head(novel.train.shape[2]), trains, CHOSEN_ON, size)

    @functools.cached_property
    def pixels(self) -> World:
        """Images of 28x28 as features."""
        novel, base = (_pixels(part) for part in (self.data.novel, self.data.validation))
        return replace(self.world("head"), novel=novel, base=base, model=Head(novel.train.shape[2]))

    def algorithm4(self, classes: tuple[int, ...], optimizer: Any) -> dict[str, Any]:
        """The rate is chosen for each number of classes, on the more streams the shorter they are."""
        config = EvaluationConfig(rule="base", optimizer=optimizer, seed=self.seed)
        lower = (1.8e-5, 1e-5, 5.6e-6, 3.2e-6, 1e-6)  # supervised features are large
        config = replace(config, rates=RATES if optimizer == "sgd" else (*config.rates, *lower))
        f, W = self.features, self.representation.W
        set_precision(EngineConfig(), f["novel"].train.device)
        found: dict[str, Any] = {}
        for n in (3, 6) if self.options.tiny else classes:
            tried = replace(config, classes=(n,), search_trajectories=max(10, 5000 // n))
            if self.options.tiny:
                tried = replace(tried, trajectories=2, search_trajectories=2)
            found |= evaluate(f["novel"], W, tried, f["validation"], more=f["base"]).to_dict()["classes"]
        return {"classes": found, "evaluation": to_dict(config)}


_data = functools.cache(load_data)


def _pixels(data: ClassSet) -> Examples:
    stream = StreamConfig()
    images = data.images[:, : stream.train_samples + stream.test_samples].to(pick_device("auto")).float() / 255
    small = F.interpolate(images.flatten(0, 1), (28, 28), mode="area").flatten(1).view(*images.shape[:2], -1)
    return Examples(small[:, : stream.train_samples], small[:, stream.train_samples :])


Cell = Callable[[Bench], dict[str, Any]]


def table1(column: str) -> dict[str, Cell]:
    """Algorithm 4 with Adam, W from zero; for scratch the whole network learns."""

    def whole(bench: Bench) -> dict[str, Any]:
        fixed, rates = {"optimizer": "adam", "reserve": 100}, (3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
        stream = bench.stream(classes=CLASSES, search_classes=50)
        return measure_learner(bench.world("all"), "online", stream, fixed, {"rate": rates})

    return {"adam": whole if column == "scratch" else lambda bench: bench.algorithm4(CLASSES, "adam")}


def heads(column: str) -> dict[str, Cell]:
    """Heads on the same features; online Adam is in Table 1, but for scratch, whose head it is not."""

    def closed(name: str, fixed: dict[str, Any], classes: tuple[int, ...]) -> Cell:
        return lambda bench: measure_learner(bench.world("head"), name, bench.stream(classes=classes), fixed)

    cells: dict[str, Cell] = {"online-sgd": lambda bench: bench.algorithm4((200, 600), "sgd")}
    cells |= {"ncm": closed("ncm", {}, CLASSES), "gaussian": closed("gaussian", {"form": "map"}, CLASSES)}
    cells |= {"slda": closed("slda", {}, (200, 600)), "ridge": closed("ridge", {}, (200, 600))}
    if column == "scratch":
        cells["online-adam"] = lambda bench: bench.algorithm4((200, 600), "adam")
        cells["pixels"] = lambda bench: measure_learner(bench.pixels, "ncm", bench.stream(classes=CLASSES))
    return cells


LEARNERS = {"online": "online", "approx-iid": "approx-iid", "mer": "mer", "ewc": "ewc", "er-reservoir": "er"}
REPLAY = ("der", "der++", "hal", "gss")  # of Table 5 on a frozen network, and not in the paper
CLOSED = ("ncm", "gaussian", "slda", "ridge")
# With Adam too, where the method allows it; its moments are memory, which leaves replay on a whole network none.
ADAM = {"head": ("online", "approx-iid", "ewc", "er"), "all": ("online", "approx-iid", "ewc")}
ADAM_RATES = (0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)


def continual(task_classes: int, tasks: int) -> Callable[[str], dict[str, Cell]]:
    """Tables 5 and 6: learners on a frozen network, and on all of it where it is supervised or random."""
    order: Any = "task" if task_classes > 1 else "class"
    sizes: dict[str, Any] = {"classes": (task_classes * tasks,), "task_classes": task_classes, "order": order}
    sizes |= {"trajectories": 10, "budget_images": 200}
    sizes["search_classes"] = task_classes * min(tasks, HELD_OUT // task_classes)
    few = {"search_classes": 4 * max(5, task_classes), "search_trajectories": 3}  # a whole network is costly

    def cell(name: str, trains: Trained, fixed: dict[str, Any]) -> Cell:
        def measured(bench: Bench) -> dict[str, Any]:
            grid = dict(grid_of(name, trains))
            if fixed.get("optimizer") == "adam":
                grid["rate"] = ADAM_RATES
            stream = bench.stream(**(sizes | few if trains == "all" else sizes))
            return measure_learner(bench.world(trains), name, stream, fixed, grid, say)

        return measured

    def floor(bench: Bench) -> dict[str, Any]:
        return measure_learner(bench.pixels, "ncm", bench.stream(**sizes))

    def cells(column: str) -> dict[str, Cell]:
        found: dict[str, Cell] = {}
        if column == "scratch":
            found |= {"ncm, pixels": floor, "ncm, head": cell("ncm", "head", {})}
        for trains in STARTS[column]:
            for row, name in LEARNERS.items():
                for optimizer in ("sgd", "adam") if name in ADAM[trains] else ("sgd",):
                    fixed = {"optimizer": optimizer}
                    found[f"{row}, {trains}, {optimizer}"] = cell(name, trains, fixed)
                    if trains == "head" and learner_type(name).card.replay:  # with the memory that its authors used
                        many = fixed | {"slots": 200}  # of images that is the budget, so for a whole network the same
                        found[f"{row} (200 examples), {trains}, {optimizer}"] = cell(name, trains, many)
            if trains == "head":
                more = (*REPLAY, *CLOSED) if task_classes == 1 else CLOSED
                found |= {f"{name}, {trains}": cell(name, trains, {}) for name in more}
        return found

    return cells


def say(line: str) -> None:
    print(f"  {line}", flush=True)


PARTS: dict[str, Callable[[str], dict[str, Cell]]] = {
    "table1": table1,
    "heads": heads,
    "table5": continual(1, 50),
    "table6": continual(5, 20),
}
STARTS: dict[str, tuple[Trained, ...]] = {  # of Tables 5 and 6, for the first seed
    "scratch": ("all",),
    "pretrained": ("head", "all"),
    "oml": ("head",),
    "kcciol": ("head",),
}


def wanted(column: str, seed: int, options: Options) -> Iterator[tuple[str, str, Cell]]:
    """The cells of a column: part, name, how it is measured."""
    for part in options.parts or PARTS:
        if part in ("table1", "heads") or (column in STARTS and seed == 0):
            for name, cell in PARTS[part](column).items():
                yield part, name, cell


def path_of(options: Options, part: str, column: str, seed: int, name: str) -> Path:
    return options.runs / "cells" / f"{column}-seed{seed}" / f"{part}, {name}.json"


def measure_column(column: str, seed: int, options: Options, until: float) -> None:
    """Every cell of a column that is not there yet."""
    config = settings(column, seed, options)
    bench = Bench(column, seed, options)
    for part, name, cell in wanted(column, seed, options):
        path = path_of(options, part, column, seed, name)
        if path.exists():
            check_same(path, config)
            continue
        if time.monotonic() > until:
            return
        representation = bench.representation
        clock = time.monotonic()
        result = cell(bench)
        result = with_record(result, representation, bench.stream())
        seconds = {"cell_seconds": time.monotonic() - clock, "trained_seconds": trained_seconds(column, seed, options)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, result | seconds)
        print(f"{column}, seed {seed}, {part}, {name}: {seconds['cell_seconds']:.1f} s", flush=True)


def check_same(path: Path, config: Config) -> None:
    """A cell of other settings must not stand in for one of these."""
    old, new = json.loads(path.read_text())["config"], to_dict(config)
    for values in (old, new):
        del values["data"]["root"], values["engine"], values["evaluation"]
    if old != new:
        sys.exit(f"{path} was made with other settings: remove it.")


# --- running ----------------------------------------------------------------------------------------------------------


def main(options: Options) -> None:
    began = time.monotonic()
    until = began + 60 * options.minutes
    if options.jobs > 1:
        share_out(options, until)
    else:
        for seed, columns in groups(options):
            for column in columns:
                try:
                    measure_column(column, seed, options, until)
                except Stopped as stopped:
                    sys.exit(stopped.exit_code)
    if options.tables:
        log = options.runs / "log.json"
        spent = json.loads(log.read_text()) if log.exists() else []
        write_json(log, [*spent, {"seconds": time.monotonic() - began, "jobs": options.jobs}])
        options.out.mkdir(parents=True, exist_ok=True)
        for name, table in tables(options).items():
            write_json(options.out / f"{name}.json", table)
            print(f"wrote {options.out / name}.json")


def groups(options: Options) -> Iterator[tuple[int, list[str]]]:
    """What must be done in one process, the longest first: a column, and those that go on from one of its phases."""
    columns = list(options.columns or COLUMNS)
    for seed in options.seeds:
        for column in sorted(columns, key=lambda c: -LONG.get(c, 0)):
            after = COLUMNS[column].after
            if after is None or after[0] not in columns:
                family = [c for c in columns if COLUMNS[c].after and COLUMNS[c].after[0] == column]  # type: ignore[index]
                yield seed, [column, *family]


LONG = {"kcciol": 9, "pretrained": 8, "scratch": 7, "anml": 6, "oml-same": 5, "mrcl-same": 4, "maml-rep-same": 3}


def share_out(options: Options, until: float) -> None:
    """Each group in a process of its own, several at once."""
    waiting, failed = list(groups(options)), []
    running: dict[subprocess.Popen[bytes], str] = {}
    same = ["--root", options.root, "--runs", str(options.runs), "--no-tables", *(["--tiny"] if options.tiny else [])]
    if options.parts:
        same += ["--parts", *options.parts]
    try:
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < options.jobs:
                seed, columns = waiting.pop(0)
                if all(
                    path_of(options, p, c, seed, n).exists() for c in columns for p, n, _ in wanted(c, seed, options)
                ):
                    continue
                words = [sys.executable, __file__, *same, "--seeds", str(seed), "--columns", *columns]
                running[subprocess.Popen(words)] = f"{columns[0]}, seed {seed}"
            for process in [p for p in running if p.poll() is not None]:
                name = running.pop(process)
                if process.returncode:
                    failed.append(name)
            time.sleep(0.1)
    finally:
        for process in running:
            process.terminate()  # training notes it and leaves a checkpoint
        for process in running:
            process.wait()
    if waiting or running:
        print(f"time is up: {len(waiting)} groups wait, {len(running)} were cut; run again to go on", flush=True)
    for name in failed:
        print(f"failed: {name}", flush=True)


# --- tables -----------------------------------------------------------------------------------------------------------

Found = dict[str, dict[str, list[dict[str, Any]]]]  # column -> cell -> a result of each seed


def tables(options: Options) -> dict[str, Any]:
    """Whatever can be made of the cells that are there."""
    found = {part: gather(options, part) for part in PARTS}
    log = options.runs / "log.json"
    spent = {"device_seconds": json.loads(log.read_text())} if log.exists() else {}
    made = {
        "table1": frame("table1", rows1(found["table1"], found["heads"]), found["table1"]),
        "table5": frame("table5", rows5(found["table5"]), found["table5"]),
        "table6": frame("table6", rows5(found["table6"]), found["table6"]),
        "heads": {
            "title": "Omniglot, representations x heads, held-out images",
            "axis": "classes, then representation",
            "rows": rows_heads(found["heads"], found["table1"]),
            **believe(found["heads"]),
        },
    }
    return {name: table | spent for name, table in made.items() if found[name]}


def gather(options: Options, part: str) -> Found:
    found: Found = {}
    for column in COLUMNS:
        for seed in options.seeds:
            for _, name, _ in wanted(column, seed, replace(options, parts=(part,))):
                path = path_of(options, part, column, seed, name)
                if path.exists():
                    found.setdefault(column, {}).setdefault(name, []).append(json.loads(path.read_text()))
    return found


def frame(name: str, rows: dict[str, dict[str, Any]], found: Found) -> dict[str, Any]:
    """In the shape of the paper's tables, whose numbers stand in the columns `paper: ...`."""
    for row, cells in PAPER[name]["rows"].items():
        rows.setdefault(row, {}).update({f"paper: {c}": cell for c, cell in cells.items()})
    columns = list(dict.fromkeys(c for cells in rows.values() for c in cells))
    about = {k: PAPER[name][k] for k in ("title", "axis")}
    return {**about, "metric": "accuracy % on held-out images", "columns": columns, "rows": rows, **believe(found)}


def believe(found: Found) -> dict[str, Any]:
    """Settings, record and time of each column."""
    first = {column: next(iter(cells.values())) for column, cells in found.items()}
    return {
        "seeds": {column: [r["config"]["seed"] for r in results] for column, results in first.items()},
        "settings": {column: results[0]["config"] for column, results in first.items()},
        "record": {column: results[0]["record"] for column, results in first.items()},
        "training_seconds": {column: [r["trained_seconds"] for r in results] for column, results in first.items()},
        "seconds": {
            column: {name: [r["cell_seconds"] for r in results] for name, results in cells.items()}
            for column, cells in found.items()
        },
    }


def pooled(results: list[dict[str, Any]], n: str) -> dict[str, Any]:
    """All trajectories of all seeds, the seeds' means, and the rate that each seed chose."""
    values = [result["classes"][n]["by_trajectory"] for result in results]
    flat = torch.tensor([v for part in values for v in part])
    means = [sum(part) / len(part) for part in values]
    return {
        **summarize(flat).to_dict(),
        "by_seed": means,
        "by_trajectory": flat.tolist(),
        "choice": [
            r["classes"][n]["rate"]["chosen"] if "rate" in r["classes"][n] else r["choice"]["settings"] for r in results
        ],
        "chosen_on": CHOSEN_ON,
    }


def rows1(found: Found, heads: Found) -> dict[str, dict[str, Any]]:
    """Representations with the gradient head, and the two floors."""
    columns = {column: cells["adam"] for column, cells in found.items()}
    for name, cell in (("pixels + ncm", "pixels"), ("untrained + ncm", "ncm")):
        if cell in heads.get("scratch", {}):
            columns[name] = heads["scratch"][cell]
    rows: dict[str, dict[str, Any]] = {}
    for column, results in columns.items():
        for n in results[0]["classes"]:
            rows.setdefault(n, {})[column] = pooled(results, n)
    return rows


def rows_heads(found: Found, table1: Found) -> dict[str, dict[str, dict[str, Any]]]:
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for column, cells in found.items():
        every = dict(cells)
        if column != "scratch" and column in table1:
            every["online-adam"] = table1[column]["adam"]
        for head, results in every.items():
            for n in ("200", "600"):
                if n in results[0]["classes"]:
                    rows.setdefault(n, {}).setdefault(column, {})[head] = pooled(results, n)
    return rows


def rows5(found: Found) -> dict[str, dict[str, Any]]:
    """Learners by start. Where both optimisers were tried, the one that did better on base classes."""
    rows: dict[str, dict[str, Any]] = {}
    best: dict[tuple[str, str], float] = {}
    for column, cells in found.items():
        for key, results in cells.items():
            row, trains, *_ = key.split(", ")
            score = max((s["score"] for s in results[0]["choice"]["scores"]), default=0.0)
            shown = SHOWN.get((column, trains), column)
            if score >= best.get((row, shown), 0.0):
                best[row, shown] = score
                rows.setdefault(row, {})[shown] = cell5(results[0], score)
    return rows


SHOWN = {("pretrained", "all"): "standard", ("pretrained", "head"): "pretraining"}
SHOWN |= {("scratch", "head"): "untrained", ("scratch", "pixels"): "pixels"}


def cell5(result: dict[str, Any], score: float) -> dict[str, Any]:
    last = list(result["classes"].values())[-1]
    kept = ("bytes", "replay", "within_budget", "seconds", "chosen_on", "summary")
    return {
        **{k: last[k] for k in ("mean", "std", "n", "ci95", "by_trajectory")},
        "settings": result["choice"]["settings"],
        "score_on_base_classes": score,
        **{k: result.get(k) for k in kept},
    }


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
