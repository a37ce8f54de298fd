"""Files of JSON with the version of their format, and what brings older ones up to date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kcciol.errors import UserError
from kcciol.evaluation.results import RESULT
from kcciol.files.documents import Document
from kcciol.paper.cellfile import read_cell

OLD = Path(__file__).parents[1] / "results/cells/omniglot/kcciol-seed0/table1-adam.json"  # of version 1
NOTE = Document("note", (lambda old: {"text": old["line"]}, lambda old: old | {"read": False}))


def test_what_is_written_is_read_and_older_versions_are_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    NOTE.write(path, {"text": "a", "read": True})
    assert json.loads(path.read_text()) == {"format": "note 3", "text": "a", "read": True}
    assert NOTE.read(path) == {"text": "a", "read": True}
    for old in ({"line": "b"}, {"format": "note 1", "line": "b"}, {"format": "note 2", "text": "b"}):
        path.write_text(json.dumps(old))
        assert NOTE.read(path) == {"text": "b", "read": False}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"format": "note 4"}, "it is of version 4 of its format, but this kcciol reads up to version 3"),
        ({"format": "list 1"}, "its format is list 1, not that of a note"),
        ({"format": "note"}, "its format is note, not"),
        ({"format": "note 0"}, "its format is note 0, not"),
        ({"format": 3}, "its format is 3, not"),
        ([], "it is no note"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, value: Any, why: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(value))
    with pytest.raises(UserError, match=why):
        NOTE.read(tmp_path / "a.json")


@pytest.mark.parametrize("rate", [{"chosen": 0.1}, {"chosen": 0.1, "at_edge": False, "scores": [3]}])
def test_a_damaged_result_of_an_early_version_is_a_sentence(tmp_path: Path, rate: Any) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"classes": {"5": {"rate": rate}}}))
    with pytest.raises(UserError, match=r"a\.json cannot be read: it is not whole"):
        RESULT.read(tmp_path / "a.json")


def test_a_choice_has_one_form_in_results_of_any_version() -> None:
    old, found = json.loads(OLD.read_text()), read_cell(OLD)
    assert "format" not in old
    assert found["classes"].keys() == old["classes"].keys()
    for n, row in found["classes"].items():
        then, choice = old["classes"][n]["rate"], row["choice"]
        assert choice["settings"] == {"rate": then["chosen"]}
        assert [(one["settings"]["rate"], one["score"]) for one in choice["scores"]] == [
            (one["rate"], one["score"]) for one in then["scores"]
        ]
        assert bool(choice["at_edge"]) == then["at_edge"]
        assert {key: choice[key] for key in ("rule", "trajectories", "classes")} == {
            key: then[key] for key in ("rule", "trajectories", "classes")
        }
        assert "rate" not in row
    assert RESULT.updated(found | {"format": f"result {RESULT.version}"}) == found
