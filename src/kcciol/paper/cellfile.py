"""Cells read back: whole, and made with the settings that are wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kcciol.errors import UserError
from kcciol.evaluation.results import RESULT
from kcciol.files import LARGEST_TEXT, parse_json
from kcciol.files.regular import read_regular
from kcciol.serialization import from_dict, to_dict


def read_cell(path: Path, *keys: str, rows: Sequence[str] = ()) -> dict[str, Any]:
    """A cell that has a config and these keys; and streams of these numbers of classes."""
    try:
        found = RESULT.updated(parse_json(read_regular(path, LARGEST_TEXT), parse_constant=_no_number))
        if missing := {key for key in ("cell", "config", "record", "spec", *keys) if found.get(key) is None}:
            raise ValueError(f"it lacks {min(missing)}")
        if not isinstance(found["config"], dict):
            raise ValueError("its config is none")
        if lacking := [n for n in rows if "by_trajectory" not in found.get("classes", {}).get(n, {})]:
            raise ValueError(f"it lacks the streams of {lacking[0]} classes")
        for key, values in MEASURED.items():
            for n, row in found.get(key, {}).items():
                if values in row and not _is_whole(row, values):
                    raise ValueError(f"{values} of {key} {n} is not whole")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
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


def require_key(path: Path, found: dict[str, Any], key: dict[str, str]) -> None:
    """Refuse a file that is another cell than its place says."""
    if found["cell"] != key:
        raise UserError(f"{path} is another cell ({found['cell']}): move it away, and what belongs there is made.")


def refuse_other(path: Path, key: dict[str, str], config: Any, spec: Any, *values: str) -> dict[str, Any]:
    """The result that is there: it must be this cell, made with these settings, wherever it was computed, measured so,
    and have these values."""
    found = read_cell(path, *values)
    require_key(path, found, key)
    try:
        old = to_dict(from_dict(type(config), found["config"]))  # settings that it does not name are at their defaults
    except (UserError, TypeError, ValueError):
        old = {}
    same = {**old, "engine": None} == {**to_dict(config), "engine": None}
    if not same or found["spec"] != json.loads(json.dumps(spec)):
        raise UserError(f"{path} was made with other settings: move it away, or choose other folders.")
    return found


def trained_with(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training: without its seed, and without how the preset would be evaluated, which a table is
    not; each cell says how it was."""
    return {k: v for k, v in config.items() if k not in ("seed", "evaluation")}


def provenance_of(results: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What must be said of cells that `kcciol reproduce` did not make as they are; nothing of others."""
    found = sorted({result["provenance"] for result in results if "provenance" in result})
    return {"provenance": found} if found else {}
