"""What each encoder is worth: novel classes learned online, one pass, nothing stored, with the mean of each class.

    python benchmarks/encoders.py --runs runs/encoders --root data --out results/encoders.json

RUNS holds a folder PRESET-seedSEED for each encoder that was trained (kcciol train PRESET --seed SEED). What is not
there is left out, and an entry of it that the file of results has already is kept. Features are kept in RUNS/features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from drawn import VARIANTS
from numpy.typing import NDArray
from torch import Tensor

import kcciol
from kcciol.config import DataConfig
from kcciol.data import load
from kcciol.data.classset import ClassSet
from kcciol.encoders import open_encoder
from kcciol.encoders.network import PictureEncoder
from kcciol.encoders.saved import SavedEncoder
from kcciol.engine.record import record
from kcciol.errors import UserError
from kcciol.evaluation.metrics import summarize
from kcciol.files import read_json, write_json
from kcciol.files.tensors import Format, read_tensors, write_tensors
from kcciol.random import generator
from kcciol.recipes.data import joined

HEADS: dict[str, tuple[str, dict[str, Any]]] = {"ncm": ("ncm", {"distance": "cosine"}), "gaussian": ("gaussian", {})}
FEATURES = Format("features", ())
SEEDS = (0, 1, 2)
ALONG = (10, 50, 100, 200, 400, 659)


@dataclass(frozen=True)
class Options:
    runs: Path = Path("runs/encoders")
    """Where the trained encoders lie."""
    root: str = "data"
    """Where the data sets lie."""
    out: Path = Path("results/encoders.json")
    """The file of results to write."""
    draws: int = 20
    """Of classes and images."""
    only: tuple[str, ...] = ()
    """Which encoders to measure; all of them by default."""


@dataclass(frozen=True)
class Stream:
    """So many classes, of each so many images to learn and to be asked about."""

    classes: int
    shots: int
    asked: int


@dataclass(frozen=True)
class Measured:
    """An encoder and what it is measured on."""

    preset: str
    data: str
    config: DataConfig
    streams: tuple[Stream, ...]
    seeds: tuple[int, ...] = SEEDS
    alphabets: bool = False


OMNIGLOT = DataConfig(name="omniglot", size=105, base_classes=0, train_samples=0)
CIFAR = DataConfig(name="cifar100", size=32, base_classes=70, train_samples=0)
MINI = DataConfig(name="mini-imagenet", size=84, base_classes=64, train_samples=0)
CHARACTERS = tuple(Stream(*numbers, 5) for numbers in ((200, 15), (600, 15), (200, 5), (200, 1), (600, 5), (600, 1)))
PHOTOS = tuple(Stream(30, shots, 100) for shots in (30, 5, 1))
TABLE = (
    Measured("characters", "omniglot", OMNIGLOT, CHARACTERS, alphabets=True),
    Measured("characters-small", "omniglot", OMNIGLOT, CHARACTERS, alphabets=True),
    Measured("small-images", "cifar100-base-only", CIFAR, (*PHOTOS, Stream(10, 30, 100))),
    Measured("small-images-84", "mini-imagenet-base-only", MINI, tuple(Stream(20, n, 100) for n in (30, 5, 1)), (0, 1)),
)


# --- one stream -------------------------------------------------------------------------------------------------------


def accuracy(learn: Tensor, ask: Tensor, head: str, order: Sequence[int] | None = None) -> float:
    """Learn features (classes, shots, d) class after class, in this order, then ask about (first classes, asked, d);
    percent."""
    name, settings = HEADS[head]
    learner = kcciol.OnlineLearner(name, width=learn.shape[2], settings=settings)
    for label in range(len(learn)) if order is None else order:
        learner.learn_many(learn[label], [label] * learn.shape[1])
    answers = np.array(learner.predict_many(ask.flatten(0, 1))).reshape(ask.shape[:2])
    return float(100 * (answers == np.arange(len(ask))[:, None]).mean())


def draws(stream: Stream, features: Tensor, count: int, asked: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """What is learned and asked in each draw, of features (classes, images, d). asked: features of the same images,
    changed, to be asked about in place of these."""
    for number in range(count):
        numbers = generator(0, stream.classes, stream.shots, number)
        classes = torch.from_numpy(numbers.permutation(len(features))[: stream.classes])
        images = np.stack([numbers.permutation(features.shape[1]) for _ in classes])
        rows = torch.from_numpy(images)
        own, others = (f[classes[:, None], rows] for f in (features, features if asked is None else asked))
        yield own[:, : stream.shots], others[:, stream.shots : stream.shots + stream.asked]


def entry(values: Sequence[float], **about: Any) -> dict[str, Any]:
    found = summarize(torch.tensor(values, dtype=torch.float64))
    return {**about, "mean": found.mean, "std": found.std, "ci95": found.ci95, "n": found.n}


# --- features, kept ---------------------------------------------------------------------------------------------------


def features_of(
    encoder: PictureEncoder,
    classes: ClassSet,
    folder: Path,
    change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]] | None = None,
    name: str = "plain",
) -> Tensor:
    """Features (classes, images, d) of all images, changed or as they are; made once."""
    path = folder / "features" / f"{encoder.identity[:16]}-{classes.identity[:16]}-{name}.safetensors"
    if path.exists():
        return read_tensors(path, FEATURES)[1]["features"]
    rows = []
    for images in classes.images:
        pictures = [change(image.numpy()) for image in images[:, 0]] if change else images
        rows.append(encoder.features(pictures))
    found = torch.stack(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, FEATURES, {"name": name}, {"features": found})
    return found


def novel(config: DataConfig, root: str) -> ClassSet:
    """The novel classes, cut to as many images as each has."""
    found = load(replace(config, root=root)).novel
    return found.first_samples(int(found.counts.min()))


# --- the table --------------------------------------------------------------------------------------------------------


def measure(one: Measured, options: Options) -> list[dict[str, Any]]:
    """All entries of an encoder; none where it was not trained."""
    there = [seed for seed in one.seeds if encoder_path(options, one.preset, seed).exists()]
    if not there:
        print(f"{one.preset}: not trained, left out")
        return []
    classes = novel(one.config, options.root)
    features = [features_of(opened(options, one.preset, seed), classes, options.runs) for seed in there]
    found = []
    for head in HEADS:
        for stream in one.streams:
            values = [accuracy(*pair, head) for own in features for pair in draws(stream, own, options.draws)]
            about = {"data": one.data, "classes": stream.classes, "shots": stream.shots, "seeds": len(there)}
            found.append(entry(values, encoder=one.preset, head=head, **about))
            print(found[-1], flush=True)
        if one.alphabets:
            found.append(within_alphabets(one.preset, head, classes, features))
            print(found[-1], flush=True)
    return found


def within_alphabets(preset: str, head: str, classes: ClassSet, features: Sequence[Tensor]) -> dict[str, Any]:
    """Twenty characters of one alphabet, one drawing of each by one drawer, asked about those of another: errors."""
    alphabets: dict[str, list[int]] = {}
    for number, name in enumerate(classes.names):
        alphabets.setdefault(name.split("/")[0], []).append(number)
    values = []
    for own in features:
        for number, members in enumerate(sorted(m for m in alphabets.values() if len(m) >= 20)):
            for draw in range(20):
                numbers = generator(0, 20, 1, number, draw)
                chosen = numbers.permutation(members)[:20]
                one, other = numbers.permutation(own.shape[1])[:2]
                values.append(100 - accuracy(own[chosen, one, None], own[chosen, other, None], head))
    about = {"data": "omniglot-within-alphabet-error", "classes": 20, "shots": 1, "seeds": len(features)}
    return entry(values, encoder=preset, head=head, **about)


def photos(options: Options) -> list[dict[str, Any]]:
    """The encoder of photographs, where its package is installed."""
    try:
        encoder = open_encoder("photos", runtime="onnx")
    except UserError as error:
        print(error)
        return []
    assert isinstance(encoder, PictureEncoder)
    features = features_of(encoder, novel(CIFAR, options.root), options.runs)
    found = []
    for head in HEADS:
        for stream in PHOTOS:
            values = [accuracy(*pair, head) for pair in draws(stream, features, options.draws)]
            about = {"data": "cifar100-photos", "classes": stream.classes, "shots": stream.shots, "seeds": 1}
            found.append(entry(values, encoder="photos", head=head, **about))
            print(found[-1], flush=True)
    return found


# --- what else is asked of `characters` -------------------------------------------------------------------------------


def robustness(options: Options, encoder: PictureEncoder, classes: ClassSet) -> dict[str, Any]:
    """The images asked about are inverted, thicker, smaller and so on; those learned are as they are."""
    plain = features_of(encoder, classes, options.runs)
    stream, found = Stream(200, 15, 5), {}
    for name, change in {"plain": None, **VARIANTS}.items():
        asked = features_of(encoder, classes, options.runs, change, name)
        values = [accuracy(*pair, "ncm") for pair in draws(stream, plain, options.draws, asked)]
        found[name] = entry(values)
        print(name, found[name], flush=True)
    for name in VARIANTS:
        found[name]["lost"] = found["plain"]["mean"] - found[name]["mean"]
    return found


def along(options: Options, features: Tensor) -> dict[str, Any]:
    """The first ten classes while all others are learned after them; and the same ten learned after the others."""
    stream = Stream(len(features), 15, 5)
    first: dict[int, list[float]] = {n: [] for n in ALONG}
    last: dict[int, list[float]] = {n: [] for n in ALONG}
    for learn, ask in draws(stream, features, options.draws):
        for n in ALONG:
            order = list(range(n))
            for values, ids in ((first[n], order), (last[n], order[10:] + order[:10])):
                values.append(accuracy(learn, ask[:10], "ncm", ids))
    return {
        str(n): {"learned first": entry(first[n]), "learned last": entry(last[n]), "equal": first[n] == last[n]}
        for n in ALONG
    }


def digits(options: Options, preset: str) -> list[dict[str, Any]]:
    """MNIST's ten digits as novel classes."""
    data = load(DataConfig(name="mnist", size=28, base_classes=0, novel_classes=0, train_samples=0, root=options.root))
    few = joined(data.base.first_samples(300), data.novel.first_samples(300))
    seeds = [seed for seed in SEEDS if encoder_path(options, preset, seed).exists()]
    found = []
    features = [features_of(opened(options, preset, seed), few, options.runs) for seed in seeds]
    for shots in (1, 5, 15):
        stream = Stream(10, shots, 200)
        values = [accuracy(*pair, "ncm") for own in features for pair in draws(stream, own, options.draws)]
        about = {"data": "mnist", "classes": 10, "shots": shots, "seeds": len(seeds)}
        found.append(entry(values, encoder=preset, head="ncm", **about))
        print(found[-1], flush=True)
    return found


