"""Random numbers that are functions of whole numbers, byte for byte."""

from __future__ import annotations

import hashlib

from tests.pins import access
from tests.pins.access import Numbers
from tests.pins.pinned import pin

LARGE = 2**62 + 12345
SIZES = {"classes": 3, "support": 4, "query": 2, "remember": 5, "count": 2}
FEW = {"classes": 2, "support": 3, "query": 1, "remember": 0, "count": 1}


def digest(*parts: Numbers) -> str:
    """Of kind, shape and bytes, whatever this machine's order of bytes is."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(f"{part.dtype.name} {part.shape}".encode())
        hashed.update(part.astype(part.dtype.newbyteorder("<")).tobytes())
    return hashed.hexdigest()


def draws() -> dict[str, list[Numbers]]:
    """All that is drawn, by its name."""
    keys = [0, 1, 2**20 + 7, LARGE]
    found: dict[str, list[Numbers]] = {}
    for time, use in ((0, 0), (5, 3), (2**40, 1)):
        about = f"{time}, {use}"
        found[f"learner, uniform, {about}"] = [access.learner_uniform(keys, time, use, 33)]
        found[f"learner, sample, {about}"] = [access.learner_sample(keys, time, use, 5, 40)]
        found[f"learner, integers, {about}"] = [access.learner_integers(keys, time, use, 20, 1000)]
    for numbers in ((0,), (3, 7), (LARGE, 1, 2)):
        found[f"noise, keys, {numbers}"] = [access.noise_keys(*numbers)]
        found[f"noise, uniform, {numbers}"] = [access.noise_uniform(33, *numbers)]
    for seed in (0, 3, LARGE):
        for purpose in ("search", "report"):
            about = f"{seed}, {purpose}"
            found[f"streams, {about}"] = [access.drawn_streams(seed, purpose, 30, 12, 4)]
            found[f"streams, filled, {about}"] = [access.drawn_filled(seed, purpose, 4, 20, 5, 4)]
            found[f"images, {about}"] = access.drawn_images(seed, purpose, 5, 11, (4, 3))
    for seed, phase, block in ((0, 1, 0), (3, 2, 0), (3, 3, 7)):
        about = f"{seed}, {phase}, {block}"
        found[f"trajectories, {about}"] = access.drawn_trajectories(seed, phase, block, SIZES, [9] * 40)
        found[f"trajectories, ragged, {about}"] = access.drawn_trajectories(seed, phase, block, FEW, [6, 9, 4, 7])
    for order in ("class", "task", "shuffled"):
        for seed, trajectory in ((0, 0), (3, 2)):
            found[f"plan, {order}, {seed}, {trajectory}"] = [access.planned(order, seed, trajectory)]
    return found


def test_draws_are_the_same_to_the_byte() -> None:
    for name, parts in draws().items():
        pin("random", name, digest(*parts))
