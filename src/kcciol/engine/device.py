"""Where steps run, and what products of float32 matrices are computed in there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import torch

from kcciol.errors import UserError

Precision = Literal["float32", "tf32", "bf16"]


def pick_device(name: str) -> torch.device:
    """The device a config names."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("The device asked for is 'cuda', but PyTorch finds no GPU here: ask for 'cpu' or 'auto'.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


@contextlib.contextmanager
def precision(name: Precision, device: torch.device) -> Iterator[None]:
    """While the block runs, products of float32 matrices are computed in this precision; then as before it.

    Convolutions are taken from the algorithms whose results do not change from run to run: a resumed run must end in
    the same weights.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark
    fast = name != "float32" and device.type == "cuda"
    try:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = fast, fast, True, False
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


def encoder_dtype(name: Precision, device: torch.device) -> torch.dtype:
    """What the encoder's activations are kept in."""
    return torch.bfloat16 if name == "bf16" and device.type == "cuda" else torch.float32
