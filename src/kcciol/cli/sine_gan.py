"""kcciol train and kcciol evaluate for sine functions and for digits that are generated."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.table import Table
from tyro.conf import Positional, arg

from kcciol.cli.terminal import out, parse, say
from kcciol.engine.stop import with_resume_hint
from kcciol.errors import UserError
from kcciol.paper.formats import MEMBERS
from kcciol.paper.gan.settings import GenerationConfig
from kcciol.paper.presets import member
from kcciol.paper.sine.settings import RegressionConfig
from kcciol.serialization import to_dict


@dataclass(frozen=True)
class RunOptions:
    """What is asked of every training."""

    preset: Positional[Annotated[str, arg(metavar="PRESET")]]
    """A preset's name, a config file of the same shape, or the folder of a run to take the config from."""
    out: Path = Path("runs/PRESET-seedSEED")
    """The run folder."""
    resume: bool = False
    """Continue the run in the folder, exactly where its checkpoint stands."""
    quiet: bool = False
    """No progress bar."""


@dataclass(frozen=True)
class MembersOptions(RunOptions):
    """What is asked of any of these runs."""

    seeds: tuple[int, ...] = ()
    """Runs of these seeds side by side in one folder: on a GPU several cost little more than one."""


@dataclass(frozen=True)
class SineOptions(MembersOptions):
    """Meta-train on sine functions that come in sequence, in three phases.

    Every setting of the preset is a flag; the defaults shown are those of the preset that is named.
    """

    config: Annotated[RegressionConfig, arg(name="")] = field(default_factory=RegressionConfig)


@dataclass(frozen=True)
class DigitsOptions(MembersOptions):
    """Meta-train a generator and a critic of digits that come in sequence.

    Every setting of the preset is a flag; the defaults shown are those of the preset that is named.
    """

    root: str = ""
    """Where MNIST lies; by default the folder that the variable KCCIOL_DATA names, else ./data."""
    config: Annotated[GenerationConfig, arg(name="")] = field(default_factory=GenerationConfig)


Member = RegressionConfig | GenerationConfig


def members_in(folder: Path) -> list[Member] | None:
    """The configs of the runs in a folder; None when it holds none of this kind."""
    if folder.suffix == ".safetensors" and (folder.parent / "members.json").is_file():
        raise UserError(f"{folder} is a file of several runs: give their folder, {folder.parent}.")
    path = folder / "members.json"
    if not path.is_file():
        return None
    try:
        found = [member(one) for one in MEMBERS.read(path)["members"]]
        if not found:
            raise ValueError("it is empty")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError) as error:
        raise UserError(f"{path} cannot be read ({error}): it is not what a run leaves there.") from None
    return found


def train_members(words: Sequence[str], there: Sequence[Member]) -> int:
    """Train what a preset or a file describes, or what is in a folder."""
    start, folder = there[0], Path(words[0])
    place = folder if (folder / "members.json").is_file() else RunOptions.out
    seeds = tuple(one.seed for one in there) if len(there) > 1 else ()
    command = f"train {words[0]}"
    options: SineOptions | DigitsOptions
    if isinstance(start, RegressionConfig):
        options = parse(SineOptions, command, words, SineOptions(words[0], place, seeds=seeds, config=start))
    else:
        options = parse(DigitsOptions, command, words, DigitsOptions(words[0], place, seeds=seeds, config=start))
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("These runs train in one process: call kcciol without torchrun, with --seeds for several.")
    members = _members(options, there)
    path = options.out
    if path == RunOptions.out:
        name = Path(words[0].removesuffix(".toml")).name
        path = Path("runs") / f"{name}-seed{'-'.join(str(one.seed) for one in members)}"

    again = shlex.quote(str(path))
    if isinstance(options, DigitsOptions) and options.root:
        again += f" --root {shlex.quote(options.root)}"
    with with_resume_hint(f"`kcciol train {again} --resume` continues."):
        if isinstance(options, SineOptions):
            from kcciol.paper.sine.train import train_sine

            functions = [one for one in members if isinstance(one, RegressionConfig)]
            train_sine(functions, path, options.resume, options.quiet)
        else:
            from kcciol.paper.gan.digits import BASE, digits
            from kcciol.paper.gan.train import train_digits

            base, images = digits(options.root).base, [one for one in members if isinstance(one, GenerationConfig)]
            train_digits(images, base, BASE, path, options.resume, options.quiet)
    out.print(f"The run is in {path}; `kcciol evaluate {again}` measures it.")
    return 0


