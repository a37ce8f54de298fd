"""kcciol evaluate --learner and --compare: learners on the same streams."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from kcciol.cli.options import EvaluateOptions
from kcciol.cli.terminal import out, say
from kcciol.errors import UserError
from kcciol.serialization import to_dict


def evaluate_learners(options: EvaluateOptions, path: Path) -> int:
    """--learner and --compare."""
    from kcciol.evaluation import measure
    from kcciol.evaluation.metrics import STAR
    from kcciol.files import require_json, write_json
    from kcciol.learners import fitting, learner_type

    names = [options.learner] if options.learner else list(dict.fromkeys(options.compare or fitting(options.trains)))
    for name in names:
        learner_type(name)
    if options.set and len(names) > 1:
        raise UserError("--set is for one learner: name it by --learner.")
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
    about |= {"untrained": options.untrained, "split": options.split}
    results: dict[str, dict[str, Any]] = {}
    unfinished = target.with_name(f"{target.stem}-unfinished.json")  # so that an older result stays until then
    try:
        for name in names:
            results[name] = measure.measure_learner(
                scenario, name, config, fixed, progress=functools.partial(_say, name)
            )
            whole = {**about, "evaluation": to_dict(config), "learners": results}
            write_json(target if len(results) == len(names) else unfinished, measure.with_record(whole, representation))
    except BaseException:
        if results and unfinished.exists():
            say(f"What was measured so far is in {unfinished}.")
        raise
    if len(names) > 1:
        unfinished.unlink(missing_ok=True)
    out.print(_learner_table(results, sorted(config.classes)))
    chosen = any(result["choice"]["scores"] for result in results.values())
    out.print(
        f"{config.trajectories} streams each, ± 95 % interval, held-out images"
        + (f"; settings chosen on {scenario.chosen_on(config.rule)}." if chosen else ".")
    )
    if any("ci95_of_images" in cell for result in results.values() for cell in result["classes"].values()):
        out.print(STAR)
    out.print(f"wrote {target}")
    return 0


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