# --- files ------------------------------------------------------------------------------------------------------------


def encoder_path(options: Options, preset: str, seed: int) -> Path:
    return options.runs / f"{preset}-seed{seed}" / "encoder.safetensors"


def opened(options: Options, preset: str, seed: int) -> SavedEncoder:
    return SavedEncoder(encoder_path(options, preset, seed))


def trained(options: Options) -> dict[str, Any]:
    """What the files of the encoders say of their training."""
    return {
        f"{one.preset}-seed{seed}": opened(options, one.preset, seed).training
        for one in TABLE
        for seed in one.seeds
        if encoder_path(options, one.preset, seed).exists()
    }


def key_of(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(one[name] for name in ("data", "classes", "shots", "encoder", "head"))


def main(options: Options) -> None:
    before: dict[str, Any] = read_json(options.out) if options.out.exists() else {"entries": []}
    wanted = [one for one in TABLE if not options.only or one.preset in options.only]
    entries = {key_of(one): one for one in before["entries"]}

    def write(new: Sequence[Mapping[str, Any]], **more: Any) -> None:
        entries.update({key_of(one): dict(one) for one in new})
        before.update(more)
        write_json(options.out, {**before, "entries": list(entries.values()), "record": record()})

    for one in wanted:
        write(measure(one, options), trained=before.get("trained", {}) | trained(options))
    if not options.only or "photos" in options.only:
        write(photos(options))
    if (not options.only or "characters" in options.only) and encoder_path(options, "characters", 0).exists():
        encoder, classes = opened(options, "characters", 0), novel(OMNIGLOT, options.root)
        write(digits(options, "characters"))
        write([], forgetting=along(options, features_of(encoder, classes, options.runs)))
        write([], robustness=robustness(options, encoder, classes))


if __name__ == "__main__":
    main(tyro.cli(Options))
