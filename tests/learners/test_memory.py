"""Random numbers without a state, and who stays in a memory."""

from __future__ import annotations

import numpy as np

from kcciol.learners.memory import reservoir_slots
from kcciol.random import integers, sample, uniform


def test_uniform_numbers_are_uniform_and_do_not_repeat() -> None:
    draws = np.concatenate([uniform(np.arange(50), time, 0, 20).ravel() for time in range(20)])
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    expected = len(draws) / 20
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-square, 19 degrees of freedom: 1 in 1000
    assert len(np.unique(draws)) == len(draws)


def test_samples_are_without_repetition_and_integers_in_range() -> None:
    drawn = sample(np.arange(100), 7, 1, 4, 9)
    assert drawn.shape == (100, 4)
    assert all(len(set(row)) == 4 for row in drawn.tolist())
    assert set(drawn.ravel().tolist()) == set(range(9))
    assert set(integers(np.arange(200), 3, 0, 2, 5).ravel().tolist()) == set(range(5))
    assert sample(np.arange(3), 7, 1, 9, 4).shape == (3, 4)


def test_a_reservoir_keeps_every_example_with_the_same_probability() -> None:
    copies, capacity, length = 4000, 5, 20
    keys = np.arange(copies)
    held = np.full((copies, capacity), -1)
    for time in range(length):
        slots = reservoir_slots(keys, time, capacity)
        rows = np.flatnonzero(slots >= 0)
        held[rows, slots[rows]] = time
    counts = np.bincount(held.ravel(), minlength=length)
    expected = copies * capacity / length
    assert ((counts - expected) ** 2 / (expected * (1 - capacity / length))).sum() < 44  # 19 degrees: 1 in 1000
