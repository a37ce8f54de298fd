"""kcciol evaluate --learner and --compare: learners on the same streams."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from kcciol.cli.terminal import out, say
from kcciol.errors import UserError
from kcciol.values import to_dict

if TYPE_CHECKING:
    from kcciol.cli.evaluate import EvaluateOptions


def evaluate_learners(options: EvaluateOptions, path: Path) -> int:
    """--learner and --compare."""
    from kcciol import compare
    from kcciol.atomic import require_json, write_json
    from kcciol.data import load as load_data
    from kcciol.engine.execute import pick_device
    from kcciol.learners import fitting, learner_type
    from kcciol.representation import Representation
    from kcciol.representation import load as load_representation

    names = [options.learner] if options.learner else list(dict.fromkeys(options.compare or fitting(options.trains)))
    for name in names:
        learner_type(name)
    if options.set and len(names) > 1:
        raise UserError("--set is for one learner: name it by --learner.")
    fixed = compare.parse_settings(names[0], options.set)
    e = options.evaluation
    config = compare.StreamConfig(
        classes=e.classes,
        task_classes=options.task_classes,
        order=options.order,
        train_samples=e.train_samples,
        test_samples=e.test_samples,
        redraw=e.redraw,
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
    unfinished = target.with_name(f"{target.stem}-unfinished.json")  # so that an older result stays until then
    try:
        for name in names:
            results[name] = compare.measure_learner(where, name, config, fixed, say=say)
            whole = {**about, "stream": to_dict(config), "learners": results}
            write_json(target if len(results) == len(names) else unfinished, compare.with_record(whole, representation))
    except BaseException:
        if results and unfinished.exists():
            say(f"What was measured so far is in {unfinished}.")
        raise
    if len(names) > 1:
        unfinished.unlink(missing_ok=True)
    out.print(_learner_table(results, sorted(e.classes)))
    chosen = any(result["choice"]["scores"] for result in results.values())
    out.print(
        f"{e.trajectories} streams each, ± 95 % interval, held-out images"
        + (f"; settings chosen on {where.chosen_on}." if chosen else ".")
    )
    out.print(f"wrote {target}")
    return 0


def _learner_table(results: dict[str, dict[str, Any]], classes: Sequence[int]) -> Table:
    """The best first."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("learner", no_wrap=True)
    for name in (*(f"{n}\nclasses" for n in classes), "for-\ngets", "keeps", "re-\nplay", "s"):
        table.add_column(name)
    for name, result in sorted(results.items(), key=lambda item: -float(item[1]["summary"]["test"]["mean"])):
        cells = [result["classes"][str(n)] for n in classes]
        shown = [f"{c['mean']:.1f}" + (f" ± {c['ci95']:.1f}" if c["ci95"] is not None else "") for c in cells]
        kept = f"{sum(result['bytes'].values()) / 1e6:.2f} MB"
        kept += "" if result.get("within_budget", True) else " (over budget)"
        lost = f"{result['summary']['forgetting']['mean']:.1f}" if "forgetting" in result["summary"] else "-"
        replay = "yes" if result["replay"] else "-"
        table.add_row(name, *shown, lost, kept, replay, f"{result['total_seconds']:.0f}")
    return table
