from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from kcciol import data
from kcciol.config import DataConfig
from kcciol.data import ClassSet, mini_imagenet
from kcciol.data.mini_imagenet import MiniImagenetPart
from kcciol.errors import UserError

BASE = MiniImagenetPart("train", 3)
NOVEL = MiniImagenetPart("test", 2)
COUNTS = {"train": {"n03": 4, "n01": 2, "n07": 3}, "test": {"n05": 1, "n02": 3}}


def pixels(name: str, k: int) -> npt.NDArray[np.uint8]:
    """A coarse pattern, which survives JPEG well enough to tell images apart."""
    rng = np.random.default_rng([int(name[1:]), k])
    return rng.integers(0, 256, (4, 4, 3), np.uint8).repeat(21, 0).repeat(21, 1)


def write_folders(root: Path) -> None:
    for split, counts in COUNTS.items():
        for name, count in counts.items():
            folder = root / "mini-imagenet" / split / name
            folder.mkdir(parents=True)
            for k in range(count):
                Image.fromarray(pixels(name, k)).save(folder / f"{name}{k:08}.jpg")
        (root / "mini-imagenet" / split / "classes.txt").write_text("\n".join(counts))


def to_csv(root: Path) -> None:
    """The folders turned into a csv for each split and one folder of images."""
    inner = root / "mini-imagenet"
    (inner / "images").mkdir()
    for split, counts in COUNTS.items():
        lines = ["filename,label"]
        for name, count in counts.items():
            for k in range(count):
                file = f"{name}{k:08}.jpg"
                (inner / split / name / file).rename(inner / "images" / file)
                lines.append(f"{file},{name}")
        (inner / f"{split}.csv").write_text("\n".join(lines) + "\n")
        shutil.rmtree(inner / split)


def cache(split: str) -> dict[str, Any]:
    """What the pickle of a split holds, the images of the classes one after another."""
    images: list[npt.NDArray[np.uint8]] = []
    lists = {}
    for name, count in COUNTS[split].items():
        lists[name] = list(range(len(images), len(images) + count))
        images += [pixels(name, k) for k in range(count)]
    return {"image_data": np.stack(images), "class_dict": lists}


