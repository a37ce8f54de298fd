"""Cells kept beside the tables that are made of them, so that another machine can go on from there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcciol.errors import UserError
from kcciol.evaluation.results import RESULT
from kcciol.files import replacing
from kcciol.paper.plan import EXPERIMENTS, RunPlan
from kcciol.paper.store import stored_cells


def archive_of(plan: RunPlan, out: Path) -> RunPlan:
    """The same plan where its cells are kept: beside the tables, those of rehearsals by themselves."""
    return replace(plan, workspace=replace(plan.workspace, runs=out / "rehearsal" if plan.workspace.tiny else out))


def store(plan: RunPlan, out: Path, every: bool) -> list[Path]:
    """Copy the cells of what is wanted to where they are kept, as the tables have them: without the folders of this
    machine. Returns those that lie there otherwise, and are left.

    every: else only of experiments of which some are kept already.
    """
    target, left = archive_of(plan, out), []
    for name in plan.parts:
        if not every and not EXPERIMENTS[name].folder(target.workspace).is_dir():
            continue
        for made in stored_cells(plan, name):
            value, path = made.read(), target.workspace.runs / made.path.relative_to(plan.workspace.runs)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                RESULT.write(path, value)
            elif not _same(path, value):
                left.append(path)
    return left


def _same(path: Path, value: dict[str, Any]) -> bool:
    try:
        return RESULT.read(path) == value
    except UserError:  # not what was measured here, at any rate
        return False


def restore(plan: RunPlan, out: Path) -> list[str]:
    """Take the kept cells that are not here; returns why others stay where they are."""
    source, left = archive_of(plan, out), []
    for name in plan.parts:
        for made in stored_cells(source, name):
            path = plan.workspace.runs / made.path.relative_to(source.workspace.runs)
            if path.exists():
                continue
            try:
                made.read()
            except UserError as error:
                left.append(str(error))
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part:
                shutil.copyfile(made.path, part)
    return left
