"""kcciol bench: how fast this machine is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from kcciol.cli.terminal import out, parse, say
from kcciol.errors import UserError


@dataclass(frozen=True)
class BenchOptions:
    """Time the meta-step (step), the presets of the paper (recipes) or the online evaluation (evaluate) here.

    step: a naive full-network step, ours run eagerly and ours as a CUDA graph, in one run. recipes: a step of each
    phase of every preset, and what all its steps take. evaluate: on a GPU 50 trajectories x 8 rates of each length;
    everywhere one trajectory against a plain per-example autograd loop.
    """

    what: Positional[Literal["step", "recipes", "evaluate"]]
    preset: str = ""
    """step, recipes: whose sizes are timed; by default omniglot-paper, or all, on a GPU, and quickstart on a CPU."""
    steps: int = 200
    """step, recipes: steps to time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    out: Annotated[Path | None, arg(metavar="PATH")] = None
    """A JSON file to write the numbers to."""


def bench(words: Sequence[str]) -> int:
    """Time the meta-step, whole recipes or the evaluation: kcciol bench step."""
    options = parse(BenchOptions, "bench", words)
    from kcciol.files import require_json, write_json
    from kcciol.paper.bench import evaluation, recipes, step

    if options.steps < 1:
        raise UserError(f"--steps is {options.steps}, but must be at least 1.")
    if options.out is not None:
        require_json(options.out)
    if options.what != "evaluate":
        kind = step if options.what == "step" else recipes
        result = kind.measure(options.preset, options.steps, options.device, say)
    else:
        result = evaluation.measure(options.device, say)
    for key, value in result.items():
        if not isinstance(value, dict):
            out.print(f"{key:<22} {value:.4g}" if isinstance(value, float) else f"{key:<22} {value}")
    if options.out is not None:
        write_json(options.out, result)
        out.print(f"wrote {options.out}")
    return 0
