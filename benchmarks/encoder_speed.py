"""How long each encoder takes for an image on one core, by torch and by onnxruntime, its preprocessing included.

    python benchmarks/encoder_speed.py

What is measured goes into the package, where `kcciol encoders` reads it. Encoders that are not there are left out.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor

from kcciol.encoders import ENCODERS, Encoder, card_of, open_encoder
from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.onnx import with_onnx
from kcciol.encoders.speed import MEASURED
from kcciol.engine.record import record
from kcciol.errors import UserError
from kcciol.files import write_json

BATCHES = (1, 64)


@dataclass(frozen=True)
class Options:
    out: Path = MEASURED
    """The file to write."""
    side: int = 105
    """Pixels of an image."""
    seconds: float = 5.0
    """How long each is measured."""


def microseconds(encoder: Encoder, images: Tensor, seconds: float) -> float:
    """The median time for an image among as many calls as the seconds allow."""
    encoder.features(images)
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 3:
        start = time.perf_counter()
        encoder.features(images)
        found.append((time.perf_counter() - start) / len(images))
    return round(1e6 * statistics.median(found), 1)


def main(options: Options) -> None:
    torch.set_num_threads(1)
    images = torch.randint(256, (max(BATCHES), 3, options.side, options.side), dtype=torch.uint8)
    table: dict[str, Any] = {}
    for name in (name for name in ENCODERS if card_of(name) is not None):
        try:
            encoder = open_encoder(name)
        except UserError as error:
            print(f"{name}: {error}")
            continue
        assert isinstance(encoder, NetworkEncoder)
        table[name] = {
            runtime: {str(batch): microseconds(made, images[:batch], options.seconds) for batch in BATCHES}
            for runtime, made in (("torch", encoder), ("onnx", with_onnx(encoder, threads=1)))
        }
        print(name, table[name])
    write_json(options.out, {**table, "record": record()})


if __name__ == "__main__":
    main(tyro.cli(Options))
