"""What is said of an encoder before it is imported: written out in its class, so that its source is read instead."""

from __future__ import annotations

from dataclasses import dataclass

from kcciol.errors import UserError, quoted


@dataclass(frozen=True)
class EncoderCard:
    """What `kcciol encoders` says of an encoder that is complete by its name."""

    what: str
    """What it is for."""
    width: int = 0
    """How many features an image has."""
    size: str = ""
    """Of its weights."""
    trained_on: str = ""
    licence: str = ""
    """Of its weights, with whose they are."""
    extra: str = ""
    """What must be installed beside kcciol: pip install 'kcciol[EXTRA]'."""


def require_no_source(name: str, source: str) -> None:
    """Refuse a source where the name says it all."""
    if source:
        raise UserError(f"The encoder {name!r} is complete by its name: leave {quoted(source)} out.")
