"""What kcciol does with files and command lines that are nearly right, and with many threads at once.

    python benchmarks/robustness.py                                  # everything; a call that is cut is gone on with
    python benchmarks/robustness.py --parts learners --files 500     # a part

A file is loaded, or refused by a `UserError`, within `--seconds` and `--mebibytes`; what is loaded is used. A command
line ends with an exit code of its own and without a traceback. Of threads that learn at once, nothing is lost. Each
mutant is a function of `--seed` and its number, so that what is found can be found again: --first N --files 1.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import tyro
from trial_commands import try_commands
from trial_files import learner_files, training_files, try_files, use_learner, use_training
from trial_threads import try_threads
from trials import Findings, Options, Part

from kcciol.engine.record import record
from kcciol.files import read_json, require_json, write_json
from kcciol.learners import fitting


def main(options: Options) -> int:
    """The number of parts in which something is wrong."""
    require_json(options.out)
    torch.set_num_threads(1)
    settings = {key: value for key, value in dataclasses.asdict(options).items() if key not in ("out", "parts")}
    old = read_json(options.out) if options.out.exists() else {}
    results: dict[str, Any] = {"options": settings, "parts": {}}
    if old.get("options") == settings:
        results["parts"] = old["parts"]
    sizes = {"learners": options.files, "checkpoints": options.files, "commands": options.commands}
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            found = Findings(**results["parts"].get(part, {}))
            total = sizes.get(part, len(fitting("head")))
            place = Path(folder) / part
            place.mkdir()
            try_part = part_of(part, place, options) if found.done < total else None
            while try_part is not None and found.done < total:
                try_part(found, min(total, found.done + (1 if part == "threads" else 200)))
                results["parts"][part] = dataclasses.asdict(found)
                write_json(options.out, results | {"record": record()})
                print(f"{part}: {found.done} of {total}, {found.outcomes}", file=sys.stderr, flush=True)
    return sum(bool(part["faults"]) for part in results["parts"].values())


def part_of(part: Part, place: Path, options: Options) -> Callable[[Findings, int], None]:
    """What goes on with a part up to a number."""
    if part == "learners":
        sources = learner_files(place)
        return lambda found, until: try_files(part, sources, use_learner, options, found, until)
    if part == "checkpoints":
        sources = training_files(place)
        return lambda found, until: try_files(part, sources, use_training, options, found, until)
    if part == "commands":
        return lambda found, until: try_commands(options, found, until)
    return lambda found, until: try_threads(options, found, until)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
