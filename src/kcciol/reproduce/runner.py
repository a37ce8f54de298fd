"""What there is to make, which of it is not there yet, and making it."""

from __future__ import annotations

import errno
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kcciol.atomic import held, write_json
from kcciol.compare import with_record
from kcciol.engine.stop import Stopped
from kcciol.errors import Busy, UserError
from kcciol.reproduce import colour, gan, omniglot, sine
from kcciol.reproduce.drawn import Drawn
from kcciol.reproduce.reading import read_cell
from kcciol.reproduce.study import Bench, Cell, Study, Where, is_trained, trained_seconds, what_matters
from kcciol.values import to_dict

STUDIES: dict[str, Study] = {study.name: study for study in (omniglot.STUDY, colour.MINI_IMAGENET, colour.CIFAR100)}


@dataclass(frozen=True)
class Whole:
    """An experiment that is no study of representations: it is made in one go."""

    parts: tuple[str, ...]
    make: Callable[[Where, Sequence[int]], None]
    cells: Callable[[Where, Sequence[int]], dict[Path, Callable[[], dict[str, Any]]]]
    """Its cells, each with what reads it, and refuses one that was made otherwise."""
    tables: Callable[[Where, Sequence[int]], dict[str, Any]]
    ready: Callable[[Where], object] = lambda where: None
    """Refuse at once what could not be made, such as for lack of data."""
    draw: Callable[[Where, Sequence[int]], list[Drawn]] | None = None


WHOLES = {
    "sine": Whole(("table4",), sine.make, sine.cells, sine.tables),
    "mnist": Whole(("gan",), gan.make, gan.cells, gan.tables, gan.data_of, gan.draw),
}
LEFT = 3  # exit code: cells are not made yet
HELPERS = 4  # processes that make the cells of one column's larger tables together
PARTS = {name: tuple(study.parts) for name, study in STUDIES.items()} | {n: w.parts for n, w in WHOLES.items()}


@dataclass(frozen=True)
class Plan:
    """What is wanted of which studies."""

    where: Where
    parts: Mapping[str, tuple[str, ...]]  # study -> its parts
    seeds: tuple[int, ...] = (0, 1, 2)
    columns: tuple[str, ...] = ()  # only these; none means all
    jobs: int = 1
    until: float = field(default=float("inf"))  # by time.monotonic()
    ray: str = ""  # address of a Ray cluster
    gpus: float = 0.0  # of the cluster, for each group


@dataclass(frozen=True)
class Group:
    """What must be done in one process: a column and those that go on from its phases, or a whole experiment."""

    name: str
    seeds: tuple[int, ...]
    columns: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    helper: int = 0
    """Above 0: one of several processes that make a column's cells together, once it is trained."""

    def __str__(self) -> str:
        return f"{self.name}, {self.columns[0]}, seed {self.seeds[0]}" if self.columns else self.name

    def paths(self, plan: Plan) -> list[Path]:
        """The cells that it makes."""
        if self.name in WHOLES:
            return list(WHOLES[self.name].cells(plan.where, self.seeds))
        mine, study = self._plan(plan), STUDIES[self.name]
        return [path for c in self.columns for path, *_ in cells(mine, study, c, self.seeds[0])]

    def done(self, plan: Plan) -> bool:
        return all(path.exists() for path in self.paths(plan))

    def make(self, plan: Plan) -> None:
        if self.name in WHOLES:
            WHOLES[self.name].make(plan.where, self.seeds)
        failed: list[UserError] = []
        for column in self.columns:  # one that does not need another that failed is made all the same
            try:
                make_column(self._plan(plan), STUDIES[self.name], column, self.seeds[0])
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

    def trained(self, plan: Plan) -> bool:
        """Whether there is nothing left to train for its first column."""
        return self._has(plan, self.columns[0])

    def trains(self, plan: Plan) -> bool:
        """Whether there is something left to train."""
        return not self.columns or not all(self._has(plan, column) for column in self.columns)

    def _has(self, plan: Plan, column: str) -> bool:
        return is_trained(STUDIES[self.name], column, self.seeds[0], plan.where)

    def trains_with(self, other: Group) -> bool:
        """Whether the two go on from the same training."""
        if self.name != other.name or self.seeds != other.seeds or not self.columns:
            return False
        root = STUDIES[self.name].root
        return root(self.columns[0]) == root(other.columns[0])

    def helps(self, other: Group) -> bool:
        """Whether it makes cells of a column that the other trains."""
        same = self.name == other.name and self.seeds == other.seeds
        return bool(self.helper) and same and set(self.columns) <= set(other.columns)

    def _plan(self, plan: Plan) -> Plan:
        return replace(plan, parts={self.name: self.parts})


