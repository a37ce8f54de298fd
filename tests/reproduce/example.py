"""A small plan of Omniglot's study, as a rehearsal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kcciol.reproduce import omniglot
from kcciol.reproduce.runner import Plan
from kcciol.reproduce.study import Where

OMNIGLOT = omniglot.STUDY


def plan(runs: Path, *parts: str, **more: Any) -> Plan:
    more = {"seeds": (0,), "columns": ("kcciol", "lambda0"), **more}
    return Plan(Where(runs=runs, tiny=True), {"omniglot": parts or ("table1",)}, **more)
