"""Characters in ink -> what a network of characters takes: see `kcciol.data.ink`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from kcciol.data import ink
from kcciol.encoders.pictures import Pixels
from kcciol.encoders.preprocessing import settings_of
from kcciol.errors import UserError, quoted


@dataclass(frozen=True)
class Ink:
    """Ink is found on paper of any size, dark on light or light on dark, and drawn anew: in the middle, of one size and
    with strokes of one width, 1 on 0."""

    size: int = 48
    """Pixels a side of what the network takes."""
    evened: float = 1.0
    """How far strokes are brought to one width: 0 not at all, 1 fully."""
    whole: bool = False
    """The canvas as it is, in place of the ink that is found on it."""

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 8 <= self.size <= 1024:
            raise UserError(f"The size of ink is {quoted(self.size)}, but must be 8 to 1,024 pixels a side.")
        if not 0 <= self.evened <= 1:
            raise UserError(f"evened is {quoted(self.evened)}, but must be between 0 and 1.")

    @property
    def settings(self) -> dict[str, Any]:
        return settings_of("ink", self)

    def __call__(self, pictures: Sequence[Pixels]) -> Tensor:
        return ink.draw(ink.fields(pictures, self.whole, self.evened), self.size)

    def remarks(self, picture: Pixels) -> tuple[str, ...]:
        """Empty, inverted, tiny or blurred: one sentence each."""
        return ink.find_ink(picture).remarks
