"""Experiments whose members train side by side: made in one go, and measured as a cell for each column and seed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from kcciol.engine.device import pick_device
from kcciol.engine.record import record
from kcciol.evaluation.results import RESULT
from kcciol.paper.cellfile import refuse_other
from kcciol.paper.ensemble.settings import MemberConfig
from kcciol.paper.experiment import CellFile, Scope, Share
from kcciol.paper.plot import Plot
from kcciol.paper.progress import say
from kcciol.paper.study import Workspace
from kcciol.paper.tables import Found, Result
from kcciol.serialization import to_dict

M = TypeVar("M", bound=MemberConfig)


class Together:
    """What such experiments have in common; see `Experiment`."""

    name: str
    part: str
    """What it makes: a table or a figure."""
    place: str
    """Its folder, of runs and of cells."""
    every: tuple[str, ...]
    """Its columns."""
    values: tuple[str, ...]
    """What a cell must have."""
    columns: tuple[str, ...] = ()  # that could be asked for alone

    def settings(self, workspace: Workspace, column: str, seed: int) -> tuple[MemberConfig, dict[str, Any]]:
        """How a column is trained, and how it is measured."""
        raise NotImplementedError

    def make_missing(self, workspace: Workspace, seeds: Sequence[int]) -> None:
        """Train what is not trained, measure what is not measured, of seeds that lack something."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.part,)

    def folder(self, workspace: Workspace) -> Path:
        return workspace.runs / "cells" / self.place

    def path_of(self, workspace: Workspace, column: str, seed: int) -> Path:
        return self.folder(workspace) / f"{column}-seed{seed}.json"

    def cells(self, scope: Scope) -> Iterator[CellFile]:
        for column in self.every if not scope.columns else ():
            for seed in scope.seeds:
                read = functools.partial(self.read, scope.workspace, column, seed)
                yield CellFile(self.path_of(scope.workspace, column, seed), self.part, column, "", read)

    def read(self, workspace: Workspace, column: str, seed: int) -> Result:
        """A cell that is there; refuses one of other settings."""
        path = self.path_of(workspace, column, seed)
        return refuse_other(path, self._key(column), *self.settings(workspace, column, seed), *self.values)

    def _key(self, column: str) -> dict[str, str]:
        return {"study": self.name, "column": column}

    def missing(self, workspace: Workspace, seeds: Sequence[int], columns: Sequence[str] = ()) -> list[int]:
        """The seeds that lack a cell of these columns, or of any."""
        paths = {seed: [self.path_of(workspace, column, seed) for column in columns or self.every] for seed in seeds}
        return [seed for seed in sorted(seeds) if not all(path.exists() for path in paths[seed])]

    def shares(self, scope: Scope, apart: bool) -> Iterator[Share]:
        seeds = self.missing(scope.workspace, scope.seeds) if not scope.columns else []
        if seeds:
            yield Share(tuple(seeds), parts=scope.parts)

    def require_data(self, scope: Scope) -> None:
        """Functions are drawn: there is always data."""

    def untrained(self, scope: Scope) -> list[str]:
        return list(self.every)  # until all is made something may train

    def root(self, column: str) -> str:
        return column

    def make(self, scope: Scope) -> None:
        if seeds := self.missing(scope.workspace, scope.seeds):
            self.make_missing(scope.workspace, seeds)

    def trained(
        self,
        workspace: Workspace,
        kind: str,
        columns: Mapping[str, tuple[str, int]],
        seeds: Sequence[int],
        variants: Callable[[Sequence[int]], Mapping[tuple[str, int], M]],
        train: Callable[[list[M], Path, bool], object],
        load: Callable[[Path], Tensor],
    ) -> Iterator[tuple[str, int, Tensor]]:
        """Train together what these columns need; then each column and seed that has no cell yet, with its Theta.

        kind: of members that train together, where there are several. columns: of each the member that it is, and at
        the end of which phase. variants: all members of some seeds, by name and seed. load: Theta of all members.
        """
        folder, there = run_of(workspace.runs / self.place / kind, seeds)
        members, began = variants(there), time.monotonic()
        names, configs = list(members), list(members.values())
        train(configs, folder, (folder / "members.json").exists())
        what = f"{self.place}, {kind} order" if kind else self.place
        say(f"{what}: {len(members)} members trained in {time.monotonic() - began:.1f} s")
        for column, (name, phase) in columns.items():
            Theta = load(folder / f"phase{phase}.safetensors").to(pick_device(configs[0].engine.device))
            for seed in seeds:
                if not self.path_of(workspace, column, seed).exists():
                    yield column, seed, Theta[names.index((name, seed))]

    def keep(self, workspace: Workspace, column: str, seed: int, result: Result, began: float) -> None:
        """Write a cell that was begun at a time (time.monotonic())."""
        config, spec = self.settings(workspace, column, seed)
        about = {"config": to_dict(config), "cell": self._key(column), "spec": spec, "record": record()}
        seconds = time.monotonic() - began
        path = self.path_of(workspace, column, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write(path, result | about | {"cell_seconds": seconds})
        say(f"{self.place}, {column}, seed {seed}: {seconds:.1f} s")

    def tables(self, found: Mapping[str, Found]) -> dict[str, Any]:
        return {}

    def draw(self, found: Mapping[str, Found]) -> list[Plot]:
        return []


def run_of(base: Path, seeds: Sequence[int]) -> tuple[Path, list[int]]:
    """The folder for members of these seeds that train together, and all seeds that it is for: one that was begun with
    them among others is gone on with."""
    for folder in sorted(base.glob("members-seeds*")):
        there = [int(part) for part in folder.name.removeprefix("members-seeds").split("-") if part.isdecimal()]
        if set(seeds) <= set(there):
            return folder, there
    return base / f"members-seeds{'-'.join(map(str, seeds))}", list(seeds)
