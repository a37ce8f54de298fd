"""The command line: one function for each command. A UserError becomes one sentence and exit code 2."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

import kcciol
from kcciol import config as configs
from kcciol import representations
from kcciol.config import Config, DataConfig, EvaluationConfig
from kcciol.errors import UserError

if TYPE_CHECKING:
    from kcciol.data.classset import ClassSet, Splits

T = TypeVar("T")
out = Console(highlight=False, markup=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    # Threads that wait by spinning make a small network fifty times slower as soon as another program wants a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        _print_help()
        return 0
    if words[0] == "--version":
        out.print(f"kcciol {kcciol.__version__}")
        return 0
    try:
        if words[0] not in COMMANDS:
            raise UserError(f"There is no command {words[0]!r}; there are: {', '.join(COMMANDS)}.")
        return COMMANDS[words[0]](words[1:]) or 0
    except UserError as error:
        print(f"kcciol: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a file that was taken away: nothing a traceback would help with
        print(f"kcciol: {error}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate" not in str(error) and "out of memory" not in str(error):
            raise
        print("kcciol: There is not enough memory for this: ask for less (fewer, smaller or shorter).", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kcciol: interrupted", file=sys.stderr)
        return 130


def _print_help() -> None:
    out.print(f"kcciol {kcciol.__version__}: learn new classes online, from few examples, without forgetting\n")
    out.print("usage: kcciol COMMAND [options]      (kcciol COMMAND --help explains each)\n")
    for name, function in COMMANDS.items():
        out.print(f"  {name:<11} {(function.__doc__ or '').splitlines()[0]}")


def _parse(options: type[T], command: str, words: Sequence[str], default: T | None = None) -> T:
    arguments: dict[str, Any] = {
        "prog": f"kcciol {command}",
        "args": list(words),
        "description": inspect.getdoc(options),
    }
    if default is not None:
        arguments["default"] = default
    parsed: T = tyro.cli(options, **arguments)
    return parsed


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataOptions:
    """Look at data sets: list them, download one, check what is there, or draw a contact sheet.

    list: which data sets there are, and where their files belong. get: download one. check: load one and count.
    show: write a PNG with some images of some classes.
    """

    action: Positional[Literal["list", "get", "check", "show"]]
    name: Positional[str] = ""
    """The data set, for get, check and show."""
    out: Path = Path("sheet.png")
    """show: the PNG to write."""
    split: Literal["base", "validation", "novel"] = "base"
    """show: which classes."""
    rows: int = 20
    """show: how many classes."""
    columns: int = 10
    """show: how many images of each."""
    data: Annotated[DataConfig, arg(name="")] = field(default_factory=DataConfig)


def data(words: Sequence[str]) -> int:
    """Data sets: list, get (download), check, show (a contact sheet)."""
    from kcciol import data as package

    name = next((word for word in words if word in package.DATASETS), "")
    defaults = {"glyphs": configs.preset("quickstart").data, "folder": DataConfig(name="folder", base_classes=0)}
    start = DataOptions("list", name, data=defaults.get(name, DataConfig()))
    words = list(words) or ["list"]
    options = _parse(DataOptions, "data", words, start)
    if options.action == "list":
        table = Table("name", "what it is", "download")
        table.add_column("where its files belong, under the data root", overflow="fold")
        for row_name, what, layout, can in package.describe():
            table.add_row(row_name, what, f"kcciol data get {row_name}" if can else "-", layout)
        out.print(table)
        return 0
    if not options.name:
        raise UserError(f"kcciol data {options.action} needs the name of a data set: {', '.join(package.DATASETS)}.")
    if options.name not in package.DATASETS:
        raise UserError(f"There is no data set {options.name!r}; there are: {', '.join(package.DATASETS)}.")
    config = dataclasses.replace(options.data, name=options.name)  # type: ignore[arg-type]
    if options.action == "get":
        for line in package.get(config.name, Path(package.locate(config).root)):
            out.print(line)
    elif options.action == "check":
        report = package.check(config)
        out.print(f"{report.name}: images of (channels, height, width) {report.image_shape}")
        for part in report.splits:
            out.print(
                f"  {part.split:<10} {part.classes} classes, {part.images} images, {part.fewest} to {part.most} a class"
            )
    else:
        package.contact_sheet(_split(package.load(config), options.split), options.out, options.rows, options.columns)
        out.print(f"wrote {options.out}")
    return 0


def _split(splits: Splits, name: str) -> ClassSet:
    part: ClassSet = getattr(splits, name)
    if len(part) == 0:
        raise UserError(f"There are no {name} classes: set data.{name}_classes to a number above 0.")
    return part


# --- train ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainOptions:
    """Meta-train a representation on base classes, in three phases.

    Every setting of the preset is a flag; the defaults shown are those of the preset that is named.
    """

    preset: Positional[str]
    """A preset's name, a config file of the same shape, or the folder of a run to take the config from."""
    out: Path = Path("runs/PRESET-seed0")
    """The run folder; by default runs/PRESET-seedSEED."""
    resume: bool = False
    """Continue the run in the folder, exactly where its checkpoint stands."""
    start: Path | None = None
    """A representation saved at the end of a phase: begin with the phase after it."""
    quiet: bool = False
    """No progress bar."""
    config: Annotated[Config, arg(name="")] = field(default_factory=Config)


