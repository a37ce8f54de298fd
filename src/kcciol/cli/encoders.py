"""kcciol encoders: what turns images into features, what each is for, and what one says of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from tyro.conf import Positional

from kcciol.cli.terminal import out, parse, say
from kcciol.encoders import ENCODERS, card_of, open_encoder
from kcciol.encoders.card import EncoderCard
from kcciol.encoders.speed import milliseconds
from kcciol.errors import UserError


@dataclass(frozen=True)
class EncodersOptions:
    """What encoders there are; or, with the name of one and images, what is odd about these."""

    encoder: Positional[str] = ""
    """A name in the list, a run folder, or a file."""
    images: Positional[tuple[str, ...]] = ()
    """Files of images to look at."""


def encoders(words: Sequence[str]) -> int:
    """What turns images into features: kcciol encoders [ENCODER IMAGE...]."""
    options = parse(EncodersOptions, "encoders", words)
    if options.encoder:
        return _look(options)
    cards, wrong = ENCODERS.survey(card_of)
    complete = {name: card for name, card in cards.items() if card is not None}
    _print_complete(complete)
    out.print()
    for name in (name for name, card in cards.items() if card is None):
        package = ENCODERS.package(name)
        out.print(f"{name}: {ENCODERS.describe(name)}" + (f" (of the package {package})" if package else ""))
    for sentence in wrong:
        say(f"kcciol: {sentence}")
    return 0


def _print_complete(cards: dict[str, EncoderCard]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for column in ("what it is for", "width", "size", "ms an image", "needs"):
        table.add_column(column)
    for name, card in cards.items():
        needs = f"kcciol[{card.extra}]" if card.extra else "-"
        table.add_row(name, card.what, str(card.width or "-"), card.size or "-", milliseconds(name), needs)
    out.print(table)
    out.print()
    for name, card in cards.items():
        out.print(f"{name}: trained on {card.trained_on}; licence of its weights: {card.licence}.", soft_wrap=False)
    out.print("ms an image: with torch / onnxruntime, one at a time, on one core of a server", soft_wrap=False)
    out.print('kcciol.open_encoder("NAME") opens one; kcciol encoders NAME IMAGE... says what is odd about images')


def _look(options: EncodersOptions) -> int:
    """Say which encoder it is, and what is odd about each image."""
    from kcciol.encoders.network import PictureEncoder  # here, because it needs torch

    encoder = open_encoder(options.encoder)
    if options.images and not isinstance(encoder, PictureEncoder):
        raise UserError(f"The encoder {options.encoder!r} says nothing of images: leave them out.")
    out.print(f"{options.encoder}: {encoder.width} features an image, identity {encoder.identity}")
    if isinstance(encoder, PictureEncoder):
        for image in options.images:
            for line in encoder.remarks(image) or ("Nothing is odd about it.",):
                out.print(f"{image}: {line}")
    return 0
