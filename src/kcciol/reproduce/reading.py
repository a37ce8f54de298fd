"""Cells read back: whole, and made with the settings that are wanted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kcciol.errors import UserError
from kcciol.values import from_dict, to_dict


def read_cell(path: Path, *keys: str, rows: Sequence[str] = ()) -> dict[str, Any]:
    """A cell that has a config and these keys; and streams of these numbers of classes."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
        if not isinstance(found, dict):
            raise ValueError("it is no cell")
        if missing := {key for key in ("config", "record", "spec", *keys) if found.get(key) is None}:
            raise ValueError(f"it lacks {min(missing)}")
        if not isinstance(found["config"], dict):
            raise ValueError("its config is none")
        if lacking := [n for n in rows if "by_trajectory" not in found.get("classes", {}).get(n, {})]:
            raise ValueError(f"it lacks the streams of {lacking[0]} classes")
        for key, values in MEASURED.items():
            for n, row in found.get(key, {}).items():
                if values in row and not _is_whole(row, values):
                    raise ValueError(f"{values} of {key} {n} is not whole")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}): move it away, and it is made again.") from None
    return found


MEASURED = {"classes": "by_trajectory", "functions": "by_run"}  # where single runs lie in a cell


def _is_whole(row: dict[str, Any], values: str) -> bool:
    """A number for each run, but for those that diverged; a row need not say how many there were."""
    found = row[values]
    if not isinstance(found, list) or not all(isinstance(value, int | float) for value in found):
        return False
    n = row.get("n", row.get("test", {}).get("n", len(found)))
    return bool(row.get("diverged")) or len(found) == n > 0


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no result")


def refuse_other(path: Path, config: Any, spec: Any, *keys: str) -> dict[str, Any]:
    """The result that is there: it must have been made with these settings, wherever it was computed, measured so, and
    have these keys."""
    found = read_cell(path, *keys)
    try:
        old = to_dict(from_dict(type(config), found["config"]))  # settings that it does not name are at their defaults
    except (UserError, TypeError, ValueError):
        old = {}
    same = {**old, "engine": None} == {**to_dict(config), "engine": None}
    if not same or found["spec"] != json.loads(json.dumps(spec)):
        raise UserError(f"{path} was made with other settings: move it away, or choose other folders.")
    return found
