"""Cells kept beside the tables that are made of them, so that another machine can go on from there."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from kcciol.atomic import replacing, write_json
from kcciol.errors import UserError
from kcciol.reproduce.runner import Plan, cells_of, there


def beside(plan: Plan, out: Path) -> Plan:
    """The same plan where its cells are kept: beside the tables, those of rehearsals by themselves."""
    return replace(plan, where=replace(plan.where, runs=out / "rehearsal" if plan.where.tiny else out))


def keep(plan: Plan, out: Path, every: bool) -> list[Path]:
    """Copy the cells of what is wanted to where they are kept, as the tables have them: without the folders of this
    machine. Returns those that lie there otherwise, and are left.

    every: else only of experiments of which some are kept already.
    """
    target, left = beside(plan, out), []
    for name in plan.parts:
        if not every and not cells_of(target, name).is_dir():
            continue
        for made in there(plan, name):
            value, path = made.read(), target.where.runs / made.path.relative_to(plan.where.runs)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                write_json(path, value)
            elif not _same(path, value):
                left.append(path)
    return left


def _same(path: Path, value: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(path.read_text(encoding="utf-8")) == value)
    except (OSError, ValueError, RecursionError):  # not what was measured here, at any rate
        return False


def adopt(plan: Plan, out: Path) -> list[str]:
    """Take the kept cells that are not here; returns why others stay where they are."""
    source, left = beside(plan, out), []
    for name in plan.parts:
        for made in there(source, name):
            path = plan.where.runs / made.path.relative_to(source.where.runs)
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
