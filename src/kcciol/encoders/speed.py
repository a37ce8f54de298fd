"""How long an image takes, as `benchmarks/encoder_speed.py` has measured it."""

from __future__ import annotations

from pathlib import Path

from kcciol.files import read_json

MEASURED = Path(__file__).parent / "weights" / "speed.json"


def milliseconds(name: str) -> str:
    """An image alone with torch / onnxruntime, on one core; "-" where it has not been measured.

    >>> milliseconds("nobody's")
    '-'
    """
    if not MEASURED.exists():
        return "-"
    found = read_json(MEASURED, "table of speeds").get(name, {})
    return " / ".join(f"{found[runtime]['1'] / 1000:.1f}" for runtime in ("torch", "onnx") if runtime in found) or "-"