def train(words: Sequence[str]) -> int:
    """Meta-train a representation: kcciol train PRESET."""
    if words and words[0].startswith("-") and {"-h", "--help"}.isdisjoint(words):
        raise UserError("The preset comes first: kcciol train PRESET [options].")
    if not words or words[0].startswith("-"):
        out.print("usage: kcciol train PRESET [options]      (kcciol train PRESET --help shows every setting)\n")
        _print_presets()
        out.print("\nPRESET may also be a .toml file of the same shape, or the folder of a run.")
        out.print("--out says where the run goes, --resume continues it, --start begins after a phase of another run.")
        return 0 if {"-h", "--help"} & set(words) else 2
    folder = Path(words[0])
    if (folder / "config.toml").is_file():
        start = TrainOptions(words[0], folder, config=configs.read(folder / "config.toml"))
    elif words[0].endswith(".toml"):
        start = TrainOptions(folder.stem, config=configs.read(folder))
    else:
        start = TrainOptions(words[0], config=configs.preset(words[0]))
    method = _word_after("--representation", words)
    before = start.config.representation
    if method is not None and method != before:
        start = dataclasses.replace(start, config=representations.with_method(start.config, method))
    options = _parse(TrainOptions, "train", words, start)
    representations.check_label(options.config)
    path = options.out
    if path == TrainOptions.out:
        name = Path(options.preset).stem + (f"-{method}" if method not in (None, before) else "")
        path = Path("runs") / f"{name}-seed{options.config.seed}"
    from kcciol.data import load
    from kcciol.engine.stop import Stopped
    from kcciol.meta import phases

    try:
        base = load(options.config.data).base
        phases.train(options.config, base, path, options.resume, options.start, options.quiet)
    except Stopped as stopped:
        print(f"kcciol: {stopped} `kcciol train {shlex.quote(str(path))} --resume` continues.", file=sys.stderr)
        return stopped.exit_code
    out.print(f"The run is in {path}; `kcciol evaluate {shlex.quote(str(path))}` measures it.")
    return 0


def _word_after(flag: str, words: Sequence[str]) -> str | None:
    """The value of a flag that must be known before the others can be read."""
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word == flag:
            return following
        if word.startswith(flag + "="):
            return word.removeprefix(flag + "=")
    return None


def _print_presets() -> None:
    table = Table.grid(padding=(0, 2))
    for name, what in configs.presets().items():
        table.add_row(f"  {name}", what)
    out.print(table)


