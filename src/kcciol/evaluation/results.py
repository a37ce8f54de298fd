"""What an evaluation leaves in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kcciol.encoders.run import Representation
from kcciol.engine.record import record
from kcciol.files.documents import Document
from kcciol.serialization import to_dict


def with_record(result: dict[str, Any], representation: Representation) -> dict[str, Any]:
    """The result with all that is needed to believe it, and without the folders of the machine that made it."""
    config = to_dict(representation.config)
    if Path(config["data"]["root"]).is_absolute():
        config["data"]["root"] = Path(config["data"]["root"]).name
    return result | {"config": config, "record": record()}


def _with_choices(result: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had a form of its own for what was chosen where nothing but a rate was to be chosen."""
    if not isinstance(result.get("classes"), dict):
        return result
    return result | {"classes": {n: _with_choice(row) for n, row in result["classes"].items()}}


def _with_choice(row: Any) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get("rate"), dict):
        return row
    old = row["rate"]
    choice = {
        **{key: value for key, value in old.items() if key != "chosen"},
        "settings": {"rate": old["chosen"]},
        "at_edge": ["rate"] if old["at_edge"] else [],
        "scores": [{"settings": {"rate": one["rate"]}, "score": one["score"]} for one in old["scores"]],
    }
    return {key: value for key, value in row.items() if key != "rate"} | {"choice": choice}


RESULT = Document("result", (_with_choices,))
