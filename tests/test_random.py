"""Random numbers are functions of whole numbers, in numpy and in torch the same, and have one source."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import kcciol
from kcciol import random

NUMBERS = [0, 1, 2**31, 2**62 + 12345, 2**63 - 1, -1, -(2**63), 0x1234_5678_9ABC_DEF0]


def finalise(x: int) -> int:
    """splitmix64's finaliser in whole numbers of any size."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


@pytest.mark.parametrize("number", NUMBERS)
def test_both_forms_mix_64_bits_alike(number: int) -> None:
    wanted = finalise(number % 2**64)
    signed = np.array([number], np.int64)
    assert int(random._mix(signed.astype(np.uint64))[0]) == wanted
    assert int(random._mix_tensor(torch.from_numpy(signed))) % 2**64 == wanted


def test_numbers_of_a_key_are_those_of_the_definition() -> None:
    places = np.array([finalise((7 + i * random._PLACE) % 2**64) for i in range(5)], np.uint64)
    drawn = random.keyed_uniform(torch.tensor(7), 5)
    assert drawn.tolist() == ((places >> np.uint64(40)) * 2.0**-24).tolist()
    start = finalise((3 * random._KEY + 5 * random._TIME + 2 * random._PURPOSE + 1) % 2**64)
    places = np.array([finalise((start + i * random._PLACE) % 2**64) for i in range(4)], np.uint64)
    assert random.uniform(np.array([3]), 5, 2, 4).tolist() == [((places >> np.uint64(11)) * 2.0**-53).tolist()]


def test_keys_depend_on_every_number_and_on_their_order() -> None:
    grid = random.keyed(torch.arange(20)[:, None], torch.arange(20), 3)
    assert grid.shape == (20, 20)
    assert len(set(grid.flatten().tolist())) == 400
    first, second = (random.generator(*key).integers(2**40, size=8) for key in ((3, 1), (1, 3)))
    assert not (first == second).any()


def test_normal_numbers_have_mean_0_and_deviation_1() -> None:
    drawn = random.keyed_normal(random.keyed(torch.arange(100)), 400)
    assert abs(float(drawn.mean())) < 0.02
    assert abs(float(drawn.std()) - 1) < 0.02


def test_there_is_one_source() -> None:
    """A classifier of digits is torch's own from beginning to end, in a state that is put back."""
    source = re.compile(
        r"Philox\(|SeedSequence\(|default_rng|manual_seed|numpy\.random|torch\.seed|^import random", re.M
    )
    folder = Path(kcciol.__file__).parent
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*.py") if source.search(p.read_text("utf-8"))}
    assert found == {"random.py", "paper/gan/digits.py"}
