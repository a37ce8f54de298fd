"""kcciol train: meta-train a representation."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from kcciol import config as configs
from kcciol.cli.recipe import train_recipe
from kcciol.cli.sine_gan import RunOptions, members_in, train_members
from kcciol.cli.terminal import out, parse, print_presets, word_after
from kcciol.config import Config
from kcciol.engine.stop import Stopped, with_resume_hint
from kcciol.errors import UserError
from kcciol.meta import methods as representations
from kcciol.paper.presets import member
from kcciol.recipes.config import Recipe, recipe_in
from kcciol.serialization import from_dict, read_toml


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """Meta-train a representation on base classes, in three phases.

    Every setting of the preset is a flag; the defaults shown are those of the preset that is named. Under
    torchrun (torchrun --nproc-per-node 4 -m kcciol train PRESET) the processes share each step's trajectories:
    trajectory.count must be a multiple of their number.
    """

    start: Annotated[Path | None, arg(metavar="PATH")] = None
    """A representation saved at the end of a phase: begin with the phase after it."""
    config: Annotated[Config, arg(name="")] = field(default_factory=Config)


def train(words: Sequence[str]) -> int:
    """Meta-train a representation: kcciol train PRESET."""
    if words and words[0].startswith("-") and {"-h", "--help"}.isdisjoint(words):
        raise UserError("The preset comes first: kcciol train PRESET [options].")
    if not words or words[0].startswith("-"):
        out.print("usage: kcciol train PRESET [options]      (kcciol train PRESET --help shows every setting)")
        out.print()
        print_presets()
        out.print()
        out.print(
            "PRESET may also be a .toml file of the same shape, or the folder of a run. A setting that the file "
            "leaves out has its own default, not that of a preset. --out says where the run goes, --resume continues "
            "it, and --start begins with the phase after a file such as runs/mine/phase1.safetensors.",
            soft_wrap=False,
        )
        out.print("Several GPUs: torchrun --nproc-per-node 4 -m kcciol train PRESET --trajectory.count 4")
        return 0 if {"-h", "--help"} & set(words) else 2
    folder = Path(words[0])
    if (members := members_in(folder)) is not None:
        return train_members(words, members)
    if (recipe := recipe_in(folder)) is not None:
        return train_recipe(words, recipe, folder)
    if any((folder / name).is_file() for name in ("config.toml", "checkpoint.safetensors")):
        from kcciol.engine.run_folder import RunFolder

        start = TrainOptions(words[0], folder, config=RunFolder(folder).own_config())
    else:
        file = words[0].endswith(".toml")
        values = read_toml(folder) if file else configs.preset_values(words[0])
        if "problem" in values:
            return train_members(words, [member(values)])
        if "recipe" in values:
            return train_recipe(words, from_dict(Recipe, values))
        name = folder.stem if file else words[0]
        start = TrainOptions(name, config=configs.classification(values, name))
    method = word_after("--representation", words)
    before = start.config.representation
    if method is not None and method != before:
        start = dataclasses.replace(start, config=representations.with_method(start.config, method))
    from kcciol.data import DATASETS, load

    options = parse(TrainOptions, f"train {words[0]}", words, start, f"Data sets: {', '.join(DATASETS)}.")
    representations.check_label(options.config)
    path = options.out
    if path == Path() and not options.resume:
        raise UserError("--out is empty, or this folder itself: name a folder for the run.")
    if path == RunOptions.out:
        name = Path(options.preset).stem + (f"-{method}" if method not in (None, before) else "")
        path = Path("runs") / f"{name}-seed{options.config.seed}"
    from kcciol.engine.ranks import Ranks
    from kcciol.meta import phases

    ranks = Ranks.here()
    try:
        with with_resume_hint(f"`kcciol train {shlex.quote(str(path))} --resume` continues."), ranks.joined():
            data = ranks.run_on_all(lambda: load(options.config.data))
            phases.train(options.config, data.base, path, options.resume, options.start, options.quiet, ranks)
    except (Stopped, UserError) as end:
        if ranks.rank == 0:
            raise
        return end.exit_code if isinstance(end, Stopped) else 2  # rank 0 says why
    if ranks.rank == 0:
        wanted = options.config.evaluation.classes
        some = [n for n in wanted if n <= len(data.novel)] or [len(data.novel)]
        asked, least = options.config.evaluation, int(data.novel.counts.min())
        classes = f" --classes {' '.join(map(str, some))}" if some != list(wanted) else ""
        if least < asked.train_samples + asked.test_samples:
            held_out = max(1, least // 4)
            classes += f" --train-samples {max(1, least - held_out)} --test-samples {held_out}"
        out.print(f"The run is in {path}; `kcciol evaluate {shlex.quote(str(path))}{classes}` measures it.")
    return 0
