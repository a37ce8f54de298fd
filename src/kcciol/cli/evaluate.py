"""kcciol evaluate: Algorithm 4, or any learner, on novel classes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from kcciol.cli.learners import evaluate_learners
from kcciol.cli.options import EvaluateOptions
from kcciol.cli.sine_gan import evaluate_members, members_in
from kcciol.cli.terminal import out, parse, say, word_after
from kcciol.config import EvaluationConfig
from kcciol.errors import UserError


def evaluate(words: Sequence[str]) -> int:
    """Measure a representation on novel classes: kcciol evaluate RUN."""
    if {"-h", "--help"} & set(words[:1]):
        parse(EvaluateOptions, "evaluate", ["--help"])
    if not words or words[0].startswith("-"):
        raise UserError("The run comes first: kcciol evaluate RUN [options].")
    if (members := members_in(Path(words[0]))) is not None:
        return evaluate_members(words, members)
    start = EvaluateOptions(Path(words[0]))
    from kcciol.engine import checkpoint

    phase = word_after("--phase", words) or ""  # the settings are those of the file that is evaluated
    saved = checkpoint.load(
        _representation_file(dataclasses.replace(start, phase=int(phase) if phase in ("1", "2", "3") else 0))
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
    from kcciol.evaluation.measure import measure, open_run
    from kcciol.files import require_json, write_json

    require_json(target)
    representation, data = open_run(path, options.root, options.device, options.untrained)
    result = measure(representation, data, options.evaluation, options.split, say)
    write_json(target, {"representation": f"{path.parent.name}/{path.name}", "untrained": options.untrained, **result})
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
        for name in ("trains", "set"):
            if getattr(options, name) != getattr(EvaluateOptions(options.run), name):
                raise UserError(f"--{name.replace('_', '-')} goes with --learner or --compare: name one.")
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
