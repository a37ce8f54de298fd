from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from kcciol.data.classset import ClassSet
from kcciol.data.sheet import contact_sheet
from kcciol.errors import UserError


def classset(channels: int) -> ClassSet:
    images = torch.zeros(3, 4, channels, 16, 16, dtype=torch.uint8)
    images[:, :, 0] = 255
    names = ("short", "a very long name that does not fit into the margin at all/character07", "文字")
    return ClassSet(images, torch.tensor([4, 1, 2]), names)


@pytest.mark.parametrize(("channels", "colour"), [(1, (255, 255, 255)), (3, (255, 0, 0))])
def test_rows_are_classes(tmp_path: Path, channels: int, colour: tuple[int, int, int]) -> None:
    path = tmp_path / "sheet.png"
    contact_sheet(classset(channels), path, classes=10, samples=3)
    sheet = np.asarray(Image.open(path))
    assert sheet.shape == (3 * 18 + 2, 160 + 3 * 18 + 2, 3)
    for row, shown in enumerate((3, 1, 2)):
        for k in range(3):
            pixel = tuple(int(v) for v in sheet[2 + 18 * row + 8, 162 + 18 * k + 8])
            assert (pixel == colour) == (k < shown)
        assert sheet[2 + 18 * row : 18 + 18 * row, :160].min() < 128  # its name is written
    assert [p.name for p in tmp_path.iterdir()] == ["sheet.png"]


def test_a_name_of_several_lines_is_written_on_one(tmp_path: Path) -> None:
    sheet = classset(1)
    contact_sheet(ClassSet(sheet.images, sheet.counts, ("a\nb", "\x1b[31m", "c")), tmp_path / "sheet.png")
    assert Image.open(tmp_path / "sheet.png").height == 3 * 18 + 2


@pytest.mark.parametrize("name", ["gone/sheet.png", "sheet.jpg", "folder.png"])
def test_paths_that_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match=name.split("/")[0]):
        contact_sheet(classset(1), tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.png"]


@pytest.mark.parametrize(("classes", "samples"), [(0, 1), (1, 0)])
def test_nothing_to_show(tmp_path: Path, classes: int, samples: int) -> None:
    with pytest.raises(UserError, match="1 or more"):
        contact_sheet(classset(1), tmp_path / "x.png", classes, samples)
    with pytest.raises(UserError, match="no classes"):
        contact_sheet(classset(1).classes(0, 0), tmp_path / "x.png")
