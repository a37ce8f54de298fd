"""kcciol train and kcciol evaluate for sine functions and for digits that are generated."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from kcciol.cli.problems import PROBLEMS, Member
from kcciol.cli.terminal import out, parse, say
from kcciol.config import FASTEST, require
from kcciol.engine.stop import with_resume_hint
from kcciol.errors import UserError
from kcciol.paper.formats import MEMBERS
from kcciol.paper.gan.settings import GenerationConfig
from kcciol.paper.presets import member
from kcciol.paper.sine.settings import RegressionConfig
from kcciol.serialization import to_dict

MOST_RUNS = 10**5  # the result names each of them, after each function


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


OPTIONS: dict[str, type[Any]] = {"regression": SineOptions, "generation": DigitsOptions}  # of train


def members_in(folder: Path) -> list[Member] | None:
    """The configs of the runs in a folder; None when it holds none of this kind."""
    if folder.suffix == ".safetensors" and (folder.parent / "members.json").is_file():
        raise UserError(f"{folder} is a file of several runs: give their folder, {folder.parent}.")
    path = folder / "members.json"
    if not path.is_file():
        return None
    listed = MEMBERS.read(path).get("members")
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise UserError(f"{path} names no members that train in this folder: use another copy of it.")
    try:
        return [member(one) for one in listed]
    except UserError as error:
        raise UserError(f"The list of members {path} cannot be used: {error}") from None


def train_members(words: Sequence[str], there: Sequence[Member]) -> int:
    """Train what a preset or a file describes, or what is in a folder."""
    start, folder, problem = there[0], Path(words[0]), PROBLEMS[there[0].problem]
    place = folder if (folder / "members.json").is_file() else RunOptions.out
    seeds = tuple(one.seed for one in there) if len(there) > 1 else ()
    kind = OPTIONS[start.problem]
    options = parse(kind, f"train {words[0]}", words, kind(words[0], place, seeds=seeds, config=start))
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("These runs train in one process: call kcciol without torchrun, with --seeds for several.")
    members = _members(options, there)
    path = options.out
    if path == RunOptions.out:
        name = Path(words[0].removesuffix(".toml")).name
        path = Path("runs") / f"{name}-seed{'-'.join(str(one.seed) for one in members)}"

    again = shlex.quote(str(path))
    if root := getattr(options, "root", ""):  # digits alone need data
        again += f" --root {shlex.quote(root)}"
    with with_resume_hint(f"`kcciol train {again} --resume` continues."):
        problem.train(members, path, options.resume, options.quiet, root)
    out.print(f"The run is in {path}; `kcciol evaluate {again}` measures it.")
    return 0


def _members(options: Any, there: Sequence[Member]) -> list[Member]:
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
    require(1 <= options.runs <= MOST_RUNS, "--runs", options.runs, f"between 1 and {MOST_RUNS:,}")
    require(0 <= options.rate <= FASTEST, "--rate", options.rate, f"between 0 and {FASTEST:g}")
    usual, problem = EvaluateMembersOptions(options.run), PROBLEMS[members[0].problem]
    for other in PROBLEMS.values():
        for name in other.flags if other is not problem else ():
            if getattr(options, name) != getattr(usual, name):
                raise UserError(f"--{name} is for {other.what}: leave it out.")
    from kcciol.engine.record import record
    from kcciol.evaluation.results import RESULT
    from kcciol.files import require_json

    unusual = f"-runs{options.runs}" if options.runs != usual.runs else ""
    unusual += f"-rate{options.rate:g}" if options.rate else ""  # results of other settings stand side by side
    target = options.out or options.run / f"evaluation-{path.stem}{unusual}.json"
    require_json(target)
    say(f"{path.stem} of {len(members)} run{'' if len(members) == 1 else 's'} ...")
    results = problem.measure(path, options.device, **{name: getattr(options, name) for name in problem.flags})
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
