"""Cells kept beside the tables that are made of them, so that another machine can go on from there."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from kcciol.atomic import replacing, write_json
from kcciol.errors import UserError
from kcciol.reproduce.runner import STUDIES, WHOLES, Plan, cells, check_cell, read, seeds_there
from kcciol.reproduce.study import Bench, Cell


def keep(plan: Plan, out: Path) -> None:
    """Copy all cells of what is wanted to `out`, as the tables have them: without the folders of this machine."""
    for name in plan.parts:
        for path, _ in there(plan, name):
            value = json.loads(path.read_text(encoding="utf-8")) if name in WHOLES else read(path)
            target = out / path.relative_to(plan.where.runs)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_json(target, value)


def adopt(plan: Plan, out: Path) -> list[Path]:
    """Take from `out` the cells that are not here; returns those that stay there, as they cannot be read or were made
    with other settings."""
    others = replace(plan, where=replace(plan.where, runs=out))
    left = []
    for name in plan.parts:
        for path, check in there(others, name):
            target = plan.where.runs / path.relative_to(out)
            if target.exists():
                continue
            try:
                check()
            except UserError:
                left.append(path)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as part:
                shutil.copyfile(path, part)
    return left


def there(plan: Plan, name: str) -> Iterator[tuple[Path, Callable[[], None]]]:
    """The cells of an experiment that exist, of whichever seed, each with what refuses one of other settings."""
    seeds = seeds_there(plan, name)
    if name in WHOLES:
        for seed in seeds:
            check = functools.partial(WHOLES[name].check, plan.where, [seed])
            yield from ((path, check) for path in WHOLES[name].paths(plan.where, [seed]) if path.exists())
        return
    study = STUDIES[name]
    every = replace(plan, parts={name: tuple(study.parts)})
    for column in study.columns:
        for seed in seeds:
            bench = Bench(study, column, seed, plan.where)
            for path, _, _, cell in cells(every, study, column, seed):
                if path.exists():
                    yield path, functools.partial(_check, path, bench, cell)


def _check(path: Path, bench: Bench, cell: Cell) -> None:
    check_cell(path, read(path), bench, cell)
