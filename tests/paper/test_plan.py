"""The files of cells: their names, and what of a cell stands in them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kcciol.errors import UserError
from kcciol.paper.experiment import Scope
from kcciol.paper.plan import EXPERIMENTS, PARTS
from kcciol.paper.runner import make
from kcciol.paper.study import Workspace
from tests.paper.example import OMNIGLOT, plan


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_files_of_cells_have_plain_names_of_their_own(name: str) -> None:
    experiment = EXPERIMENTS[name]
    found = [cell.path for cell in experiment.cells(Scope(Workspace(), PARTS[name], (0, 1)))]
    assert len(found) == len(set(found)) > 0
    for path in found:
        assert experiment.folder(Workspace()) in path.parents
        assert re.fullmatch(r"[A-Za-z0-9._/-]+", str(path)), path


def test_cells_say_which_they_are(tmp_path: Path) -> None:
    wanted = plan(tmp_path, "heads", columns=("oml",))
    assert make(wanted) == []
    path = OMNIGLOT.path_of(wanted.workspace, "heads", "oml", 0, "ncm")
    cell = json.loads(path.read_text())
    assert cell["cell"] == {"study": "omniglot", "part": "heads", "column": "oml", "name": "ncm"}
    path.write_text(json.dumps(cell | {"cell": cell["cell"] | {"name": "slda"}}))
    with pytest.raises(UserError, match=r"heads-ncm.json is another cell"):
        make(wanted)


def test_a_part_is_made_of_its_columns_and_seeds() -> None:
    study = replace(OMNIGLOT, seeds={"table1": (0, 1), "figures": (2,)})
    assert [study.has("table1", "oml", seed) for seed in (0, 1, 2)] == [True, True, False]
    assert [OMNIGLOT.has("heads", "oml", seed) for seed in (0, 5)] == [True, True]
    some = next(iter(OMNIGLOT.only["figures"]))
    assert [study.has("figures", some, seed) for seed in (0, 2)] == [False, True]
    assert [OMNIGLOT.has("figures", some, seed) for seed in (0, 2)] == [True, False]
    assert not study.has("table5", "anml", 0)


def test_a_cell_that_does_not_say_which_it_is_is_refused(tmp_path: Path) -> None:
    wanted = plan(tmp_path, "heads", columns=("oml",))
    assert make(wanted) == []
    path = OMNIGLOT.path_of(wanted.workspace, "heads", "oml", 0, "ncm")
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "cell"}))
    with pytest.raises(UserError, match="it lacks cell"):
        make(wanted)
