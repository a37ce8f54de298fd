"""The figure of the GAN, rehearsed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kcciol.errors import UserError
from kcciol.evaluation.results import RESULT
from kcciol.paper.gan.digits import RATES, classifier, pack, unpack
from kcciol.paper.plan import RunPlan
from kcciol.paper.plot import Plot
from kcciol.paper.studies import gan
from kcciol.paper.study import Workspace
from kcciol.paper.writing import made_of
from tests.paper.example import together


def drawn(workspace: Workspace) -> list[Plot]:
    """The figures of all cells that are there."""
    return made_of(RunPlan(workspace, {"mnist": ("gan",)}, ()), "mnist")[1]


def test_digits_learned_in_sequence_become_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace(runs=tmp_path / "runs", tiny=True)
    assert drawn(workspace) == []
    gan.EXPERIMENT.make(together(workspace, 0, 1))
    assert "4 members trained" in capsys.readouterr().out
    gan.EXPERIMENT.make(together(workspace, 0, 1))
    assert capsys.readouterr().out == ""
    before = {cell.path: cell.path.read_bytes() for cell in gan.EXPERIMENT.cells(together(workspace, 0, 1))}
    next(iter(before)).unlink()
    gan.EXPERIMENT.make(together(workspace, 0, 1))
    assert capsys.readouterr().out.count("\n") == 2  # what is trained already, and the one that was gone
    assert sum(path.read_bytes() == old for path, old in before.items()) >= len(before) - 1
    (both,) = drawn(workspace)
    path = both.write(tmp_path / "figures")
    figure = json.loads(path.read_text())
    assert len(figure["numbers"]) == 1 + 2 * 3 * len(gan.COLUMNS) * len(RATES)  # when learned, and at the end
    assert figure["seeds"] == {column: [0, 1] for column in gan.COLUMNS}
    of_one = {column: {"": [gan.EXPERIMENT.read(workspace, column, 1)]} for column in gan.COLUMNS}
    (fewer,) = gan.EXPERIMENT.draw({"gan": of_one})
    assert fewer.lost(figure) == list(gan.COLUMNS)
    assert both.lost(figure) == []
    assert [len(row) for row in figure["data"]["kcciol"][1]["0.001"]] == [1, 2, 3]
    if "image" in figure:
        assert (path.parent / figure["image"]).read_bytes().startswith(b"\x89PNG")
    cell = gan.EXPERIMENT.path_of(workspace, "kcciol", 0)
    made = json.loads(cell.read_text())
    cell.write_text(json.dumps(made | {"spec": made["spec"] | {"rates": [0.5]}}))
    with pytest.raises(UserError, match="other settings"):
        gan.EXPERIMENT.read(workspace, "kcciol", 0)


def test_the_classifier_tells_real_images_apart() -> None:
    judge, right = classifier(gan.data_of(Workspace(tiny=True)), torch.device("cpu"), epochs=20)
    assert right > 50
    assert judge(torch.zeros(2, 144)).shape == (2, 10)


def test_a_cell_whose_images_are_not_whole_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    gan.EXPERIMENT.make(together(workspace, 0))
    path = gan.EXPERIMENT.path_of(workspace, "kcciol", 0)
    made = json.loads(path.read_text())
    assert gan.EXPERIMENT.read(workspace, "kcciol", 0) == RESULT.read(path)
    words = next(iter(made["rates"].values()))["images"]
    packed = words["zlib, base64"]
    for bad in ([[1, 2]], {}, {**words, "zlib, base64": packed[:40]}, {**words, "shape": [7]}, None):
        rates = {rate: of_rate | {"images": bad} for rate, of_rate in made["rates"].items()}
        path.write_text(json.dumps(made | {"rates": rates}))
        with pytest.raises(UserError, match="cannot be read"):
            gan.EXPERIMENT.read(workspace, "kcciol", 0)


def test_packed_images_are_the_same_when_unpacked() -> None:
    images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
    words = json.loads(json.dumps(pack(images)))
    assert torch.equal(unpack(words), images)
