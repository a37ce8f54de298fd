"""The GAN on MNIST: digits 5, 6 and 7 learned in sequence, what is generated of each, and a picture of it.

The number beside the picture is the share of generated images that a classifier trained on real digits takes for what
they should be. No rate is chosen: every rate of the grid is shown, since with three novel digits there is nothing to
choose on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol.atomic import replacing, write_json
from kcciol.config import DataConfig, EngineConfig, PhaseConfig, preset, to_dict
from kcciol.data import load as load_data
from kcciol.data.classset import ClassSet, Splits
from kcciol.engine.execute import pick_device
from kcciol.engine.record import record
from kcciol.generation.evaluate import evaluate
from kcciol.generation.network import Networks
from kcciol.generation.settings import GanConfig, GenerationConfig, TrajectoryConfig
from kcciol.generation.train import load, train
from kcciol.reproduce.study import Where, refuse_other

# Sizes of the networks and of a trajectory as printed, delta 1 and no phase 2 too. Printed are 300,000 steps of one
# trajectory at 1e-5 and 3,500,000 of phase 3; here a step has 16 trajectories and thirty times the rate.
PAPER = GenerationConfig(
    phase1=PhaseConfig(steps=20000, alpha=1e-2, beta=3e-4),
    phase3=PhaseConfig(steps=5000, alpha=1e-2, beta=1e-4, lam=1e-4),
)
TINY = replace(
    PAPER,
    gan=GanConfig(noise=4, generator=(8, 8), critic=(8, 8)),
    trajectory=TrajectoryConfig(count=2),
    phase1=replace(PAPER.phase1, steps=3),
    phase3=replace(PAPER.phase3, steps=2),
    engine=EngineConfig(device="auto"),
)
COLUMNS = {"mrcl": ("control", 1), "control": ("control", 3), "kcciol": ("kcciol", 3)}  # a member, after a phase
RATES = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
BASE, NOVEL = (0, 1, 2, 3, 4, 8, 9), (5, 6, 7)


def data_of(where: Where) -> Splits:
    if where.tiny:
        drawn = replace(preset("quickstart").data, size=12, base_classes=7, novel_classes=3, samples=40)
        return load_data(replace(drawn, validation_classes=0))
    return load_data(DataConfig(name="mnist", root=where.root, size=32, base_classes=0, train_samples=0))


def paths(where: Where, seeds: Sequence[int]) -> list[Path]:
    return [path_of(where, column, seed) for column in COLUMNS for seed in seeds]


def path_of(where: Where, column: str, seed: int) -> Path:
    return where.runs / "cells" / "gan" / f"{column}-seed{seed}.json"


def make(where: Where, seeds: Sequence[int]) -> None:
    """Train what is not trained, measure what is not measured."""
    config = TINY if where.tiny else PAPER

    def member(name: str, seed: int) -> GenerationConfig:
        lam = config.phase3.lam if name == "kcciol" else 0.0
        return replace(config, seed=seed, phase3=replace(config.phase3, lam=lam))

    for column, (name, _) in COLUMNS.items():
        for seed in seeds:
            refuse_other(path_of(where, column, seed), member(name, seed))
    if all(path.exists() for path in paths(where, seeds)):
        return
    data, names = data_of(where), [(name, seed) for name in ("kcciol", "control") for seed in seeds]
    members = [member(name, seed) for name, seed in names]
    folder, began = where.runs / "gan" / f"members-seeds{'-'.join(map(str, seeds))}", time.monotonic()
    train(members, data.base, BASE, folder, (folder / "members.json").exists(), quiet=True)
    print(f"gan: {len(members)} members trained in {time.monotonic() - began:.1f} s", flush=True)
    device = pick_device("auto")
    judge, real = classifier(data, device, epochs=1 if where.tiny else 3)
    nets = Networks(config.gan, data.base.images[0, 0].numel())
    for column, (name, phase) in COLUMNS.items():
        Theta = load(data.base, BASE, folder / f"phase{phase}.safetensors")[1].tensors["Theta"].to(device)
        for seed in seeds:
            one = names.index((name, seed))
            result = measure(nets, Theta[one], data.novel, seed, judge, 4 if where.tiny else 25)
            result |= {"classifier on held-out real images": real, "config": to_dict(members[one]), "record": record()}
            path = path_of(where, column, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, result)
            print(f"gan, {column}, seed {seed}", flush=True)


def measure(
    nets: Networks, Theta: Tensor, novel: ClassSet, seed: int, judge: nn.Module, batches: int
) -> dict[str, Any]:
    """For every rate: right[i][j], the share of images of the j-th class, after the i-th, that look like it; and some
    images of all classes at the end."""
    found: dict[str, Any] = {"rates": {}}
    side = int(nets.pixels**0.5)
    for rate in RATES:
        made = evaluate(nets, Theta, novel, list(NOVEL), seed, rate, batches=batches)
        right = [
            [float((judge(images).argmax(-1) == NOVEL[j]).double().mean()) for j, images in enumerate(after)]
            for after in made.images
        ]
        shown = torch.stack([images[:8] for images in made.images[-1]])  # (3, 8, pixels)
        bytes_ = ((shown + 1) * 127.5).round().clamp(0, 255).byte().view(3, 8, side, side)
        found["rates"][f"{rate:g}"] = {"right": right, "images": bytes_.flatten(2).tolist()}
    return found


def classifier(data: Splits, device: torch.device, epochs: int) -> tuple[nn.Module, float]:
    """A network that tells all real digits apart, and its accuracy (%) on a tenth of them that it was not shown."""
    parts, labels = [], []
    for split, numbers in ((data.base, BASE), (data.novel, NOVEL)):
        for c, number in enumerate(numbers):
            images = split.images[c, : int(split.counts[c])].flatten(1)
            parts.append(images)
            labels += [number] * len(images)
    x, y = torch.cat(parts).to(device), torch.tensor(labels, device=device)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        order = torch.randperm(len(x)).to(device)
        net = nn.Sequential(nn.Linear(x.shape[1], 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    x, y, held = x[order], y[order], len(x) // 10
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(epochs):
        for some in torch.split(torch.arange(held, len(x), device=device), 128):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x[some].float() / 127.5 - 1), y[some])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        right = (net(x[:held].float() / 127.5 - 1).argmax(-1) == y[:held]).double().mean()
    return net, 100 * float(right)


def tables(where: Where, seeds: Sequence[int]) -> dict[str, Any]:
    """There is no table of it in the paper."""
    return {}


def draw(where: Where, seeds: Sequence[int], out: Path) -> list[Path]:
    """figures/gan.json and gan.png: class 5, 6 and 7 after all three, for each column at each rate (first seed)."""
    found: dict[str, list[dict[str, Any]]] = {}
    for column in COLUMNS:
        for seed in seeds:
            if path_of(where, column, seed).exists():
                found.setdefault(column, []).append(json.loads(path_of(where, column, seed).read_text()))
    if not found:
        return []
    numbers: dict[str, float] = {}
    for column, results in found.items():
        for rate in results[0]["rates"]:
            last = [r["rates"][rate]["right"][-1] for r in results]
            for j, digit in enumerate(NOVEL):
                mean = 100 * sum(row[j] for row in last) / len(last)
                numbers[f"{column}, rate {rate}: {digit}s that look like {digit}, % at the end"] = mean
    path = out / "figures" / "gan.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure: dict[str, Any] = {
        "title": "Digits generated after 5, 6 and 7 were learned in sequence",
        "caption": "Rows: 5, 6 and 7. The rate falls from left to right. Only the last layers learned.",
        "numbers": numbers,
        "data": {c: [{rate: v["right"] for rate, v in r["rates"].items()} for r in rs] for c, rs in found.items()},
        "made": {c: {k: rs[0][k] for k in ("config", "record")} for c, rs in found.items()},
    }
    if _picture(found, path.with_suffix(".png")):
        figure["image"] = "gan.png"
    write_json(path, figure)
    return [path]


def _picture(found: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> bool:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    rates = list(next(iter(found.values()))[0]["rates"])
    figure = Figure(figsize=(2.6 * len(rates), 1.3 * len(found)), layout="constrained", dpi=110)
    axes = figure.subplots(len(found), len(rates), squeeze=False)
    for row, (column, results) in zip(axes, found.items(), strict=True):
        for axis, rate in zip(row, rates, strict=True):
            images = torch.tensor(results[0]["rates"][rate]["images"], dtype=torch.uint8)  # (3, 8, pixels)
            side = int(images.shape[2] ** 0.5)
            sheet = images.view(3, 8, side, side).permute(0, 2, 1, 3).reshape(3 * side, 8 * side)
            axis.imshow(sheet.numpy(), cmap="gray", vmin=0, vmax=255)
            axis.set(xticks=[], yticks=[], title=f"{column}, {rate}")
    with replacing(path) as beside:
        figure.savefig(beside, format="png", metadata={"Software": None})
    return True
