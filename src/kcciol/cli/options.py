"""The options of `kcciol evaluate` that its two ways share: Algorithm 4, and learners by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from kcciol.config import EvaluationConfig


@dataclass(frozen=True)
class EvaluateOptions:
    """Learn novel classes online with a trained representation, and measure (Algorithm 4 of the paper).

    Settings that are not given are those of the run's own config: kcciol evaluate RUN --help shows them. Runs of
    functions or of digits have other options, which it shows too.
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
    """Another learner than the head of Algorithm 4, which is `online` with the run's settings: `kcciol list learners`
    names them. Settings are chosen by --rule out of the learner's own grid."""
    compare: tuple[str, ...] | None = None
    """Several learners on the same streams, as a table; without names all that fit, which takes a while."""
    trains: Literal["head", "all"] = "head"
    """With --learner or --compare: theta frozen and a head trained, or the whole network trained."""
    set: tuple[str, ...] = ()
    """With --learner: settings that are not to be chosen, as name=value (slots=500 optimizer=adam). With any, `online`
    is no longer the run's head: W starts from zero, and its other settings are chosen out of its own grid."""
    evaluation: Annotated[EvaluationConfig, arg(name="")] = field(default_factory=EvaluationConfig)
