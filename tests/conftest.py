"""Shared by all tests."""

import os
import signal

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch starts its threads

import pytest
import torch
from hypothesis import settings

from kcciol.config import Config
from kcciol.data import load
from kcciol.data.classset import Splits
from kcciol.serialization import from_dict

settings.register_profile("any machine", deadline=None)  # a busy machine is no failure
settings.load_profile("any machine")

# What nohup or a shell's "&" had ignored, commands started by tests would ignore as well; they are to obey.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

TINY = {
    "data": {"name": "glyphs", "size": 16, "base_classes": 12, "novel_classes": 8, "samples": 8, "train_samples": 6},
    "net": {"channels": 6, "strides": [2, 1]},
    "trajectory": {"classes": 2, "support": 3, "query": 2, "remember": 5},
    "phase1": {"steps": 7, "beta": 1e-3},
    "phase2": {"steps": 4, "beta": 1e-3, "gamma": 1e-4},
    "phase3": {"steps": 5, "beta": 1e-3, "lam": 1e-3},
    "engine": {"device": "cpu", "checkpoint_every": 3, "log_every": 2},
    "evaluation": {
        "classes": [2, 4],
        "trajectories": 3,
        "search_trajectories": 2,
        "train_samples": 5,
        "test_samples": 3,
    },
}


@pytest.fixture(scope="session")
def tiny() -> Config:
    """An experiment that takes a fraction of a second."""
    return from_dict(Config, TINY)


@pytest.fixture(scope="session")
def tiny_data(tiny: Config) -> Splits:
    return load(tiny.data)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "slow" not in item.keywords)  # first, so that no worker is left alone with them
    skip_cuda = pytest.mark.skip(reason="needs an NVIDIA GPU; none is here")
    skip_data = pytest.mark.skip(reason="needs the real data set: set KCCIOL_DATA to its root")
    for item in items:
        if "cuda" in item.keywords and not torch.cuda.is_available():
            item.add_marker(skip_cuda)
        if "real_data" in item.keywords and not os.environ.get("KCCIOL_DATA"):
            item.add_marker(skip_data)
