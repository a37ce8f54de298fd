"""The checks of an encoder find what is broken."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kcciol.testing import check_encoder

IMAGES = torch.arange(2 * 12, dtype=torch.uint8).view(2, 3, 2, 2)


class Pixels:
    width, identity = 12, "pixels"

    def __init__(self, broken: str = "") -> None:
        self.broken, self.asked = broken, 0

    def features(self, images: Tensor) -> Tensor:
        self.asked += 1
        found = images.flatten(-3).float()
        broken: dict[str, Tensor] = {
            "width": found[..., 1:],
            "type": found.double(),
            "finite": found / 0,
            "others": found / images.float().mean(),
            "again": found + self.asked,
            "gradient": found.clone().requires_grad_(),
        }
        return broken.get(self.broken, found)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("width", r"are \(2, 11\), but must be \(2, 12\)"),
        ("type", "but must be torch.float32"),
        ("finite", "not a finite number"),
        ("others", "alone than among others"),
        ("again", "the second time"),
        ("gradient", "ask for gradients"),
    ],
)
def test_a_promise_that_is_broken_is_named(broken: str, says: str) -> None:
    check_encoder(Pixels(), IMAGES)
    with pytest.raises(AssertionError, match=says):
        check_encoder(Pixels(broken), IMAGES)