def _members(options: SineOptions | DigitsOptions, there: Sequence[Member]) -> list[Member]:
    """The runs that are wanted: those that are there, or one for each seed."""
    config, seeds = options.config, options.seeds or (options.config.seed,)
    if len(there) > 1 and seeds == tuple(one.seed for one in there):
        if replace(config, engine=there[0].engine) == there[0]:
            return [replace(one, engine=config.engine) for one in there]
        if any(replace(one, seed=there[0].seed) != there[0] for one in there):
            raise UserError("The runs in this folder differ in more than the seed: go on with them as they are.")
    if len(seeds) > 1 and config.seed != there[0].seed:
        raise UserError("--seed is for one run, --seeds for several: give one of them.")
    if min(seeds) < 0 or max(seeds) >= 2**63 or len(set(seeds)) < len(seeds):
        raise UserError("--seeds must be different numbers of 0 or more (and below 2^63).")
    return [replace(config, seed=seed) for seed in seeds]


@dataclass(frozen=True)
class EvaluateMembersOptions:
    """Learn novel functions, or novel digits, in sequence with what a run has learned, and measure.

    Of functions the mean squared error over those seen so far is given, after each. Of digits, for every rate, the
    share of generated images that a classifier trained on real ones takes for what they should be, after all three.
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """A run folder."""
    phase: int = 0
    """Which phase; 0 means the last."""
    runs: int = 50
    """Functions: sequences to average over."""
    rate: float = 0.0
    """Functions: rate of SGD; 0 means that of the inner loop in phase 1."""
    root: str = ""
    """Digits: where MNIST lies."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    out: Annotated[Path | None, arg(metavar="PATH")] = None
    """The JSON file to write; by default evaluation-PHASE.json in the folder."""


def evaluate_members(words: Sequence[str], members: Sequence[Member]) -> int:
    """Measure each of the runs in a folder."""
    for flag in ("--learner", "--compare", "--trains"):
        if any(word == flag or word.startswith(f"{flag}=") for word in words):
            raise UserError(f"{flag} is for classes: functions and digits are learned in one way each.")
    options = parse(EvaluateMembersOptions, f"evaluate {words[0]}", words)
    path = end_of_phase(options.run, options.phase)
    if options.runs < 1 or not 0 <= options.rate < math.inf:
        raise UserError("--runs must be at least 1 and --rate a number of 0 or more.")
    usual, functions = EvaluateMembersOptions(options.run), isinstance(members[0], RegressionConfig)
    for name in ("root",) if functions else ("runs", "rate"):
        if getattr(options, name) != getattr(usual, name):
            raise UserError(f"--{name} is for {'digits' if functions else 'functions'}: leave it out.")
    from kcciol.engine.record import record
    from kcciol.evaluation.results import RESULT
    from kcciol.files import require_json

    other = f"-runs{options.runs}" if options.runs != usual.runs else ""
    other += f"-rate{options.rate:g}" if options.rate else ""  # results of other settings stand side by side
    target = options.out or options.run / f"evaluation-{path.stem}{other}.json"
    require_json(target)
    say(f"{path.stem} of {len(members)} run{'' if len(members) == 1 else 's'} ...")
    results = (_functions if functions else _digits)(options, path)
    configs = [to_dict(one) for one in members]
    RESULT.write(target, {"members": configs, "results": results, "phase": path.stem, "record": record()})
    last = max(number for number, phase in enumerate(members[0].phases, 1) if phase.steps)
    short = not options.phase and path.stem < f"phase{last}"
    more = f"; the run has not come to the end of phase {last}" if short else ""
    out.print(f"Measured at the end of phase {path.stem.removeprefix('phase')}{more}.")
    out.print(f"wrote {target}")
    return 0


