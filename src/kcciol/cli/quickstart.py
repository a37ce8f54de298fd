"""kcciol quickstart: the whole method in minutes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from kcciol import config as configs
from kcciol.cli.terminal import parse
from kcciol.config import Config


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
    options = parse(QuickstartOptions, "quickstart", words, QuickstartOptions(config=configs.preset("quickstart")))
    from kcciol.engine.stop import Stopped
    from kcciol.paper import quickstart as module

    try:
        module.run(options.config, options.out)
    except Stopped as stopped:
        print(f"kcciol: {stopped} Running the same command again continues.", file=sys.stderr)
        return stopped.exit_code
    return 0
