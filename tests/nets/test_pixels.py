from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import kcciol
from kcciol.nets.pixels import from_signed, to_signed, to_unit

EVERY = torch.arange(256).to(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bytes_become_numbers_from_0_to_1(dtype: torch.dtype) -> None:
    assert torch.equal(to_unit(EVERY, dtype), EVERY.to(dtype) / 255)
    assert EVERY.tolist() == list(range(256))  # they themselves stay


def test_what_is_scaled_stays() -> None:
    scaled = torch.rand(3)
    assert to_unit(scaled, torch.float32) is scaled


def test_every_byte_comes_back() -> None:
    assert torch.equal(from_signed(to_signed(EVERY)), EVERY)
    assert (to_signed(EVERY).min().item(), to_signed(EVERY).max().item()) == (-1, 1)


def test_images_are_scaled_in_one_place() -> None:
    root = Path(kcciol.__file__).parent
    scales = [p for p in root.rglob("*.py") if re.search(r"/ 255|div_?\(255|127\.5", p.read_text(encoding="utf-8"))]
    assert scales == [root / "nets" / "pixels.py"]
