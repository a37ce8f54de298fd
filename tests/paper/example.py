"""Small plans, as rehearsals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kcciol.paper.experiment import Scope
from kcciol.paper.plan import EXPERIMENTS, RunPlan
from kcciol.paper.representations import Representations
from kcciol.paper.studies import omniglot
from kcciol.paper.study import Workspace

OMNIGLOT = omniglot.STUDY
STUDIES = {one.name: one for one in EXPERIMENTS.values() if isinstance(one, Representations)}


def together(workspace: Workspace, *seeds: int) -> Scope:
    """These seeds of members that train together."""
    return Scope(workspace, (), seeds)


def plan(runs: Path, *parts: str, **more: Any) -> RunPlan:
    more = {"seeds": (0,), "columns": ("kcciol", "lambda0"), **more}
    return RunPlan(Workspace(runs=runs, tiny=True), {"omniglot": parts or ("table1",)}, **more)
