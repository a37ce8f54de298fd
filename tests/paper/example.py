"""A small plan of Omniglot's study, as a rehearsal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kcciol.paper.plan import RunPlan
from kcciol.paper.studies import omniglot
from kcciol.paper.study import Workspace

OMNIGLOT = omniglot.STUDY


def plan(runs: Path, *parts: str, **more: Any) -> RunPlan:
    more = {"seeds": (0,), "columns": ("kcciol", "lambda0"), **more}
    return RunPlan(Workspace(runs=runs, tiny=True), {"omniglot": parts or ("table1",)}, **more)
