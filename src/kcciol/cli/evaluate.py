"""kcciol evaluate: Algorithm 4, or any learner, on novel classes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from kcciol.cli.learners import evaluate_learners
from kcciol.cli.members import evaluate_members, members_in
from kcciol.cli.terminal import out, parse, say, word_after
from kcciol.config import EvaluationConfig
from kcciol.errors import UserError


@dataclass(frozen=True)
class EvaluateOptions:
    """Learn novel classes online with a trained representation, and measure (Algorithm 4 of the paper).

    Settings that are not given are those of the run's own config, not the defaults shown here. Runs of functions or of
    digits have other options: kcciol evaluate RUN --help shows those of a run.
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
    """The JSON file to write; by default evaluation-PHASE.json beside the representation, or a name that says what else
    was asked for."""
    learner: str = ""
    """Another learner than the head of Algorithm 4: `kcciol list learners` names them. Its settings are chosen on base
    classes."""
    compare: tuple[str, ...] | None = None
    """Several learners on the same streams, as a table; without names all that fit, which takes a while."""
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
        parse(EvaluateOptions, "evaluate", ["--help"])
    if not words or words[0].startswith("-"):
        raise UserError("The run comes first: kcciol evaluate RUN [options].")
    if (members := members_in(Path(words[0]))) is not None:
        return evaluate_members(words, members)
    start = EvaluateOptions(Path(words[0]))
    if {"-h", "--help"} & set(words):
        parse(EvaluateOptions, "evaluate", words, start)
    from kcciol.atomic import require_json, write_json
    from kcciol.engine import checkpoint
    from kcciol.measure import measure_file

    phase = word_after("--phase", words) or ""  # the settings are those of the file that is evaluated
    saved = checkpoint.load(
        _representation_file(dataclasses.replace(start, phase=int(phase) if phase.isdigit() else 0))
    )
    start = dataclasses.replace(start, evaluation=saved.config.evaluation)
    options = parse(EvaluateOptions, "evaluate", words, start)
    path = _representation_file(options)
    name = "untrained" if options.untrained else path.stem
    if options.evaluation != saved.config.evaluation:  # results of other settings stand side by side
        name += "-" + hashlib.sha256(repr(options.evaluation).encode()).hexdigest()[:6]
    target = options.out or path.parent / f"evaluation-{name}{'' if options.split == 'novel' else '-validation'}.json"
    _refuse_unused(options, saved.config.evaluation)
    if options.learner or options.compare is not None:
        return evaluate_learners(options, path)
    require_json(target)
    result = measure_file(path, options.evaluation, options.split, options.root, options.device, options.untrained, say)
    write_json(target, result)
    out.print(f"wrote {target}")
    return 0


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


def _refuse_unused(options: EvaluateOptions, evaluation: EvaluationConfig) -> None:
    """Options that would do nothing are mistakes."""
    if not options.learner and options.compare is None:
        for name in ("trains", "set", "task_classes", "order", "budget_images"):
            if getattr(options, name) != getattr(EvaluateOptions(options.run), name):
                raise UserError(f"--{name.replace('_', '-')} goes with --learner or --compare: name one.")
        return
    if options.learner and options.compare is not None:
        raise UserError("--learner is for one, --compare for several: give one of the two.")
    for name in ("rates", "rule", "optimizer", "start", "reinit", "outputs", "search_trajectories", "curve_points"):
        if getattr(options.evaluation, name) != getattr(evaluation, name):
            raise UserError(
                f"--{name.replace('_', '-')} belongs to the head of Algorithm 4: with --learner, settings are chosen "
                "on base classes or given by --set."
            )
