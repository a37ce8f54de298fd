"""Experiments on representations: the cells of a study, made column by column."""

from __future__ import annotations

import functools
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kcciol.config import Config
from kcciol.engine.stop import Stopped
from kcciol.errors import Busy, UserError
from kcciol.evaluation.results import RESULT, with_record
from kcciol.files import file_lock
from kcciol.paper.cellfile import read_cell, require_key
from kcciol.paper.experiment import CellFile, Scope, Share
from kcciol.paper.progress import is_full, reason, say
from kcciol.paper.study import Cell, Study, Subject, Workspace, is_trained, trained_seconds, what_matters
from kcciol.paper.tables import Result
from kcciol.serialization import from_dict, to_dict

HELPERS = 4  # processes that make the cells of one column's larger tables together


@dataclass(frozen=True)
class Representations(Study):
    """A study as an experiment: see `Experiment`."""

    def folder(self, workspace: Workspace) -> Path:
        return workspace.runs / "cells" / self.name

    def path_of(self, workspace: Workspace, part: str, column: str, seed: int, name: str) -> Path:
        """The file of a cell. Its name is for people: which cell it is stands in it."""
        return self.folder(workspace) / f"{column}-seed{seed}" / f"{plain(part)}-{plain(name)}.json"

    def cells(self, scope: Scope) -> Iterator[CellFile]:
        for column in self._wanted(scope):
            for seed in scope.seeds:
                subject = functools.cache(functools.partial(Subject, self, column, seed, scope.workspace))
                for path, part, name, cell in self._cells(scope, column, seed):
                    key = self.key(part, column, name, cell)
                    yield CellFile(path, part, column, name, functools.partial(read, path, subject, cell, key))

    def _wanted(self, scope: Scope) -> list[str]:
        return [column for column in self.columns if not scope.columns or column in scope.columns]

    def _cells(self, scope: Scope, column: str, seed: int) -> Iterator[tuple[Path, str, str, Cell]]:
        """The cells of a column: file, part, name, how it is measured."""
        for part in scope.parts:
            if self.has(part, column, seed):
                for name, cell in self.parts[part](column).items():
                    yield self.path_of(scope.workspace, part, column, seed, name), part, name, cell

    def shares(self, scope: Scope, apart: bool) -> Iterator[Share]:
        """Columns that go on from the same training are in one share. apart: parts that only some columns have are
        shares of their own, several for each, which begin as soon as their column is trained."""
        columns, longest = self._wanted(scope), self.longest
        order = sorted(columns, key=lambda c: longest.index(c) if c in longest else len(longest))
        limited = tuple(part for part in scope.parts if apart and part in self.only)
        rest = replace(scope, parts=tuple(part for part in scope.parts if part not in limited))
        for seed in scope.seeds:
            for number in range(1, HELPERS + 1) if limited else ():
                yield from (Share((seed,), (column,), limited, number) for column in order)
            families: dict[str, list[str]] = {}
            for column in order:
                if all(path.exists() for path, *_ in self._cells(rest, column, seed)):
                    continue  # and whoever goes on from it trains as much of it as need be
                families.setdefault(self.root(column), []).append(column)
            for family in families.values():  # first the column that the others go on from
                family.sort(key=lambda c: (self.columns[c].after is not None, columns.index(c)))
                yield Share((seed,), tuple(family), rest.parts)

    def require_data(self, scope: Scope) -> None:
        _ = Subject(self, scope.columns[0], scope.seeds[0], scope.workspace).data

    def untrained(self, scope: Scope) -> list[str]:
        every = itertools.product(self._wanted(scope), scope.seeds)
        return [column for column, seed in every if not is_trained(self, column, seed, scope.workspace)]

    def make(self, scope: Scope) -> None:
        """Every column; one that does not need another that failed is made all the same."""
        failed: list[UserError] = []
        for column, seed in itertools.product(scope.columns, scope.seeds):
            try:
                self._make_column(scope, column, seed)
            except Stopped:
                raise
            except UserError as error:
                failed.append(error)
            except Exception as error:
                failed.append(UserError(f"{column} failed ({reason(error)})."))
                if is_full(error):  # no other could be kept
                    break
        if failed:
            kind = Busy if all(isinstance(error, Busy) for error in failed) else UserError
            raise kind(" ".join(dict.fromkeys(map(str, failed))))

    def _make_column(self, scope: Scope, column: str, seed: int) -> None:
        """Every cell of a column that is not there yet."""
        subject = Subject(self, column, seed, scope.workspace)
        failed: list[str] = []
        for path, part, name, cell in self._cells(scope, column, seed):
            if path.exists():
                continue
            _ = subject.representation  # without which nothing can be measured
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_suffix(".lock")
            with file_lock(lock) as mine:
                if not mine:  # another process makes it
                    continue
                try:
                    if not path.exists():  # or has just made it
                        make_cell(path, subject, cell, self.key(part, column, name, cell))
                except UserError as error:
                    failed.append(str(error))
                except Exception as error:  # one cell's failure must not cost the others
                    if is_full(error):  # but nothing more can be kept
                        raise
                    failed.append(reason(error))
                finally:
                    lock.unlink(missing_ok=True)
        if failed:
            raise UserError(f"{len(failed)} cells of {column} failed ({'; '.join(dict.fromkeys(failed))})")


def plain(name: str) -> str:
    """A name in letters, digits, dots, underscores and hyphens.

    >>> plain("er (200 examples), head, sgd"), plain("der++, head, adam")
    ('er-200-examples-head-sgd', 'derpp-head-adam')
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", name.replace("+", "p")).strip("-")


def make_cell(path: Path, subject: Subject, cell: Cell, key: dict[str, str]) -> None:
    """Measure one thing and write it down."""
    clock = time.monotonic()
    try:
        result = with_record(cell.run(subject), subject.representation) | {"spec": cell.spec(subject)}
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # other processes need it
    seconds = time.monotonic() - clock
    spent = trained_seconds(subject.study, subject.column, subject.seed, subject.workspace)
    RESULT.write(path, {"cell": key} | result | {"cell_seconds": seconds, "trained_seconds": spent})
    column = f"{key['column']}, seed {subject.seed}"
    say(f"{key['study']}, {column}, {key['part']}, {key['name']}: {seconds:.1f} s")


def read(path: Path, subject_of: Callable[[], Subject], cell: Cell, key: dict[str, str]) -> Result:
    """A cell, without the folders of the machine that made it. One that was measured otherwise, or on a representation
    trained otherwise, is refused."""
    subject = subject_of()
    wanted = json.loads(json.dumps(cell.spec(subject)))
    result = read_cell(path, "cell_seconds", "trained_seconds", rows=rows_of(wanted))
    try:
        old = to_dict(from_dict(Config, result["config"]))  # settings that it does not name are at their defaults
        same = result["spec"] == wanted and what_matters(old) == what_matters(to_dict(subject.config))
    except (UserError, KeyError):  # no config of a representation
        same = False
    require_key(path, result, key)
    if not same:
        raise UserError(f"{path} was made with other settings: move it away, or choose other folders.")
    result["config"]["data"]["root"] = Path(str(result["config"]["data"].get("root", ""))).name
    return result


def rows_of(spec: dict[str, Any]) -> list[str]:
    """The numbers of classes that a cell of this spec was measured at, if it is one of streams for a table."""
    if "figure" in spec:  # which has a form of its own
        return []
    streams = spec.get("algorithm 4") or ([spec["stream"]] if "stream" in spec else [])
    return [str(n) for stream in streams for n in stream["classes"]]
