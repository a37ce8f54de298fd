"""kcciol quickstart: the whole method in minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from kcciol import config as configs
from kcciol.cli.terminal import parse
from kcciol.config import Config
from kcciol.engine.stop import with_resume_hint


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
    from kcciol.paper import quickstart as module

    with with_resume_hint("Running the same command again continues."):
        module.run(options.config, options.out)
    return 0
