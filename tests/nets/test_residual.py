"""The residual network: shapes, first weights, sizes that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from kcciol.errors import UserError
from kcciol.nets.residual import Residual, ResidualBlock, ResidualConfig

SMALL = ResidualConfig(channels=1, size=16, stem=4, widths=(4, 6), strides=(1, 2), features=5, places=2)
IMAGES = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0))
SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "features": ({}, 5),
    "the mean over places": ({"features": 0}, 6),
    "one place": ({"places": 1}, 5),
    "more places than there are": ({"places": 8}, 5),
    "three channels": ({"channels": 3}, 5),
    "another stride": ({"stem_stride": 1}, 5),
}


@pytest.mark.parametrize("name", SHAPES)
def test_images_become_vectors(name: str) -> None:
    changes, width = SHAPES[name]
    config = replace(SMALL, **changes)
    found = Residual(config).eval()(IMAGES.expand(-1, config.channels, -1, -1))
    assert found.shape == (3, width) == (3, config.width)
    assert found.isfinite().all()


def test_first_weights_follow_from_the_seed() -> None:
    one, same, other = (Residual(SMALL, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["conv.weight"], other["conv.weight"])


def test_a_block_begins_as_what_goes_around_it() -> None:
    net = Residual(replace(SMALL, widths=(4, 6)))
    x = torch.randn(2, 4, 8, 8)
    for block in net.blocks:
        assert isinstance(block, ResidualBlock)
        around = block.around(x).relu()
        assert torch.equal(block(x), around)
        x = around


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"channels": 2}, "net.channels is 2, but must be 1 or 3"),
    ({"size": 4}, "net.size is 4"),
    ({"stem": 0}, "net.stem is 0"),
    ({"stem_stride": 5}, "net.stem_stride is 5"),
    ({"widths": (4,)}, "net.widths is .* one for each of the 2 net.strides"),
    ({"widths": (4, 0)}, "net.widths is .* between 1 and 4,096"),
    ({"widths": (), "strides": ()}, "net.widths"),
    ({"strides": (1, 3)}, "net.strides is .* 1s and 2s"),
    ({"features": -1}, "net.features is -1"),
    ({"places": 0}, "net.places is 0"),
]


@pytest.mark.parametrize(("changes", "says"), WRONG, ids=[says for _, says in WRONG])
def test_sizes_that_cannot_be_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        replace(SMALL, **changes)
