from __future__ import annotations

import dataclasses
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import torch
from PIL import Image

from kcciol import data
from kcciol.cli import main
from kcciol.config import DataConfig, preset
from kcciol.data import ClassSet
from kcciol.errors import UserError
from kcciol.files import replacing

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


def test_check_counts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--size", "8", "--base-classes", "5", "--novel-classes", "3", "--samples", "2"]
    assert main(["data", "check", "glyphs", *words, "--validation-classes", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "glyphs: images of (channels, height, width) (1, 8, 8)",
        "  base       4 classes, 8 images, 2 to 2 a class",
        "  validation 1 classes, 2 images, 2 to 2 a class",
        "  novel      3 classes, 6 images, 2 to 2 a class",
    ]
    assert main(["data", "check", "glyphs", *words]) == 0
    assert "  validation 0 classes, 0 images, 0 to 0 a class\n" in capsys.readouterr().out


def test_what_there_is_and_what_can_be_downloaded() -> None:
    assert list(data.DATASETS) == ["omniglot", "mini-imagenet", "cifar100", "mnist", "glyphs", "folder"]
    assert [name for name, d in data.DATASETS.items() if d.download] == ["omniglot", "cifar100", "mnist"]
    assert all(dataset.defaults.name == name for name, dataset in data.DATASETS.items())
    assert data.DATASETS["glyphs"].defaults == preset("quickstart").data


def test_a_word_behind_a_flag_is_no_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "--root", "omniglot", "glyphs", "--size", "8"]) == 0
    assert "novel      100 classes" in capsys.readouterr().out  # the number that glyphs has


def test_a_broken_data_set_of_another_package_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = EntryPoint("broken", "there_is_no_such_module:DATASET", "kcciol.data")
    monkeypatch.setattr("kcciol.plugins.entry_points", lambda group: EntryPoints([broken]))
    assert main(["data", "list"]) == 0
    said = capsys.readouterr()
    assert "alphabets" in said.out
    assert "data set 'broken' of the package there_is_no_such_module cannot be used" in said.err


def test_a_data_set_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UserError, match="There is no data set 'glphs'; there are: omniglot, mini-imagenet, "):
        data.load(dataclasses.replace(SMALL, name="glphs"))


def test_data_sets_are_listed_without_torch() -> None:
    """A list must not wait for it."""
    code = "import sys; from kcciol.data import DATASETS; print(len([d.description for d in DATASETS.values()]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["6", "False"]


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
        counts = torch.ones(len(images), dtype=torch.int64)
        return ClassSet(images, counts, ("a",) * len(images)), ClassSet(images, counts, ("b",) * len(images))

    module = import_module(data.DATASETS.entry(name).module)
    monkeypatch.setattr(module, "DATASET", dataclasses.replace(data.DATASETS[name], load=load))
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
