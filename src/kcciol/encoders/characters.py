"""The encoders of characters that come with kcciol, trained on Omniglot."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch

from kcciol.encoders.card import EncoderCard, require_no_source
from kcciol.encoders.saved import SavedEncoder

WEIGHTS = Path(__file__).parent / "weights"


class Characters(SavedEncoder):
    """Characters and drawings in ink, of any script, thickness and size."""

    card = EncoderCard(
        "characters and drawings in ink, of any script",
        width=256,
        size="1.8 MB",
        trained_on="Omniglot's background characters",
        licence="MIT (kcciol; Omniglot is by Lake, Salakhutdinov and Tenenbaum, MIT)",
    )
    name: ClassVar[str] = "characters"

    def __init__(self, source: str = "", /, device: torch.device | str = "cpu") -> None:
        require_no_source(self.name, source)
        super().__init__(WEIGHTS / f"{self.name}.safetensors", device)


class CharactersSmall(Characters):
    """The same, smaller and several times as quick, and a little worse."""

    card = EncoderCard(
        "the same, smaller and quicker, and a little worse",
        width=64,
        size="0.2 MB",
        trained_on="Omniglot's background characters",
        licence="MIT (kcciol; Omniglot is by Lake, Salakhutdinov and Tenenbaum, MIT)",
    )
    name = "characters-small"