def studies_of(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The parts of each study that these names (tables, studies, or "all") stand for."""
    known = {part: experiment for experiment, parts in PARTS.items() for part in parts}
    found: dict[str, list[str]] = {}
    for name in names:
        if name == "all" or name in PARTS:
            for experiment, parts in PARTS.items():
                if name in ("all", experiment):
                    found.setdefault(experiment, []).extend(parts)
        elif name in known:
            found.setdefault(known[name], []).append(name)
        else:
            raise UserError(f"There is no experiment {name!r}; there are: all, {', '.join([*PARTS, *known])}.")
    return {name: tuple(dict.fromkeys(parts)) for name, parts in found.items()}


def cells(plan: Plan, study: Study, column: str, seed: int) -> Iterator[tuple[Path, str, str, Cell]]:
    """The cells of a column: file, part, name, how it is measured."""
    for part in plan.parts[study.name]:
        if study.has(part, column, seed):
            for name, cell in study.parts[part](column).items():
                yield path_of(plan.where, study, part, column, seed, name), part, name, cell


def path_of(where: Where, study: Study, part: str, column: str, seed: int, name: str) -> Path:
    return where.runs / "cells" / study.name / f"{column}-seed{seed}" / f"{part}, {name}.json"


def groups(plan: Plan, apart: bool = False) -> list[Group]:
    """Everything that is wanted and not all there, the longest first. Columns that go on from the same training are in
    one group.

    apart: parts that only some columns have are groups of their own, several for each, which begin as soon as their
    column is trained.
    """
    wholes = [name for name in plan.parts if name in WHOLES and not plan.columns]
    found = [Group(name, tuple(s for s in plan.seeds if not Group(name, (s,)).done(plan))) for name in wholes]
    for seed in plan.seeds:
        for name in (name for name in plan.parts if name in STUDIES):
            study, parts = STUDIES[name], plan.parts[name]
            columns = [c for c in study.columns if not plan.columns or c in plan.columns]
            order = sorted(columns, key=lambda c: study.longest.index(c) if c in study.longest else len(study.longest))
            some = tuple(part for part in parts if apart and part in study.some)
            for number in range(1, HELPERS + 1) if some else ():
                found += [Group(name, (seed,), (column,), some, number) for column in order]
            rest = tuple(part for part in parts if part not in some)
            mine = replace(plan, parts={name: rest})
            families: dict[str, list[str]] = {}
            for column in order:
                if all(path.exists() for path, *_ in cells(mine, study, column, seed)):
                    continue  # and whoever goes on from it trains as much of it as need be
                families.setdefault(study.root(column), []).append(column)
            for family in families.values():  # first the column that the others go on from
                family.sort(key=lambda c: (study.columns[c].after is not None, columns.index(c)))
                found.append(Group(name, (seed,), tuple(family), rest))
    return [group for group in found if not group.done(plan)]


def make(plan: Plan) -> list[str]:
    """Make what is not there yet; returns the names of groups that failed. What is there is kept, whatever happens."""
    check(plan)
    wanted = groups(plan)
    if not wanted and not any(path.exists() for path in every_path(plan)):
        raise UserError("Nothing of this is made of these columns and seeds: ask for others, or leave them out.")
    for group in wanted if not plan.ray else ():  # the data are there, or it is refused at once
        if group.columns:
            _ = Bench(STUDIES[group.name], group.columns[0], group.seeds[0], plan.where).data
        else:
            WHOLES[group.name].ready(plan.where)
    if plan.ray:
        from kcciol.reproduce.cluster import make_on_cluster

        return make_on_cluster(plan, plan.ray, plan.gpus)
    if plan.jobs > 1 or plan.until < float("inf"):  # a process that trains can be cut, a function cannot
        from kcciol.reproduce.processes import share_out

        return share_out(plan)
    failed = []
    for group in wanted:
        try:
            group.make(plan)
        except (Stopped, KeyboardInterrupt):
            raise
        except UserError as error:
            print(f"{group}: {error}", file=sys.stderr, flush=True)
            if not isinstance(error, Busy):  # else it will be there when that process is done
                failed.append(str(group))
        except Exception as error:  # one cell's failure must not cost the others
            said = f"{group} failed ({reason(error)})"
            if is_full(error):
                raise UserError(f"{said}; what is made is kept.") from None
            print(f"{said}.", file=sys.stderr, flush=True)
            failed.append(str(group))
    return failed


def every_path(plan: Plan) -> Iterator[Path]:
    """The cells of all that is wanted."""
    for name in plan.parts:
        if name in WHOLES:
            yield from (() if plan.columns else WHOLES[name].cells(plan.where, plan.seeds))
        else:
            for column in (c for c in STUDIES[name].columns if not plan.columns or c in plan.columns):
                for seed in plan.seeds:
                    yield from (path for path, *_ in cells(plan, STUDIES[name], column, seed))


def make_column(plan: Plan, study: Study, column: str, seed: int) -> None:
    """Every cell of a column that is not there yet."""
    bench = Bench(study, column, seed, plan.where)
    failed: list[str] = []
    for path, part, name, cell in cells(plan, study, column, seed):
        if path.exists():
            continue
        if time.monotonic() > plan.until:
            return
        _ = bench.representation  # without which nothing can be measured
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock")
        with held(lock) as mine:
            if not mine:  # another process makes it
                continue
            try:
                if not path.exists():  # or has just made it
                    make_cell(path, bench, cell, f"{study.name}, {column}, seed {seed}, {part}, {name}")
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


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
REFUSED = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)


def is_full(error: Exception) -> bool:
    """Whether the disk takes no more, whatever is made."""
    return isinstance(error, OSError) and error.errno in FULL


def reason(error: Exception) -> str:
    """Why something failed; with a traceback, unless none would help: the disk is full, or the folder another's."""
    if isinstance(error, OSError) and error.errno in (*FULL, *REFUSED):
        return str(error)
    traceback.print_exc()
    return f"{type(error).__name__}: {error}"


def make_cell(path: Path, bench: Bench, cell: Cell, name: str) -> None:
    """Measure one thing and write it down."""
    clock = time.monotonic()
    try:
        result = with_record(cell.run(bench), bench.representation) | {"spec": cell.spec(bench)}
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # other processes need it
    seconds = time.monotonic() - clock
    spent = trained_seconds(bench.study, bench.column, bench.seed, bench.where)
    write_json(path, result | {"cell_seconds": seconds, "trained_seconds": spent})
    print(f"{name}: {seconds:.1f} s", flush=True)


def check(plan: Plan) -> None:
    """Refuse cells of other settings: they must not stand in for those wanted."""
    for name in plan.parts:
        for made in there(plan, name):
            made.read()


@dataclass(frozen=True)
class Made:
    """A cell that is there."""

    path: Path
    read: Callable[[], dict[str, Any]]
    """Its content; refuses one of other settings."""
    column: str = ""
    part: str = ""
    name: str = ""


def there(plan: Plan, experiment: str) -> Iterator[Made]:
    """All cells of an experiment that are there, of whichever part and seed: its tables are made of them."""
    seeds = seeds_there(plan, experiment)
    if experiment in WHOLES:
        pairs = WHOLES[experiment].cells(plan.where, seeds).items()
        yield from (Made(path, read) for path, read in pairs if path.exists())
        return
    study = STUDIES[experiment]
    every = replace(plan, parts={study.name: tuple(study.parts)})
    for column in study.columns:
        for seed in seeds:
            bench = Bench(study, column, seed, plan.where)
            for path, part, name, cell in cells(every, study, column, seed):
                if path.exists():
                    yield Made(path, partial(read, path, bench, cell), column, part, name)


def read(path: Path, bench: Bench, cell: Cell) -> dict[str, Any]:
    """A cell, without the folders of the machine that made it. One that was measured otherwise, or on a representation
    trained otherwise, is refused."""
    wanted = json.loads(json.dumps(cell.spec(bench)))
    result = read_cell(path, "cell_seconds", "trained_seconds", rows=rows_of(wanted))
    try:
        same = result["spec"] == wanted and what_matters(result["config"]) == what_matters(to_dict(bench.config))
    except (KeyError, AttributeError):  # no config of a representation
        same = False
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


def cells_of(plan: Plan, name: str) -> Path:
    """The folder with an experiment's cells."""
    return (
        next(iter(WHOLES[name].cells(plan.where, [0]))).parent if name in WHOLES else plan.where.runs / "cells" / name
    )


def seeds_there(plan: Plan, name: str) -> tuple[int, ...]:
    """The seeds that are wanted, and those that there are cells of: a table is made of all that is there."""
    ends = (path.name.removesuffix(".json").rpartition("-seed")[2] for path in cells_of(plan, name).glob("*-seed*"))
    return tuple(sorted({*plan.seeds, *(int(end) for end in ends if end.isdecimal())}))
