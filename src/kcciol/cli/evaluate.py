"""kcciol evaluate: Algorithm 4, or learners by name on the same streams, on novel classes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg

from kcciol.cli.sine_gan import end_of_phase, evaluate_members, members_in
from kcciol.cli.terminal import out, parse, say, word_after
from kcciol.config import EvaluationConfig
from kcciol.errors import UserError
from kcciol.recipes.config import recipe_in
from kcciol.serialization import to_dict


@dataclass(frozen=True)
class EvaluateOptions:
    """Learn novel classes online with a trained representation, and measure (Algorithm 4 of the paper).

    Settings that are not given are those of the run's own config: kcciol evaluate RUN --help shows them. Runs of
    functions or of digits have other options, which it shows too. docs/protocol.md says more of each.
    """

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
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
    out: Annotated[Path | None, arg(metavar="PATH")] = None
    """The JSON file to write; by default one beside the representation, with a name that says what was asked for."""
    learner: str = ""
    """Another learner than the head of Algorithm 4 (`kcciol list learners`); --rule chooses its settings."""
    compare: Annotated[tuple[str, ...] | None, arg(metavar="[NAME ...]")] = None
    """Several learners on the same streams, as a table; without names all that fit, which takes a while."""
    trains: Literal["head", "all"] = "head"
    """With --learner or --compare: theta frozen and a head trained, or the whole network trained."""
    set: tuple[str, ...] = ()
    """With one learner: settings that are not to be chosen, as name=value (slots=500 optimizer=adam)."""
    evaluation: OmitArgPrefixes[EvaluationConfig] = field(default_factory=EvaluationConfig)


def evaluate(words: Sequence[str]) -> int:
    """Measure a representation on novel classes: kcciol evaluate RUN."""
    if {"-h", "--help"} & set(words[:1]):
        parse(EvaluateOptions, "evaluate", ["--help"])
    if not words or words[0].startswith("-"):
        raise UserError("The run comes first: kcciol evaluate RUN [options].")
    if (members := members_in(Path(words[0]))) is not None:
        return evaluate_members(words, members)
    if recipe_in(Path(words[0])) is not None:
        raise UserError(
            f"{words[0]} is the run of an encoder's recipe, which this does not measure: "
            f"kcciol.open_encoder({str(Path(words[0]) / 'encoder.safetensors')!r}) opens what it has learned."
        )
    start = EvaluateOptions(Path(words[0]))
    from kcciol.engine import checkpoint
    from kcciol.engine.run_folder import with_recovery_hint

    phase = word_after("--phase", words) or ""  # the settings are those of the file that is evaluated
    path = _representation_file(dataclasses.replace(start, phase=int(phase) if phase in ("1", "2", "3") else 0))
    with with_recovery_hint("that of the last phase is made again" if start.run.is_dir() else ""):
        saved = checkpoint.load(path)
    start = dataclasses.replace(start, evaluation=saved.config.evaluation)
    options = parse(EvaluateOptions, "evaluate", words, start)
    path = _representation_file(options)
    name = "untrained" if options.untrained else path.stem
    if options.evaluation != saved.config.evaluation:  # results of other settings stand side by side
        name += "-" + hashlib.sha256(repr(options.evaluation).encode()).hexdigest()[:6]
    target = options.out or path.parent / f"evaluation-{name}{'' if options.split == 'novel' else '-validation'}.json"
    _refuse_unused(options, saved.config.evaluation)
    if options.learner or options.compare is not None:
        return _evaluate_learners(options, path)
    from kcciol.evaluation.measure import measure, open_run
    from kcciol.evaluation.results import RESULT
    from kcciol.files import require_json

    require_json(target)
    representation, data = open_run(path, options.root, options.device, options.untrained)
    result = measure(representation, data, options.evaluation, options.split, say)
    about = {"representation": f"{path.parent.name}/{path.name}", "untrained": options.untrained}
    RESULT.write(target, about | result)
    _explain_star([result])
    out.print(f"wrote {target}")
    return 0


def _representation_file(options: EvaluateOptions) -> Path:
    if not options.run.exists():
        raise UserError(f"There is no run folder and no file {options.run}.")
    if options.untrained and options.phase:
        raise UserError("--untrained measures the network before all phases: leave --phase out.")
    if not options.run.is_dir():
        if options.phase:
            raise UserError(f"--phase chooses in a run folder, but {options.run} is not one: leave it out.")
        return options.run
    return end_of_phase(options.run, options.phase)


def _refuse_unused(options: EvaluateOptions, evaluation: EvaluationConfig) -> None:
    """Options that would do nothing are mistakes."""
    if not options.learner and options.compare is None:
        for name in ("trains", "set"):
            if getattr(options, name) != getattr(EvaluateOptions(options.run), name):
                raise UserError(f"--{name} goes with --learner or --compare: name one.")
        return
    if options.learner and options.compare is not None:
        raise UserError("--learner is for one, --compare for several: give one of the two.")
    from kcciol.evaluation.protocol import HEAD

    if not options.set and HEAD in (options.learner, *(() if options.learner else options.compare or (HEAD,))):
        return  # it is among them
    for name in ("rates", "optimizer", "start", "reinit", "outputs"):
        if getattr(options.evaluation, name) != getattr(evaluation, name):
            raise UserError(
                f"--{name.replace('_', '-')} belongs to the head of Algorithm 4: with --learner, settings are chosen "
                "out of its own grid or given by --set."
            )


def _evaluate_learners(options: EvaluateOptions, path: Path) -> int:
    """--learner and --compare."""
    from kcciol.evaluation import measure
    from kcciol.evaluation.results import RESULT, with_record
    from kcciol.files import require_json
    from kcciol.learners import fitting, learner_type

    names = [options.learner] if options.learner else list(dict.fromkeys(options.compare or fitting(options.trains)))
    for name in names:
        learner_type(name)
    if options.set and len(names) > 1:
        raise UserError("--set is for one learner, but there are several: name one.")
    fixed, config = measure.parse_settings(names[0], options.set), options.evaluation
    which = "compare" if options.compare is not None else options.learner
    name = f"{which}-{'untrained' if options.untrained else path.stem}"
    name += "" if options.split == "novel" else f"-{options.split}"
    unlike = hashlib.sha256(repr((config, options.trains, options.split, fixed, names)).encode()).hexdigest()[:6]
    target = options.out or path.parent / f"evaluation-{name}-{unlike}.json"
    require_json(target)
    representation, data = measure.open_run(path, options.root, options.device, options.untrained)
    scenario = measure.scenario_of(representation, data, config, options.trains, options.split)
    for name in names:
        measure.require_fit(scenario, name, fixed)
    about: dict[str, Any] = {"representation": f"{path.parent.name}/{path.name}"}
    about |= {"untrained": options.untrained, "split": options.split, "identity": representation.identity}
    about |= {"evaluation": to_dict(config), "trains": options.trains, "fixed": fixed, "data": data.identity}
    unfinished = target.with_name(f"{target.stem}-unfinished.json")  # so that an older result stays until then
    results = _measured_before(unfinished, about, names)
    if results:
        say(f"Of an earlier call {len(results)} of {len(names)} are in {unfinished}: {', '.join(results)}.")
    try:
        for number, name in enumerate(names, 1):
            if name in results:
                continue
            shown = f"{number} of {len(names)}, {name}" if len(names) > 1 else name
            say(f"{shown} ...")
            tell = functools.partial(_say, shown)
            results[name] = measure.measure_learner(scenario, name, config, fixed, progress=tell)
            if len(results) < len(names):
                RESULT.write(unfinished, with_record({**about, "learners": results}, representation))
    except BaseException:
        if results and unfinished.exists():
            say(f"What was measured so far is in {unfinished}: call again to continue.")
        raise
    results = {name: results[name] for name in names}
    RESULT.write(target, with_record({**about, "learners": results}, representation))
    unfinished.unlink(missing_ok=True)
    out.print(_learner_table(results, sorted(config.classes)))
    chosen = any(result["choice"]["scores"] for result in results.values())
    out.print(
        f"{config.trajectories} streams each, ± 95 % interval, held-out images"
        + (f"; settings chosen on {scenario.chosen_on(config.rule)}." if chosen else ".")
    )
    if chosen and config.rule == "stream" and len(names) > 1:
        out.print("The rule stream favours learners that fit the learned images closely: compare by --rule base too.")
    _explain_star(results.values())
    out.print(f"wrote {target}")
    return 0


def _explain_star(results: Iterable[dict[str, Any]]) -> None:
    from kcciol.evaluation.metrics import STAR

    if any("ci95_of_images" in cell for result in results for cell in result["classes"].values()):
        out.print(STAR)


def _measured_before(unfinished: Path, about: dict[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What a call that was cut measured of these learners, on the same data in the same way by the same code."""
    from kcciol.engine.record import record
    from kcciol.evaluation.results import RESULT

    now = record()
    try:
        found = RESULT.read(unfinished)
        alike = all(found[key] == value for key, value in about.items())
        alike &= all(found["record"][key] == now[key] for key in ("commit", "versions", "hardware"))
        return {name: found["learners"][name] for name in names if name in found["learners"]} if alike else {}
    except (UserError, KeyError, TypeError):
        return {}


def _say(name: str, line: str) -> None:
    say(f"{name}, {line}")


def _learner_table(results: dict[str, dict[str, Any]], classes: Sequence[int]) -> Table:
    """The best first."""
    from kcciol.evaluation.metrics import with_interval

    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("learner", no_wrap=True)
    for name in (*(f"{n}\nclasses" for n in classes), "for-\ngets", "keeps", "re-\nplay", "s"):
        table.add_column(name)
    for name, result in sorted(results.items(), key=lambda item: -float(item[1]["summary"]["test"]["mean"])):
        accuracies = [with_interval(result["classes"][str(n)]) for n in classes]
        kept = f"{sum(result['bytes'].values()) / 1e6:.2f} MB"
        kept += "" if result.get("within_budget", True) else " (over budget)"
        lost = f"{result['summary']['forgetting']['mean']:.1f}" if "forgetting" in result["summary"] else "-"
        replay = "yes" if result["replay"] else "-"
        table.add_row(name, *accuracies, lost, kept, replay, f"{result['total_seconds']:.0f}")
    return table
