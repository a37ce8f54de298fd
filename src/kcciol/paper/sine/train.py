"""Regression as a kind of problem for members that train together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from kcciol.paper.ensemble.train import Kind, State, load_state, train_members
from kcciol.paper.sine.network import RegressionNetwork
from kcciol.paper.sine.settings import RegressionConfig
from kcciol.paper.sine.step import SineStep

KIND = Kind(
    RegressionConfig,
    lambda config: RegressionNetwork(config.net, config.sine.slots + 1),
    SineStep,
    ("loss", "constraint", "diverged"),
    ("loss", "decay", "milestones", "rise"),
    lambda members, values: values[2] >= 1,
)


def train_sine(members: Sequence[RegressionConfig], out: Path, resume: bool = False, quiet: bool = False) -> Tensor:
    """Meta-train the members and leave everything in the folder `out`; Theta (M, length) at the end."""
    return train_members(KIND, members, out, resume, quiet)


def load_sine(path: Path) -> tuple[list[RegressionConfig], State]:
    """A checkpoint, or the state at the end of a phase."""
    return load_state(KIND, path)
