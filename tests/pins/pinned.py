"""Numbers that are committed beside the tests, and how close to them new ones must be.

KCCIOL_PINS=write puts the numbers of the code as it is in place of the committed ones: for a change that is meant to
move them, with the difference looked at before it is committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
WRITES = os.environ.get("KCCIOL_PINS") == "write"
# Sums in float32 round otherwise on another processor, by some 1e-6 of the largest; training of some dozen steps
# makes ten times as much of it.
CLOSE = 1e-4
# What counts answers, by the key it lies under: where two classes score nearly the same, rounding may flip one image.
ONE_IMAGE: Mapping[str, float] = {"right": 1.0}


def pin(file: str, name: str, found: Any, within: Mapping[str, float] = ONE_IMAGE, close: float = CLOSE) -> None:
    """Hold what was found to what is committed under this name in tests/pins/FILE.json."""
    found = json.loads(json.dumps(found))
    path = FOLDER / f"{file}.json"
    if WRITES:
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(_text(dict(sorted({**kept, name: _short(found)}.items()))), encoding="utf-8")
        return
    agree(found, json.loads(path.read_text(encoding="utf-8"))[name], f"{file}: {name}", within, close)


def agree(
    found: Any, kept: Any, where: str, within: Mapping[str, float], close: float, far: float | None = None
) -> None:
    """The same structure with numbers that are close: lists of numbers relative to their largest, so that a score near
    zero between large ones need not be exact; below a key of `within` by so much at most."""
    if isinstance(kept, dict):
        assert isinstance(found, dict), where
        assert list(found) == list(kept) or sorted(found) == sorted(kept), where
        for key in kept:
            agree(found[key], kept[key], f"{where}, {key}", within, close, within.get(key, far))
    elif isinstance(kept, list) and not any(isinstance(value, float) for value in kept):
        assert isinstance(found, list), where
        assert len(found) == len(kept), where
        for i, (a, b) in enumerate(zip(found, kept, strict=True)):
            agree(a, b, f"{where}, {i}", within, close, far)
    elif isinstance(kept, list):
        assert isinstance(found, list), where
        assert len(found) == len(kept), where
        largest = max(abs(value) for value in kept)
        for i, (a, b) in enumerate(zip(found, kept, strict=True)):
            _near(a, b, f"{where}, {i}", close * largest if far is None else far)
    elif far is not None or isinstance(kept, float):
        _near(found, kept, where, close * abs(kept) + 1e-9 if far is None else far)
    else:
        assert found == kept, where


def _near(found: Any, kept: float, where: str, far: float) -> None:
    assert isinstance(found, (int, float)), where
    assert abs(found - kept) <= far, f"{where}: {found!r}, but {kept!r} is committed, give or take {far:.3g}"


def _short(value: Any) -> Any:
    """Eight digits are enough for what is compared to one in ten thousand."""
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def _text(values: dict[str, Any]) -> str:
    """A line for each name."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
