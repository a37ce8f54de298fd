"""The GAN on MNIST: digits 5, 6 and 7 learned in sequence, what is generated of each, and a picture of it.

The number beside the picture is the share of generated images that a classifier trained on real digits takes for what
they should be.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from kcciol.config import EngineConfig, preset
from kcciol.data import load as load_data
from kcciol.data.classset import Splits
from kcciol.errors import UserError
from kcciol.paper.experiment import Scope
from kcciol.paper.gan.digits import BASE, NOVEL, RATES, classifier, digits, measure, unpack
from kcciol.paper.gan.settings import DigitTrajectoryConfig, GanConfig, GenerationConfig
from kcciol.paper.gan.train import load_digits, train_digits
from kcciol.paper.plot import Plot
from kcciol.paper.presets import generation_preset
from kcciol.paper.study import Workspace
from kcciol.paper.tables import Found, Result
from kcciol.paper.together import Together

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


def variants(config: GenerationConfig, seeds: Sequence[int]) -> dict[tuple[str, int], GenerationConfig]:
    """What is trained together: every member of every seed. The control holds nothing."""
    lam = {"kcciol": config.phase3.lam, "control": 0.0}
    every = [(name, seed) for name in lam for seed in seeds]
    return {(n, seed): replace(config, seed=seed, phase3=replace(config.phase3, lam=lam[n])) for n, seed in every}


def sizes_of(workspace: Workspace) -> GenerationConfig:
    return TINY if workspace.tiny else PAPER


class Digits(Together):
    """Members with and without the constraint, of all seeds, trained together."""

    name, part, place = "mnist", "gan", "gan"
    every = tuple(COLUMNS)
    values = ("rates", REAL)

    def require_data(self, scope: Scope) -> None:
        data_of(scope.workspace)

    def settings(self, workspace: Workspace, column: str, seed: int) -> tuple[GenerationConfig, dict[str, Any]]:
        config = variants(sizes_of(workspace), [seed])[COLUMNS[column][0], seed]
        batches, epochs = (4, 1) if workspace.tiny else (25, 3)
        return config, {"rates": list(RATES), "batches": batches, "epochs": epochs}

    def read(self, workspace: Workspace, column: str, seed: int) -> Result:
        """A cell whose images can be drawn."""
        found = super().read(workspace, column, seed)
        try:
            for of_rate in found["rates"].values():
                unpack(of_rate["images"])
        except (KeyError, TypeError, AttributeError, ValueError, RuntimeError, zlib.error) as error:
            path = self.path_of(workspace, column, seed)
            raise UserError(f"{path} cannot be read (images: {error}): move it away, and it is made again.") from None
        return found

    def make_missing(self, workspace: Workspace, seeds: Sequence[int]) -> None:
        data = data_of(workspace)

        def train(members: list[GenerationConfig], folder: Path, resume: bool) -> None:
            train_digits(members, data.base, BASE, folder, resume, quiet=True)

        def load(path: Path) -> Tensor:
            return load_digits(data.base, BASE, path)[1].tensors["Theta"]

        of_seeds = functools.partial(variants, sizes_of(workspace))
        judged: tuple[nn.Module, float] | None = None
        for column, seed, Theta in self.trained(workspace, "", COLUMNS, seeds, of_seeds, train, load):
            began, (config, spec) = time.monotonic(), self.settings(workspace, column, seed)
            judge, real = judged = judged or classifier(data, Theta.device, spec["epochs"])
            result = measure(config, Theta, data.novel, judge, spec["batches"])
            self.keep(workspace, column, seed, result | {REAL: real}, began)

    def draw(self, found: Mapping[str, Found]) -> list[Plot]:
        """Class 5, 6 and 7 after all three, for each column at each rate (first seed)."""
        columns = {column: cells[""] for column, cells in found[self.part].items()}
        return [_plot(columns)] if columns else []


EXPERIMENT = Digits()


def _plot(found: Mapping[str, Sequence[Result]]) -> Plot:
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
    return Plot("gan", title, caption, numbers, data, found, size, lambda figure: _paint(figure, found))


def _paint(figure: Any, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    rates = list(next(iter(found.values()))[0]["rates"])
    axes = figure.subplots(len(found), len(rates), squeeze=False)
    for row, (column, results) in zip(axes, found.items(), strict=True):
        for axis, rate in zip(row, rates, strict=True):
            images = unpack(results[0]["rates"][rate]["images"])  # (3, 8, side, side)
            sheet = images.transpose(1, 2).flatten(2).flatten(0, 1)
            axis.imshow(sheet.numpy(), cmap="gray", vmin=0, vmax=255)
            axis.set(xticks=[], yticks=[], title=f"{column}, {rate}")
