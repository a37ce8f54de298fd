"""kcciol train for encoders: `kcciol train characters` and the other recipes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from kcciol.cli.sine_gan import RunOptions
from kcciol.cli.terminal import out, parse
from kcciol.engine.stop import with_resume_hint
from kcciol.errors import UserError
from kcciol.recipes.config import Recipe


@dataclass(frozen=True)
class RecipeOptions(RunOptions):
    """Train an encoder on base classes: a network, what is done to a picture before it and to its output after.

    Every setting of the recipe is a flag; the defaults shown are those of the recipe that is named.
    """

    config: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)


def train_recipe(words: Sequence[str], recipe: Recipe, place: Path | None = None) -> int:
    """Train what a recipe says, or go on in the folder `place`."""
    start = RecipeOptions(words[0], place or RunOptions.out, config=recipe)
    from kcciol.data import DATASETS, load

    options = parse(RecipeOptions, f"train {words[0]}", words, start, f"Data sets: {', '.join(DATASETS)}.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("An encoder trains in one process: call kcciol without torchrun.")
    path = options.out
    if path == Path() and not options.resume:
        raise UserError("--out is empty, or this folder itself: name a folder for the run.")
    if path == RunOptions.out:
        path = Path("runs") / f"{Path(words[0]).stem}-seed{options.config.seed}"
    from kcciol.recipes import train

    with with_resume_hint(f"`kcciol train {shlex.quote(str(path))} --resume` continues."):
        base = load(options.config.data).base
        folder = train.train_encoder(options.config, base, path, options.resume, options.quiet)
    out.print(f"The encoder is {folder.encoder}; kcciol.open_encoder({str(folder.encoder)!r}) makes features with it.")
    return 0
