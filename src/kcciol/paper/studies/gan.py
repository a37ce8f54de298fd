"""The GAN on MNIST: digits 5, 6 and 7 learned in sequence, what is generated of each, and a picture of it.

The number beside the picture is the share of generated images that a classifier trained on real digits takes for what
they should be.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcciol.config import EngineConfig, preset
from kcciol.data import load as load_data
from kcciol.data.classset import Splits
from kcciol.engine.device import pick_device
from kcciol.engine.record import record
from kcciol.errors import UserError
from kcciol.evaluation.results import RESULT
from kcciol.paper.cellfile import refuse_other
from kcciol.paper.gan.digits import BASE, NOVEL, RATES, classifier, digits, measure, unpack
from kcciol.paper.gan.network import Networks
from kcciol.paper.gan.settings import DigitTrajectoryConfig, GanConfig, GenerationConfig
from kcciol.paper.gan.train import load_digits, train_digits
from kcciol.paper.plot import Plot
from kcciol.paper.presets import generation_preset
from kcciol.paper.study import Workspace, run_of
from kcciol.serialization import to_dict

PAPER = generation_preset("mnist-gan")
TINY = replace(
    PAPER,
    gan=GanConfig(noise=4, generator=(8, 8), critic=(8, 8)),
    trajectory=DigitTrajectoryConfig(count=2),
    phase1=replace(PAPER.phase1, steps=3),
    phase3=replace(PAPER.phase3, steps=2),
    engine=EngineConfig(device="auto"),
)
REAL = "classifier on held-out real images"
COLUMNS = {"mrcl": ("control", 1), "control": ("control", 3), "kcciol": ("kcciol", 3)}  # a member, after a phase


def data_of(workspace: Workspace) -> Splits:
    if workspace.tiny:
        drawn = replace(preset("quickstart").data, size=12, base_classes=7, novel_classes=3, samples=40)
        return load_data(replace(drawn, validation_classes=0))
    return digits(workspace.root)


def key_of(column: str) -> dict[str, str]:
    return {"study": "mnist", "column": column}


def path_of(workspace: Workspace, column: str, seed: int) -> Path:
    return workspace.runs / "cells" / "gan" / f"{column}-seed{seed}.json"


def variants(config: GenerationConfig, seeds: Sequence[int]) -> dict[tuple[str, int], GenerationConfig]:
    """What is trained together: every member of every seed. The control holds nothing."""
    lam = {"kcciol": config.phase3.lam, "control": 0.0}
    every = [(name, seed) for name in lam for seed in seeds]
    return {(n, seed): replace(config, seed=seed, phase3=replace(config.phase3, lam=lam[n])) for n, seed in every}


def cells(workspace: Workspace, seeds: Sequence[int]) -> dict[Path, Callable[[], dict[str, Any]]]:
    """All that there is to measure, and what reads it and refuses one of other settings."""
    every = variants(TINY if workspace.tiny else PAPER, seeds)
    found: dict[Path, Callable[[], dict[str, Any]]] = {}
    for column, (name, _) in COLUMNS.items():
        for seed in seeds:
            path = path_of(workspace, column, seed)
            found[path] = functools.partial(read, path, key_of(column), every[name, seed], spec(workspace))
    return found


def read(path: Path, key: dict[str, str], config: GenerationConfig, how: Mapping[str, Any]) -> dict[str, Any]:
    """A cell whose images can be drawn."""
    found = refuse_other(path, key, config, how, "rates", REAL)
    try:
        for of_rate in found["rates"].values():
            unpack(of_rate["images"])
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError, zlib.error) as error:
        raise UserError(f"{path} cannot be read (images: {error}): move it away, and it is made again.") from None
    return found


def spec(workspace: Workspace) -> dict[str, Any]:
    """How a member is measured."""
    return {"rates": list(RATES), "batches": 4 if workspace.tiny else 25, "epochs": 1 if workspace.tiny else 3}


def make(workspace: Workspace, seeds: Sequence[int]) -> None:
    """Train what is not trained, measure what is not measured."""
    seeds = [seed for seed in sorted(seeds) if not all(path.exists() for path in cells(workspace, [seed]))]
    if not seeds:
        return
    (folder, there), began = run_of(workspace.runs / "gan", seeds), time.monotonic()
    data, together = data_of(workspace), variants(TINY if workspace.tiny else PAPER, there)
    names, members = list(together), list(together.values())
    train_digits(members, data.base, BASE, folder, (folder / "members.json").exists(), quiet=True)
    print(f"gan: {len(members)} members trained in {time.monotonic() - began:.1f} s", flush=True)
    device = pick_device("auto")
    how = spec(workspace)
    judge, real = classifier(data, device, how["epochs"])
    nets = Networks(members[0].gan, data.base.images[0, 0].numel())
    for column, (name, phase) in COLUMNS.items():
        Theta = load_digits(data.base, BASE, folder / f"phase{phase}.safetensors")[1].tensors["Theta"].to(device)
        for seed in seeds:
            if (path := path_of(workspace, column, seed)).exists():
                continue
            one = names.index((name, seed))
            result = measure(nets, Theta[one], data.novel, seed, judge, how["batches"])
            result |= {"cell": key_of(column), REAL: real, "spec": how}
            result |= {"config": to_dict(members[one]), "record": record()}
            path.parent.mkdir(parents=True, exist_ok=True)
            RESULT.write(path, result)
            print(f"gan, {column}, seed {seed}", flush=True)


def draw(workspace: Workspace, seeds: Sequence[int]) -> list[Plot]:
    """Class 5, 6 and 7 after all three, for each column at each rate (first seed)."""
    found: dict[str, list[dict[str, Any]]] = {}
    for column in COLUMNS:
        for seed in seeds:
            if path_of(workspace, column, seed).exists():
                found.setdefault(column, []).append(RESULT.read(path_of(workspace, column, seed)))
    if not found:
        return []
    real = [r[REAL] for results in found.values() for r in results]
    numbers: dict[str, float] = {"real images that the classifier knows, %": min(real)}
    for column, results in found.items():
        for rate in results[0]["rates"]:
            right = [r["rates"][rate]["right"] for r in results]
            for j, digit in enumerate(NOVEL):
                for i, when in ((j, "when learned"), (-1, "at the end")):
                    mean = 100 * sum(rows[i][j] for rows in right) / len(right)
                    numbers[f"{column}, rate {rate}: {digit}s that look like {digit}, % {when}"] = mean
    several = max(len(results) for results in found.values())
    caption = (
        "Rows: 5, 6 and 7, after all three were learned; the rate falls from left to right. theta stays as it is, W "
        f"learns. The numbers are means over {several} trainings of 100 images each, the pictures are of the first. "
        "mrcl is the end of phase 1; kcciol and control have phase 3 after it, with and without the constraint. What "
        "an image looks like is said by a classifier of real digits, which must call noise, too, one of ten: what "
        "looks like a 7 to it need not be one. The last digit is at the end when it is learned."
    )
    data = {c: [{rate: v["right"] for rate, v in r["rates"].items()} for r in rs] for c, rs in found.items()}
    rates = len(next(iter(found.values()))[0]["rates"])
    title, size = "Digits generated after 5, 6 and 7 were learned in sequence", (2.6 * rates, 1.3 * len(found))
    return [Plot("gan", title, caption, numbers, data, found, size, lambda figure: _paint(figure, found))]


def _paint(figure: Any, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    rates = list(next(iter(found.values()))[0]["rates"])
    axes = figure.subplots(len(found), len(rates), squeeze=False)
    for row, (column, results) in zip(axes, found.items(), strict=True):
        for axis, rate in zip(row, rates, strict=True):
            images = unpack(results[0]["rates"][rate]["images"])  # (3, 8, side, side)
            sheet = images.transpose(1, 2).flatten(2).flatten(0, 1)
            axis.imshow(sheet.numpy(), cmap="gray", vmin=0, vmax=255)
            axis.set(xticks=[], yticks=[], title=f"{column}, {rate}")
