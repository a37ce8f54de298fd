"""Small networks for tests of encoders."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.output import Output
from kcciol.encoders.photo import Photo
from kcciol.random import torch_seeded

SIZE, WIDTH = 16, 12
IMAGES = torch.randint(256, (7, 3, 20, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def small(seed: int = 0) -> nn.Sequential:
    """A network with batch normalisation and dropout, whose training would show."""
    with torch_seeded(seed):
        return nn.Sequential(
            nn.Conv2d(3, 6, 3, 2),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(24, WIDTH),
        )


def encoder(seed: int = 0) -> NetworkEncoder:
    """It, whitened."""
    z = torch.randn(4, 20, WIDTH, generator=torch.Generator().manual_seed(seed))
    return NetworkEncoder(small(seed), Photo(SIZE), Output.fit(z, 0.3))


class Odd(nn.Module):
    """Gives what it is told to."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.calls = what, 0

    def forward(self, x: Tensor) -> object:
        self.calls += 1
        rows = x.flatten(1)[:, :5]
        return {
            "maps": x,
            "fewer": rows[:1].expand(1, 5)[:0],
            "tuple": (rows, rows),
            "whole numbers": rows.long(),
            "nan": rows * float("nan"),
            "infinite": rows / 0 + 1 / torch.zeros(1),
            "wider": rows if self.calls == 1 else x.flatten(1)[:, :6],
        }[self.what]