def end_of_phase(run: Path, phase: int) -> Path:
    """What a run folder holds of the end of a phase; 0: of its last."""
    there = [number for number in (1, 2, 3) if (run / f"phase{number}.safetensors").exists()]
    if not there:
        which = f"phase {phase}" if phase else "any phase"
        raise UserError(f"The folder {run} holds no representation of {which}: train it to the end of a phase first.")
    if phase and phase not in there:
        known = " and ".join(map(str, there))
        raise UserError(f"The folder {run} holds no representation of phase {phase}: choose {known}, or leave it out.")
    return run / f"phase{phase or there[-1]}.safetensors"


def _functions(options: EvaluateMembersOptions, path: Path) -> list[dict[str, Any]]:
    from kcciol.engine.device import pick_device
    from kcciol.paper.sine.adjoint import inner_loops
    from kcciol.paper.sine.evaluate import evaluate
    from kcciol.paper.sine.network import RegressionNetwork
    from kcciol.paper.sine.train import load_sine

    device = pick_device(options.device)
    configs, state = load_sine(path)
    table = Table("functions seen", *names_of(configs), box=None, pad_edge=False)
    results: list[dict[str, Any]] = []
    for config, Theta in zip(configs, state.tensors["Theta"].to(device), strict=True):
        net, rate = RegressionNetwork(config.net, config.sine.slots + 1), options.rate or config.phase1.alpha
        learn = inner_loops(device, exact=True).learn
        rows = evaluate(net, Theta, config.sine, config.seed, options.runs, rate, True, learn).to_dict()
        results.append({"seed": config.seed, "rate": rate, "functions": rows})
    for n in results[0]["functions"]:
        cells = [r["functions"][n] for r in results]
        table.add_row(n, *(_error(cell) for cell in cells))
    out.print(table)
    return results


def names_of(configs: Sequence[Member]) -> list[str]:
    """What to call runs; numbered where the seed is not enough."""
    seeds = [one.seed for one in configs]
    numbered = len(set(seeds)) < len(seeds)
    return [f"{number}, seed {seed}" if numbered else f"seed {seed}" for number, seed in enumerate(seeds, 1)]


def _error(cell: dict[str, Any]) -> str:
    if cell["mean"] is None:
        return "all runs diverged"
    form = ".3f" if 1e-2 <= cell["mean"] < 1e5 else ".2g"
    spread = "" if cell["ci95"] is None else f" ± {cell['ci95']:{form}}"
    return f"{cell['mean']:{form}}{spread}" + (f" ({cell['diverged']} diverged)" if cell["diverged"] else "")


def _digits(options: EvaluateMembersOptions, path: Path) -> list[dict[str, Any]]:
    from kcciol.engine.device import pick_device
    from kcciol.paper.gan.digits import BASE, NOVEL, classifier, digits, measure
    from kcciol.paper.gan.network import Networks
    from kcciol.paper.gan.train import load_digits

    device, data = pick_device(options.device), digits(options.root)
    configs, state = load_digits(data.base, BASE, path)
    judge, real = classifier(data, device, epochs=3)
    table = Table("rate", *(f"{name}: {d}" for name in names_of(configs) for d in NOVEL), box=None, pad_edge=False)
    results: list[dict[str, Any]] = []
    for config, Theta in zip(configs, state.tensors["Theta"].to(device), strict=True):
        nets = Networks(config.gan, data.base.images[0, 0].numel())
        found = measure(nets, Theta, data.novel, config.seed, judge, 25)
        results.append({"seed": config.seed, "classifier on held-out real images": real, **found})
    for rate in results[0]["rates"]:
        shares = [share for r in results for share in r["rates"][rate]["right"][-1]]
        table.add_row(rate, *(f"{100 * share:.0f} %" for share in shares))
    out.print(table)
    return results
