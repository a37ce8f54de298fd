"""The output of the encoder `photos`: fitted to CIFAR-100's 70 base classes, and chosen on those held out of the fit.

    python benchmarks/photos_output.py --root data --out results/photos-output.json

In each of three folds a third of the base classes is held out: the output is fitted to the others, and these are
learned as novel classes are. What is best there is fitted to all base classes, written into the package, and measured
once on the 30 novel classes. What the network gives is kept in a folder, a file a class, so that it is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

import kcciol
from kcciol.data.cifar100 import load
from kcciol.data.classset import ClassSet
from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.onnx import with_onnx
from kcciol.encoders.output import RAW, Output
from kcciol.encoders.photo import Photo
from kcciol.encoders.photos import OUTPUT, network
from kcciol.encoders.saved import save_output
from kcciol.engine.record import record
from kcciol.files import write_json
from kcciol.nets.efficientnet import WIDTH
from kcciol.random import generator

SHOTS, TESTED, FOLDS = (30, 5, 1), 50, 3


@dataclass(frozen=True)
class Options:
    root: str = "data"
    """Where CIFAR-100 lies."""
    cache: Path = Path("runs/photos-output")
    """Where what the network gives is kept."""
    out: Path = Path("results/photos-output.json")
    """The file of results to write."""
    weights: Path = OUTPUT
    """The file of the output to write."""
    base_images: int = 300
    """Of each base class."""
    draws: int = 20
    """Of images to learn and to be asked about."""


@dataclass(frozen=True)
class Choice:
    """How an output is made."""

    power: float = 0.5
    shrinkage: float = 0.7
    """Of the covariance of the features."""
    class_shrinkage: float = 0.5
    """Of that of the probabilities."""
    share: float = 0.7
    """How long the probabilities are beside the features."""
    width: int = 768


CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"power": 0.7},
    {"shrinkage": 0.5},
    {"shrinkage": 0.85},
    {"class_shrinkage": 0.3},
    {"share": 0.0},
    {"share": 0.5},
    {"share": 1.0},
    {"width": 512},
    {"width": 1024},
)


def outputs(options: Options, classes: ClassSet, split: str, count: int) -> Tensor:
    """(classes, count, 2280), what the network gives."""
    options.cache.mkdir(parents=True, exist_ok=True)
    encoder, found = None, []
    for number, images in enumerate(classes.images[:, :count]):
        path = options.cache / f"{split}-{number}-{count}.npy"
        if not path.exists():
            encoder = encoder or with_onnx(NetworkEncoder(network(), Photo(), RAW), threads=1)
            part = path.with_suffix(".part.npy")
            np.save(part, encoder.features(images).numpy())
            part.rename(path)
            print(f"{split} {number + 1} / {len(classes)}", flush=True)
        found.append(torch.from_numpy(np.load(path)))
    return torch.stack(found)


def fitted(z: Tensor, choice: Choice) -> Output:
    """The output that a choice makes of base classes (classes, images, 2280): features and probabilities are each
    whitened, brought to lengths that are as the choice says, and narrowed together."""
    width = z.shape[-1]
    mean, matrix = torch.empty(width), torch.zeros(width, width)
    for part, shrinkage, length in (
        (slice(0, WIDTH), choice.shrinkage, 1.0),
        (slice(WIDTH, width), choice.class_shrinkage, choice.share),
    ):
        output = replace(Output.fit(z[:, :, part], shrinkage, power=choice.power), unit_length=False)
        assert output.mean is not None
        assert output.matrix is not None
        mean[part] = output.mean
        matrix[part, part] = output.matrix * (length / float(output(z[:, :, part]).norm(dim=-1).mean()))
    whole = Output(mean, matrix, choice.power)
    return whole.narrowed(z.flatten(0, 1), choice.width).halved()


def accuracies(features: Tensor, shots: int, draws: int) -> list[float]:
    """Percent right of TESTED images of each class, after so many of each, by the cosine to class means."""
    found, classes = [], torch.arange(len(features))[:, None]
    for draw in range(draws):
        order = np.stack([generator(draw, number).permutation(features.shape[1]) for number in range(len(features))])
        drawn = features[classes, torch.from_numpy(order[:, : shots + TESTED])]
        means = F.normalize(drawn[:, :shots].mean(1), dim=-1)
        right = (drawn[:, shots:] @ means.mT).argmax(-1) == classes
        found.append(100 * float(right.float().mean()))
    return found


def folds(classes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Classes to fit to, and those held out."""
    order = generator(0).permutation(classes)
    for fold in range(FOLDS):
        held_out = np.sort(order[fold::FOLDS])
        yield np.setdiff1d(order, held_out), held_out


def held_out(z: Tensor, choice: Choice, draws: int) -> dict[str, float]:
    """The mean over folds of the accuracy on base classes that the output was not fitted to, by shots."""
    found: dict[str, list[float]] = {str(shots): [] for shots in SHOTS}
    for others, held in folds(len(z)):
        features = fitted(z[others], choice)(z[held])
        for shots in SHOTS:
            found[str(shots)] += accuracies(features, shots, draws)
    return {shots: float(np.mean(values)) for shots, values in found.items()}


def main(options: Options) -> None:
    config = replace(kcciol.preset("cifar100").data, root=options.root, size=32)
    base, novel = load(config)
    z = outputs(options, base, "base", options.base_images)
    table = []
    for changes in CHANGES:
        choice = Choice(**changes)
        table.append({"choice": asdict(choice), "held_out": held_out(z, choice, options.draws // 2)})
        print(table[-1], flush=True)
    best = max(table, key=lambda row: sum(row["held_out"].values()))
    output = fitted(z, Choice(**best["choice"]))
    made = {**best["choice"], "data": "cifar100, 70 base classes", "images": options.base_images}
    save_output(options.weights, output, {**made, "by": "benchmarks/photos_output.py"})
    features = output(outputs(options, novel, "novel", int(novel.counts.min())))
    entries = []
    for shots in SHOTS:
        found = accuracies(features, shots, options.draws)
        entries.append(
            {"shots": shots, "mean": float(np.mean(found)), "std": float(np.std(found, ddof=1)), "n": len(found)}
        )
    result = {"chosen": best, "table": table, "novel": entries, "record": record()}
    write_json(options.out, result)
    print(entries)


if __name__ == "__main__":
    main(tyro.cli(Options))
