"""Regression as a kind of problem for members that train together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from kcciol.regression.network import Network
from kcciol.regression.settings import RegressionConfig
from kcciol.regression.step import MetaStep
from kcciol.together import train as together
from kcciol.together.train import Kind, State, masks

__all__ = ["KIND", "load", "masks", "train"]

KIND = Kind(
    RegressionConfig,
    lambda config: Network(config.net, config.sine.slots + 1),
    MetaStep,
    ("loss", "constraint", "diverged"),
    ("loss", "decay", "milestones", "rise"),
    lambda members, values: values[2] >= 1,
)


def train(members: Sequence[RegressionConfig], out: Path, resume: bool = False, quiet: bool = False) -> Tensor:
    """Meta-train the members and leave everything in the folder `out`; Theta (M, length) at the end."""
    return together.train(KIND, members, out, resume, quiet)


def load(path: Path) -> tuple[list[RegressionConfig], State]:
    """A checkpoint, or the state at the end of a phase."""
    return together.load(KIND, path)
