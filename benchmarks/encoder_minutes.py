"""What `characters` is worth after 1, 3, 10 and 40 minutes of training here, each with a schedule of its own.

    python benchmarks/encoder_minutes.py --runs runs/minutes --root data --out results/encoder-minutes.json

How many steps fit into a minute is measured first. A run that was cut goes on; time is counted by its own metrics.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

import kcciol
from encoders import CHARACTERS, OMNIGLOT, accuracy, draws, entry, features_of, novel
from kcciol.encoders.saved import SavedEncoder
from kcciol.engine.record import record
from kcciol.files import read_json, write_json
from kcciol.recipes.config import Recipe, recipe_in
from kcciol.recipes.train import RecipeFolder

TRIAL = 60  # steps that are timed


@dataclass(frozen=True)
class Options:
    runs: Path = Path("runs/minutes")
    """Where the runs lie."""
    root: str = "data"
    """Where Omniglot lies."""
    out: Path = Path("results/encoder-minutes.json")
    """The file of results to write."""
    preset: str = "characters"
    minutes: tuple[float, ...] = (1, 3, 10, 40)
    draws: int = 20
    """Of classes and images."""
    bf16: bool = True
    """Whether activations are kept in bfloat16: quicker where the CPU has it."""


def trained(recipe: Recipe, folder: Path) -> RecipeFolder:
    """The run of a recipe, begun, gone on with, or as it is."""
    found = RecipeFolder(folder)
    if not found.encoder.exists():
        base = kcciol.load_data(recipe.data).base
        kcciol.train_encoder(recipe, base, folder, resume=found.config.exists(), quiet=True)
    return found


def speed(folder: RecipeFolder) -> float:
    """Images a second, by the last line of a run's metrics."""
    lines = folder.metrics.read_text(encoding="utf-8").splitlines()
    return float(json.loads(lines[-1])["images_per_second"])


def main(options: Options) -> None:
    recipe = kcciol.recipe(options.preset)
    engine = replace(recipe.engine, precision="bf16" if options.bf16 else "float32", log_every=TRIAL)
    recipe = replace(recipe, data=replace(recipe.data, root=options.root), engine=engine)
    timed = speed(trained(replace(recipe, rate=replace(recipe.rate, steps=TRIAL)), options.runs / "trial"))
    classes = novel(OMNIGLOT, options.root)
    found: dict[str, Any] = read_json(options.out)["curve"] if options.out.exists() else {}
    for minutes in options.minutes:
        steps = max(1, round(60 * minutes * timed / recipe.rate.batch))
        folder = options.runs / f"{options.preset}-{minutes:g}"
        if (begun := recipe_in(folder)) is not None:  # its steps were counted when it began
            steps = begun.rate.steps
        run = trained(replace(recipe, rate=replace(recipe.rate, steps=steps)), folder)
        features = features_of(SavedEncoder(run.encoder), classes, options.runs)
        images = steps * recipe.rate.batch
        rows = [
            entry(
                [accuracy(*pair, "ncm") for pair in draws(stream, features, options.draws)],
                classes=stream.classes,
                shots=stream.shots,
            )
            for stream in CHARACTERS
        ]
        found[f"{minutes:g}"] = {"images": images, "minutes": images / speed(run) / 60, "rows": rows}
        print(minutes, found[f"{minutes:g}"]["minutes"], rows[0], flush=True)
        write_json(options.out, {"preset": options.preset, "curve": found, "record": record()})


if __name__ == "__main__":
    main(tyro.cli(Options))
