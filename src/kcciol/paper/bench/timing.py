"""Timing a function, whatever it runs on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


def milliseconds(function: Callable[[], object], device: torch.device, repeats: int, rounds: int = 5) -> float:
    """Median over rounds of the mean time of one call, after a warm-up."""
    for _ in range(max(1, repeats // 10)):
        function()
    times = []
    for _ in range(rounds):
        _wait(device)
        began = time.perf_counter()
        for _ in range(repeats):
            function()
        _wait(device)
        times.append((time.perf_counter() - began) * 1e3 / repeats)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
