"""Shared by the pins: one thread, and one small run that several of them evaluate."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

TOML = Path(__file__).parent / "small.toml"
TRAINED = Path(__file__).parents[1] / "data" / "today" / "trained"


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Sums are split among threads, so with another number of them they round otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained once and for all, to evaluate: what training rounds does not matter here."""
    folder = tmp_path_factory.mktemp("pins") / "run"
    shutil.copytree(TRAINED, folder)
    return folder