# --- evaluate ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluateOptions:
    """Learn novel classes online with a trained representation, and measure (Algorithm 4 of the paper).

    Settings that are not given are those of the run's own config, not the defaults shown here.
    """

    run: Positional[Path]
    """A run folder, or a representation file such as runs/mine/phase3.safetensors."""
    phase: int = 0
    """Which phase of a run folder; 0 means its last."""
    untrained: bool = False
    """Measure the random network that the run began with instead."""
    split: Literal["novel", "validation"] = "novel"
    """Evaluate on novel classes, or on the base classes that were kept out of training."""
    root: str = ""
    """The data root, when it is not where it was in training."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    out: Path | None = None
    """The JSON file to write; by default evaluation-PHASE.json beside the representation."""
    learner: str = ""
    """Another learner than the head of Algorithm 4: `kcciol list learners` names them. Its settings are chosen on base
    classes."""
    compare: tuple[str, ...] | None = None
    """Several learners on the same streams, as a table; without names all that fit."""
    trains: Literal["head", "all"] = "head"
    """With --learner or --compare: theta frozen and a head trained, or the whole network trained."""
    set: tuple[str, ...] = ()
    """With --learner: settings that are not to be chosen, as name=value (slots=500 optimizer=adam)."""
    task_classes: int = 1
    """With --learner or --compare: classes in a task."""
    budget_images: int = 0
    """With --learner or --compare: replay learners keep as many examples as fit into the bytes of so many images; 0
    leaves their number to their settings."""
    order: Literal["class", "task", "shuffled"] = "class"
    """With --learner or --compare: examples come class after class, in random order within a task, or all shuffled."""
    evaluation: Annotated[EvaluationConfig, arg(name="")] = field(default_factory=EvaluationConfig)


def evaluate(words: Sequence[str]) -> int:
    """Measure a representation on novel classes: kcciol evaluate RUN."""
    if {"-h", "--help"} & set(words[:1]):
        _parse(EvaluateOptions, "evaluate", ["--help"])
    if not words or words[0].startswith("-"):
        raise UserError("The run comes first: kcciol evaluate RUN [options].")
    start = EvaluateOptions(Path(words[0]))
    if {"-h", "--help"} & set(words):
        _parse(EvaluateOptions, "evaluate", words, start)
    from kcciol.atomic import require_json, write_json
    from kcciol.engine import checkpoint
    from kcciol.measure import measure_file

    saved = checkpoint.load(_representation_file(start))
    start = dataclasses.replace(start, evaluation=saved.config.evaluation)
    options = _parse(EvaluateOptions, "evaluate", words, start)
    path = _representation_file(options)
    name = "untrained" if options.untrained else path.stem
    if options.evaluation != saved.config.evaluation:  # results of other settings stand side by side
        name += "-" + hashlib.sha256(repr(options.evaluation).encode()).hexdigest()[:6]
    target = options.out or path.parent / f"evaluation-{name}{'' if options.split == 'novel' else '-validation'}.json"
    _refuse_unused(options, saved.config.evaluation)
    if options.learner or options.compare is not None:
        return _evaluate_learners(options, path)
    require_json(target)
    result = measure_file(
        path, options.evaluation, options.split, options.root, options.device, options.untrained, _say
    )
    write_json(target, result)
    out.print(f"wrote {target}")
    return 0


def _evaluate_learners(options: EvaluateOptions, path: Path) -> int:
    """--learner and --compare."""
    from kcciol import compare
    from kcciol.atomic import require_json, write_json
    from kcciol.data import load as load_data
    from kcciol.engine.execute import pick_device
    from kcciol.learners import fitting, learner_type
    from kcciol.representation import Representation
    from kcciol.representation import load as load_representation

    names = list(options.compare or (fitting(options.trains) if options.compare is not None else ()))
    names = list(dict.fromkeys([*names, *([options.learner] if options.learner else [])]))
    for name in names:
        learner_type(name)
    if options.set and len(names) > 1:
        raise UserError("--set is for one learner: name it by --learner, without --compare.")
    fixed = compare.parse_settings(names[0], options.set)
    e = options.evaluation
    config = compare.StreamConfig(
        classes=e.classes,
        task_classes=options.task_classes,
        order=options.order,
        train_samples=e.train_samples,
        test_samples=e.test_samples,
        trajectories=e.trajectories,
        budget_images=options.budget_images,
        seed=e.seed,
    )
    which = "compare" if options.compare is not None else options.learner
    name = f"{which}-{'untrained' if options.untrained else path.stem}"
    name += "" if options.split == "novel" else f"-{options.split}"
    unlike = hashlib.sha256(repr((config, options.trains, options.split, fixed, names)).encode()).hexdigest()[:6]
    target = options.out or path.parent / f"evaluation-{name}-{unlike}.json"
    require_json(target)
    device = pick_device(options.device)
    representation = load_representation(path, device)
    data_config = representation.config.data
    data = load_data(dataclasses.replace(data_config, root=options.root) if options.root else data_config)
    if options.untrained:
        representation = Representation.untrained(representation.config, data.base, device)
    where = compare.world(representation, data, config, options.trains, options.split)
    for name in names:
        compare.check_learner(where, name, fixed)
    about: dict[str, Any] = {"representation": f"{path.parent.name}/{path.name}"}
    about |= {"untrained": options.untrained, "split": options.split}
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        results[name] = compare.measure_learner(where, name, config, fixed, say=_say)
        write_json(target, compare.with_record({**about, "learners": results}, representation, config))
    out.print(_learner_table(results, sorted(e.classes)))
    chosen = any(result["choice"]["scores"] for result in results.values())
    out.print(
        f"{e.trajectories} streams each, ± 95 % interval, held-out images"
        + (f"; settings chosen on {where.chosen_on}." if chosen else ".")
    )
    out.print(f"wrote {target}")
    return 0


def _refuse_unused(options: EvaluateOptions, evaluation: EvaluationConfig) -> None:
    """Options that would do nothing are mistakes."""
    if not options.learner and options.compare is None:
        for name in ("trains", "set", "task_classes", "order", "budget_images"):
            if getattr(options, name) != getattr(EvaluateOptions(options.run), name):
                raise UserError(f"--{name.replace('_', '-')} goes with --learner or --compare: name one.")
        return
    for name in ("rates", "rule", "optimizer", "start", "reinit", "outputs", "search_trajectories", "curve_points"):
        if getattr(options.evaluation, name) != getattr(evaluation, name):
            raise UserError(
                f"--{name.replace('_', '-')} belongs to the head of Algorithm 4: with --learner, settings are chosen "
                "on base classes or given by --set."
            )


def _learner_table(results: dict[str, dict[str, Any]], classes: Sequence[int]) -> Table:
    """The best first."""
    table = Table("learner", *(f"{n} classes" for n in classes), "forgetting", "keeps", "seconds")
    for name, result in sorted(results.items(), key=lambda item: -float(item[1]["summary"]["test"]["mean"])):
        cells = [result["classes"][str(n)] for n in classes]
        shown = [f"{c['mean']:.1f}" + (f" ± {c['ci95']:.1f}" if c["ci95"] is not None else "") for c in cells]
        kept = f"{sum(result['bytes'].values()) / 1e6:.2f} MB" + (", examples" if result["replay"] else "")
        kept += "" if result.get("within_budget", True) else " (over budget)"
        lost = f"{result['summary']['forgetting']['mean']:.1f}" if "forgetting" in result["summary"] else "-"
        table.add_row(name, *shown, lost, kept, f"{result['total_seconds']:.1f}")
    return table


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _representation_file(options: EvaluateOptions) -> Path:
    if not options.run.is_dir():
        if options.phase:
            raise UserError(f"--phase chooses in a run folder, but {options.run} is not one: leave it out.")
        return options.run
    numbers = (options.phase,) if options.phase else (3, 2, 1)
    for number in numbers:
        path = options.run / f"phase{number}.safetensors"
        if path.exists():
            return path
    which = f"phase {options.phase}" if options.phase else "any phase"
    raise UserError(
        f"The folder {options.run} holds no representation of {which}: train it to the end of a phase first."
    )


# --- list -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ListOptions:
    """What there is: representations (how theta is learned beforehand), learners (what one example does), presets."""

    what: Positional[Literal["representations", "learners", "presets"]]


def list_(words: Sequence[str]) -> int:
    """What there is: kcciol list representations|learners|presets."""
    options = _parse(ListOptions, "list", words)
    if options.what == "presets":
        _print_presets()
        return 0
    if options.what == "representations":
        table = Table("name", "what it is", "from", box=None, pad_edge=False)
        for name, method in representations.REPRESENTATIONS.items():
            table.add_row(name, method.what, method.paper)
        out.print(table)
        out.print("kcciol train PRESET --representation NAME")
        return 0
    from kcciol.learners import LEARNERS, typical_bytes

    table = Table("name", "what it is", "from", "keeps", "replay", "tasks", box=None, pad_edge=False)
    for name, learner in LEARNERS.items():
        card, size = learner.card, typical_bytes(name)
        kept = "network" if size is None else f"{size / 1e6:.1f} MB"
        table.add_row(name, card.what, card.paper, kept, "yes" if card.replay else "-", "yes" if card.tasks else "-")
    out.print(table)
    out.print("keeps: after 200 classes of 2304 features; replay: keeps examples; tasks: is told when one ends")
    out.print("kcciol evaluate RUN --learner NAME, or kcciol evaluate RUN --compare")
    return 0


# --- quickstart and bench ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QuickstartOptions:
    """The whole method in minutes on a CPU: train three phases on drawn glyphs, then learn novel classes online.

    Prints a table and saves the representation, the numbers and a plot in the run folder.
    """

    out: Path = Path("runs/quickstart")
    """The run folder; a run that was cut is continued."""
    config: Annotated[Config, arg(name="")] = field(default_factory=Config)


def quickstart(words: Sequence[str]) -> int:
    """The whole method in minutes, without data or a GPU."""
    options = _parse(QuickstartOptions, "quickstart", words, QuickstartOptions(config=configs.preset("quickstart")))
    from kcciol import quickstart as module
    from kcciol.engine.stop import Stopped

    try:
        module.run(options.config, options.out)
    except Stopped as stopped:
        print(f"kcciol: {stopped} Running the same command again continues.", file=sys.stderr)
        return stopped.exit_code
    return 0


@dataclass(frozen=True)
class BenchOptions:
    """Time the meta-step (step) or the online evaluation (evaluate) on this machine.

    step: a naive full-network step, ours run eagerly and ours as a CUDA graph, in one run. evaluate: on a GPU 50
    trajectories x 8 rates of each length; everywhere one trajectory against a plain per-example autograd loop.
    """

    what: Positional[Literal["step", "evaluate"]]
    preset: str = ""
    """step: the preset whose sizes are timed; by default omniglot-paper on a GPU and quickstart on a CPU."""
    steps: int = 200
    """step: steps to time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    out: Path | None = None
    """A JSON file to write the numbers to."""


def bench(words: Sequence[str]) -> int:
    """Time the meta-step or the evaluation: kcciol bench step."""
    options = _parse(BenchOptions, "bench", words)
    from kcciol.atomic import require_json, write_json
    from kcciol.bench import evaluation, step

    if options.steps < 1:
        raise UserError(f"--steps is {options.steps}, but must be at least 1.")
    if options.out is not None:
        require_json(options.out)
    if options.what == "step":
        result = step.measure(options.preset, options.steps, options.device, _say)
    else:
        result = evaluation.measure(options.device, _say)
    for key, value in result.items():
        if not isinstance(value, dict):
            out.print(f"{key:<22} {value:.4g}" if isinstance(value, float) else f"{key:<22} {value}")
    if options.out is not None:
        write_json(options.out, result)
        out.print(f"wrote {options.out}")
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "quickstart": quickstart,
    "data": data,
    "train": train,
    "evaluate": evaluate,
    "list": list_,
    "bench": bench,
}
