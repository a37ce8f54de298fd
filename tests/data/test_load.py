from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import pytest
import torch
from PIL import Image

from kcciol import data
from kcciol.atomic import replacing
from kcciol.cli import main
from kcciol.config import DataConfig
from kcciol.data import ClassSet
from kcciol.errors import UserError

SMALL = DataConfig(name="glyphs", size=8, base_classes=5, novel_classes=3, samples=2)


def test_the_last_base_classes_are_for_validation() -> None:
    whole = data.load(SMALL)
    splits = data.load(dataclasses.replace(SMALL, validation_classes=2))
    assert (len(splits.base), len(splits.validation), len(splits.novel)) == (3, 2, 3)
    assert splits.validation.names == whole.base.names[3:]
    assert torch.equal(splits.validation.images, whole.base.images[3:])
    assert torch.equal(splits.base.images, whole.base.images[:3])


@pytest.mark.parametrize("count", [5, 6])
def test_validation_must_leave_a_class(count: int) -> None:
    with pytest.raises(UserError, match=f"data.validation_classes is {count}"):
        data.load(dataclasses.replace(SMALL, validation_classes=count))


def test_more_base_classes_than_there_are(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / name / "0.png")
    config = DataConfig(name="folder", root=str(tmp_path), size=8, base_classes=3, novel_classes=1)
    with pytest.raises(UserError, match=r"data\.base_classes is 3, but there are 2 base classes"):
        data.load(config)
    assert data.load(dataclasses.replace(config, base_classes=1)).base.names == ("a",)


def test_the_environment_stands_in_for_the_default_root_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KCCIOL_DATA", raising=False)
    assert data.locate(DataConfig()).root == "data"
    monkeypatch.setenv("KCCIOL_DATA", "/somewhere")
    assert data.locate(DataConfig()).root == str(Path("/somewhere"))
    assert data.locate(DataConfig(root="here")).root == "here"
    assert data.locate(DataConfig(root="~/x")).root == str(Path.home() / "x")


def test_check_counts() -> None:
    report = data.check(dataclasses.replace(SMALL, validation_classes=1))
    assert report.image_shape == (1, 8, 8)
    assert report.splits == (
        data.SplitReport("base", 4, 8, 2, 2),
        data.SplitReport("validation", 1, 2, 2, 2),
        data.SplitReport("novel", 3, 6, 2, 2),
    )


def test_check_without_validation_classes() -> None:
    assert data.check(SMALL).splits[1] == data.SplitReport("validation", 0, 0, 0, 0)


def test_every_name_of_the_config_is_known() -> None:
    names = typing.get_args(typing.get_type_hints(DataConfig)["name"])
    assert [row[0] for row in data.describe()] == list(names)
    assert [row[0] for row in data.describe() if row[3]] == ["omniglot", "cifar100", "mnist"]


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [("mini-imagenet", 84, "64"), ("cifar100", 32, "70"), ("mnist", 32, "7"), ("folder", 84, "4")],
)
def test_the_command_takes_all_classes(
    name: str, size: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(config: DataConfig) -> tuple[ClassSet, ClassSet]:
        assert config.size == size
        images = torch.zeros(int(words), 1, 1, 8, 8, dtype=torch.uint8)
        whole = ClassSet(images, torch.ones(len(images), dtype=torch.int64), ("",) * len(images))
        return whole, whole

    monkeypatch.setitem(data.DATASETS, name, dataclasses.replace(data.DATASETS[name], load=load))
    assert main(["data", "check", name, "--root", "nowhere"]) == 0
    assert f"base       {words} classes" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["glyphs", "folder", "mini-imagenet", "imagenet"])
def test_what_cannot_be_downloaded(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=name):
        data.get(name, tmp_path)


def test_replacing_leaves_the_old_file_when_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
