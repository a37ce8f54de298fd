"""What there is to make: experiments, and how what is missing of them is grouped into work for one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kcciol.errors import UserError
from kcciol.paper.experiment import CellFile, Experiment, Scope
from kcciol.paper.studies import colour, gan, omniglot, sine
from kcciol.paper.study import Workspace

EVERY: tuple[Experiment, ...] = (
    omniglot.STUDY,
    colour.MINI_IMAGENET,
    colour.CIFAR100,
    sine.EXPERIMENT,
    gan.EXPERIMENT,
)
EXPERIMENTS = {experiment.name: experiment for experiment in EVERY}
PARTS = {name: tuple(experiment.parts) for name, experiment in EXPERIMENTS.items()}
INCOMPLETE = 3  # exit code: cells are not made yet


@dataclass(frozen=True)
class RunPlan:
    """What is wanted of which experiments."""

    workspace: Workspace
    parts: Mapping[str, tuple[str, ...]]  # experiment -> its parts
    seeds: tuple[int, ...] = (0, 1, 2)
    columns: tuple[str, ...] = ()  # only these; none means all
    jobs: int = 1
    until: float = field(default=float("inf"))  # by time.monotonic()
    ray: str = ""  # address of a Ray cluster
    gpus: float = 0.0  # of the cluster, for each group

    def scope(self, name: str) -> Scope:
        """What is wanted of one experiment."""
        return Scope(self.workspace, self.parts[name], self.seeds, self.columns)

    def cells(self) -> Iterator[CellFile]:
        """The cells of all that is wanted."""
        for name in self.parts:
            yield from EXPERIMENTS[name].cells(self.scope(name))


@dataclass(frozen=True)
class Group:
    """A share of an experiment, see `Share`."""

    name: str
    seeds: tuple[int, ...]
    columns: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    helper: int = 0

    def __str__(self) -> str:
        return f"{self.name}, {self.columns[0]}, seed {self.seeds[0]}" if self.columns else self.name

    def scope(self, plan: RunPlan) -> Scope:
        return Scope(plan.workspace, self.parts, self.seeds, self.columns)

    def paths(self, plan: RunPlan) -> list[Path]:
        """The cells that it makes."""
        return [cell.path for cell in EXPERIMENTS[self.name].cells(self.scope(plan))]

    def done(self, plan: RunPlan) -> bool:
        return all(path.exists() for path in self.paths(plan))

    def trained(self, plan: RunPlan) -> bool:
        """Whether there is nothing left to train for its first column."""
        return self.columns[0] not in EXPERIMENTS[self.name].untrained(self.scope(plan))

    def trains(self, plan: RunPlan) -> bool:
        """Whether there is something left to train."""
        return bool(EXPERIMENTS[self.name].untrained(self.scope(plan)))

    def trains_with(self, other: Group) -> bool:
        """Whether the two go on from the same training."""
        if self.name != other.name or self.seeds != other.seeds or not self.columns:
            return False
        root = EXPERIMENTS[self.name].root
        return root(self.columns[0]) == root(other.columns[0])

    def helps(self, other: Group) -> bool:
        """Whether it makes cells of a column that the other trains."""
        same = self.name == other.name and self.seeds == other.seeds
        return bool(self.helper) and same and set(self.columns) <= set(other.columns)


def parts_of(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The parts of each experiment that these names (tables, experiments, or "all") stand for."""
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


def groups(plan: RunPlan, apart: bool = False) -> list[Group]:
    """Everything that is wanted and not all there: first what is made in one go, then seed by seed, of each experiment
    the longest first. apart: a group may be small (see `Experiment.shares`)."""
    found = [Group(name, *share) for name in plan.parts for share in EXPERIMENTS[name].shares(plan.scope(name), apart)]
    found.sort(key=lambda group: plan.seeds.index(group.seeds[0]) if group.columns else -1)
    return [group for group in found if not group.done(plan)]
