"""The files of cells: their names, and what of a cell stands in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kcciol import cli
from kcciol.errors import UserError
from kcciol.paper.plan import PARTS, STUDIES, RunPlan, cells, old_path_of, path_of
from kcciol.paper.runner import make
from kcciol.paper.store import stored_cells
from kcciol.paper.study import Study, Workspace
from tests.paper.example import OMNIGLOT, plan


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_files_of_cells_have_plain_names_of_their_own(study: Study) -> None:
    every = RunPlan(Workspace(), PARTS)
    for column in study.columns:
        found = [path for seed in (0, 1) for path, *_ in cells(every, study, column, seed)]
        assert len(found) == len(set(found))
        for path in found:
            assert re.fullmatch(r"[A-Za-z0-9._/-]+", str(path)), path


def test_cells_say_which_they_are(tmp_path: Path) -> None:
    wanted = plan(tmp_path, "heads", columns=("oml",))
    assert make(wanted) == []
    path = path_of(wanted.workspace, OMNIGLOT, "heads", "oml", 0, "ncm")
    cell = json.loads(path.read_text())
    assert cell["cell"] == {"study": "omniglot", "part": "heads", "column": "oml", "name": "ncm"}
    path.write_text(json.dumps(cell | {"cell": cell["cell"] | {"name": "slda"}}))
    with pytest.raises(UserError, match=r"heads-ncm.json is another cell"):
        make(wanted)


def test_cells_of_before_names_were_plain_are_found(tmp_path: Path) -> None:
    words = ["reproduce", "heads", "--preset", "tiny", "--columns", "oml", "--seeds", "0", "--no-tables"]
    words += ["--runs", str(tmp_path)]
    assert cli.main(words) == 0
    wanted = plan(tmp_path, "heads", columns=("oml",))
    measured = {made.path: made.read() for made in stored_cells(wanted, "omniglot")}
    assert len(measured) > 3
    for made in list(stored_cells(wanted, "omniglot")):  # as an earlier version left them
        old = old_path_of(wanted.workspace, OMNIGLOT, made.part, made.column, 0, made.name)
        value = json.loads(made.path.read_text())
        del value["cell"]
        made.path.unlink()
        old.write_text(json.dumps(value))
    assert not list(stored_cells(wanted, "omniglot"))
    assert make(wanted) == []
    assert {made.path: made.read() for made in stored_cells(wanted, "omniglot")} == measured
    assert not list(tmp_path.glob("cells/*/*/*,*"))


def test_cells_that_are_kept_under_old_names_are_found(tmp_path: Path) -> None:
    words = ["reproduce", "heads", "--preset", "tiny", "--columns", "oml", "--seeds", "0", "--out", str(tmp_path / "o")]
    assert cli.main([*words, "--runs", str(tmp_path / "one"), "--cells"]) == 0
    kept = plan(tmp_path / "o" / "rehearsal", "heads", columns=("oml",)).workspace
    new, old = (path(kept, OMNIGLOT, "heads", "oml", 0, "ncm") for path in (path_of, old_path_of))
    new.rename(old)
    assert cli.main([*words, "--runs", str(tmp_path / "two")]) == 0
    assert new.exists()
    assert not old.exists()
    here = path_of(plan(tmp_path / "two").workspace, OMNIGLOT, "heads", "oml", 0, "ncm")
    assert here.read_bytes() == new.read_bytes()  # taken from there, not made again