def write_pickle(folder: Path, split: str, values: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"mini-imagenet-cache-{split}.pkl"
    path.write_bytes(pickle.dumps(values))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tiny mini-ImageNet as folders of JPEG files."""
    write_folders(tmp_path)
    return tmp_path


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    """The same as pickles."""
    for split in COUNTS:
        write_pickle(tmp_path, split, cache(split))
    return tmp_path


def load(root: Path, size: int = 84) -> tuple[ClassSet, ClassSet]:
    return mini_imagenet.load(DataConfig(name="mini-imagenet", root=str(root), size=size), BASE, NOVEL)


def refused(root: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(root)
    assert not list(root.glob(".kcciol-cache/*"))
    return str(caught.value)


def test_folders(root: Path) -> None:
    base, novel = load(root)
    assert (base.names, novel.names) == (("n01", "n03", "n07"), ("n02", "n05"))
    assert (base.counts.tolist(), novel.counts.tolist()) == ([2, 4, 3], [3, 1])
    assert base.images.shape == (3, 4, 3, 84, 84)
    assert novel.images.shape == (2, 3, 3, 84, 84)
    with Image.open(root / "mini-imagenet/train/n07/n0700000001.jpg") as image:
        np.testing.assert_array_equal(base.images[2, 1].permute(1, 2, 0).numpy(), np.asarray(image))
    assert not base.images[0, 2:].any()


def test_csv_gives_the_same(root: Path) -> None:
    expected = load(root)
    to_csv(root)
    for a, b in zip(load(root), expected, strict=True):
        assert a.names == b.names
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.counts, b.counts)


def test_images_are_in_the_order_of_the_csv(root: Path) -> None:
    before, _ = load(root)
    to_csv(root)
    path = root / "mini-imagenet/train.csv"
    first, *lines = path.read_text().splitlines()
    path.write_text("\r\n".join([first, *reversed(lines), ""]))
    after, _ = load(root)
    assert after.names == before.names
    assert torch.equal(after.images[1], before.images[1].flip(0))


@pytest.mark.parametrize("inner", [False, True])
def test_pickles(pickled: Path, inner: bool) -> None:
    if inner:
        (pickled / "mini-imagenet").mkdir()
        for path in list(pickled.glob("*.pkl")):
            path.rename(pickled / "mini-imagenet" / path.name)
    base, novel = load(pickled)
    assert (base.names, novel.names) == (("n01", "n03", "n07"), ("n02", "n05"))
    assert (base.counts.tolist(), novel.counts.tolist()) == ([2, 4, 3], [3, 1])
    for part in (base, novel):
        for name, count, images in zip(part.names, part.counts.tolist(), part.images, strict=True):
            for k in range(count):
                np.testing.assert_array_equal(images[k].permute(1, 2, 0).numpy(), pixels(name, k))


def test_pickles_resized(pickled: Path) -> None:
    base, _ = load(pickled, 20)
    expected = Image.fromarray(pixels("n03", 2)).resize((20, 20), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(base.images[1, 2].permute(1, 2, 0).numpy(), np.asarray(expected))


def test_lists_of_images_may_be_arrays(pickled: Path) -> None:
    expected, _ = load(pickled)
    values = cache("train")
    lists = {name: np.array(numbers) for name, numbers in values["class_dict"].items()}
    write_pickle(pickled, "train", {**values, "class_dict": lists})
    assert torch.equal(load(pickled)[0].images, expected.images)


def test_the_second_load_decodes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(root)
    monkeypatch.setattr(mini_imagenet, "read_classes", lambda *_: pytest.fail("decoded again"))
    for a, b in zip(first, load(root), strict=True):
        assert torch.equal(a.images, b.images)
        assert a.names == b.names


def test_the_second_load_reads_no_pickle(pickled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(pickled)
    monkeypatch.setattr(mini_imagenet, "read_pickle", lambda *_: pytest.fail("read again"))
    load(pickled)


def test_it_is_loaded_by_its_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mini_imagenet.load, "__defaults__", (BASE, NOVEL))
    splits = data.load(DataConfig(name="mini-imagenet", root=str(root), base_classes=0))
    assert sorted(splits.base.counts.tolist()) == [2, 3, 4]
    assert sorted(splits.novel.counts.tolist()) == [1, 3]


@pytest.mark.parametrize("there", [False, True])
def test_what_to_put_where(tmp_path: Path, there: bool) -> None:
    root = tmp_path if there else tmp_path / "nowhere"
    message = refused(root)
    assert ("has no mini-ImageNet" if there else "does not exist") in message
    assert "kcciol cannot download mini-ImageNet" in message
    for words in (
        "mini-imagenet/{train,test}/CLASS/*.jpg",
        "mini-imagenet/{train,test}.csv",
        "mini-imagenet/images/*.jpg",
        "mini-imagenet-cache-{train,test}.pkl",
    ):
        assert words in message


def test_a_missing_split_is_named(root: Path) -> None:
    shutil.rmtree(root / "mini-imagenet/test")
    assert "has mini-imagenet/train, but not mini-imagenet/test" in refused(root)


def test_a_missing_pickle_is_named(pickled: Path) -> None:
    (pickled / "mini-imagenet-cache-train.pkl").unlink()
    assert "has mini-imagenet-cache-test.pkl, but not mini-imagenet-cache-train.pkl" in refused(pickled)


def test_a_class_without_images_is_named(root: Path) -> None:
    folder = root / "mini-imagenet/train/n01"
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing yet")
    assert "'n01' in" in refused(root)


def test_a_class_too_few_is_refused(root: Path) -> None:
    shutil.rmtree(root / "mini-imagenet/test/n02")
    assert "has 1 classes in place of 2" in refused(root)


def test_a_truncated_image_is_named(root: Path) -> None:
    path = root / "mini-imagenet/test/n02/n0200000001.jpg"
    path.write_bytes(path.read_bytes()[:700])
    assert str(path) in refused(root)


def test_an_image_of_the_csv_that_is_missing_is_named(root: Path) -> None:
    to_csv(root)
    path = root / "mini-imagenet/images/n0300000002.jpg"
    path.unlink()
    assert str(path) in refused(root)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "first line"),
        ("a.jpg,n01\n", "first line"),
        ("filename,label\na.jpg\n", "Line 2"),
        ("filename,label\n\na.jpg,n01,3\n", "Line 3"),
        ("filename,label\n,n01\n", "Line 2"),
        ("filename,label\n", "0 classes in place of 3"),
    ],
)
def test_a_csv_of_another_kind(root: Path, text: str, words: str) -> None:
    to_csv(root)
    path = root / "mini-imagenet/train.csv"
    path.write_text(text)
    message = refused(root)
    assert words in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image_data": None}, "no array 'image_data'"),
        ({"image_data": np.zeros((9, 84, 84, 3), np.float32)}, "no array 'image_data'"),
        ({"image_data": np.zeros((9, 84, 84), np.uint8)}, "no array 'image_data'"),
        ({"class_dict": [1, 2]}, "no dictionary 'class_dict'"),
        ({"class_dict": {1: [0]}}, "no dictionary 'class_dict'"),
        ({"class_dict": {"n01": [0, 9]}}, "'n01'"),
        ({"class_dict": {"n01": [-1]}}, "'n01'"),
        ({"class_dict": {"n01": "all"}}, "'n01'"),
        ({"class_dict": {"n01": []}}, "'n01' in"),
        ({"class_dict": {"n01": [0], "n02": [1]}}, "has 2 classes in place of 3"),
    ],
)
def test_a_pickle_of_another_kind(pickled: Path, change: dict[str, object], words: str) -> None:
    path = write_pickle(pickled, "train", {**cache("train"), **change})
    message = refused(pickled)
    assert words in message
    assert str(path) in message


def test_a_truncated_pickle(pickled: Path) -> None:
    path = pickled / "mini-imagenet-cache-test.pkl"
    path.write_bytes(path.read_bytes()[:-5])
    assert f"{path} is not a whole pickle file" in refused(pickled)


def test_a_pickle_that_would_run_something_is_refused(pickled: Path) -> None:
    path = pickled / "mini-imagenet-cache-test.pkl"
    path.write_bytes(b"cos\nsystem\n(S'touch victim'\ntR.")
    message = refused(pickled)
    assert "os.system" in message
    assert str(path) in message
    assert not Path("victim").exists()


def test_the_official_numbers_are_the_default(root: Path) -> None:
    with pytest.raises(UserError, match="has 3 classes in place of 64"):
        data.load(DataConfig(name="mini-imagenet", root=str(root), base_classes=0))


REAL = Path(os.environ.get("KCCIOL_DATA", "nowhere"))


@pytest.mark.real_data
@pytest.mark.skipif(
    not (REAL / "mini-imagenet").is_dir(), reason="needs the real mini-ImageNet: set KCCIOL_DATA to its root"
)
def test_the_real_mini_imagenet() -> None:
    splits = data.load(DataConfig(name="mini-imagenet", root=str(REAL), size=84, base_classes=0))
    assert (len(splits.base), len(splits.novel)) == (64, 20)
    assert splits.base.image_shape == splits.novel.image_shape == (3, 84, 84)
    assert int(splits.base.counts.min()) >= 1
    assert (splits.base.names[0], splits.novel.names[0]) == ("n01532829", "n01930112")
    assert not set(splits.base.names) & set(splits.novel.names)
    means = splits.base.images[:, :20].float().mean((0, 1, 3, 4)) / 255
    assert means.tolist() == pytest.approx([0.473, 0.449, 0.403], abs=0.02)
