from __future__ import annotations

import os
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from kcciol import data
from kcciol.config import DataConfig
from kcciol.data import ClassSet, cifar100
from kcciol.data.cifar100 import Cifar100Counts
from kcciol.errors import UserError

WHOLE = Cifar100Counts(base=3, novel=2, train=4, test=2)
NAMES = ["ant", "bee", "cat", "dog", "elk"]


def content(samples: int, seed: int) -> dict[str, Any]:
    """As many images of each class, in a mixed order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(5), samples)).tolist()
    pixels = rng.integers(0, 256, (len(labels), 3072), np.uint8)
    return {"data": pixels, "fine_labels": labels, "coarse_labels": [0] * len(labels), "batch_label": "a batch"}


def write(root: Path, part: str, values: object) -> None:
    (root / "cifar-100-python").mkdir(exist_ok=True)
    (root / "cifar-100-python" / part).write_bytes(pickle.dumps(values, 2))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tiny CIFAR-100 in the official layout."""
    write(tmp_path, "train", content(4, seed=1))
    write(tmp_path, "test", content(2, seed=2))
    write(tmp_path, "meta", {"fine_label_names": NAMES, "coarse_label_names": ["animals"]})
    return tmp_path


def pack(root: Path) -> Path:
    """The folder turned into its archive."""
    path = root / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(root / "cifar-100-python", "cifar-100-python")
    shutil.rmtree(root / "cifar-100-python")
    return path


def load(root: Path, size: int = 32) -> tuple[ClassSet, ClassSet]:
    return cifar100.load(DataConfig(name="cifar100", root=str(root), size=size), WHOLE)


def refused(root: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(root)
    assert not list(root.glob(".kcciol-cache/*"))
    return str(caught.value)


def test_training_images_come_first_in_the_order_of_the_file(root: Path) -> None:
    base, novel = load(root)
    assert (base.names, novel.names) == (("ant", "bee", "cat"), ("dog", "elk"))
    assert base.images.shape == (3, 6, 3, 32, 32)
    assert novel.images.shape == (2, 6, 3, 32, 32)
    assert base.counts.tolist() == [6, 6, 6]
    for label, images in enumerate([*base.images, *novel.images]):
        k = 0
        for part in (content(4, seed=1), content(2, seed=2)):
            for row, number in zip(part["data"], part["fine_labels"], strict=True):
                if number == label:
                    np.testing.assert_array_equal(images[k].numpy(), row.reshape(3, 32, 32))
                    k += 1
        assert k == 6


def test_other_sizes_are_resampled_as_in_other_sets(root: Path) -> None:
    native, _ = load(root)
    small, _ = load(root, 20)
    assert small.image_shape == (3, 20, 20)
    picture = Image.fromarray(native.images[1, 4].permute(1, 2, 0).numpy())
    expected = np.asarray(picture.resize((20, 20), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(small.images[1, 4].permute(1, 2, 0).numpy(), expected)


def test_the_archive_gives_the_same(root: Path) -> None:
    expected = load(root)
    pack(root)
    for a, b in zip(load(root), expected, strict=True):
        assert a.names == b.names
        assert torch.equal(a.images, b.images)


def test_the_second_load_reads_no_pickle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(root)
    monkeypatch.setattr(cifar100, "read_pickle", lambda *_: pytest.fail("read again"))
    for a, b in zip(first, load(root), strict=True):
        assert torch.equal(a.images, b.images)
        assert a.names == b.names


def test_a_changed_file_is_read_again(root: Path) -> None:
    load(root)
    write(root, "meta", {"fine_label_names": ["ape", *NAMES[1:]]})
    assert load(root)[0].names[0] == "ape"


def test_missing_root(tmp_path: Path) -> None:
    message = refused(tmp_path / "nowhere")
    assert "nowhere' does not exist" in message
    assert f"kcciol data get cifar100 --root {tmp_path / 'nowhere'}" in message


def test_missing_folder(tmp_path: Path) -> None:
    message = refused(tmp_path)
    assert "has no cifar-100-python" in message
    assert "cifar-100-python.tar.gz" in message


@pytest.mark.parametrize("part", ["train", "test", "meta"])
def test_a_missing_file_is_named(root: Path, part: str) -> None:
    (root / "cifar-100-python" / part).unlink()
    assert f"has no file {part!r}" in refused(root)
    pack(root)
    assert f"has no file 'cifar-100-python/{part}'" in refused(root)


@pytest.mark.parametrize("part", ["train", "test", "meta"])
def test_a_truncated_file_is_named(root: Path, part: str) -> None:
    path = root / "cifar-100-python" / part
    path.write_bytes(path.read_bytes()[:-9])
    message = refused(root)
    assert f"{path} is not a whole pickle file" in message
    assert "kcciol data get cifar100" in message


@pytest.mark.parametrize("keep", [0, 20, 10_000, -5000])
def test_a_truncated_archive(root: Path, keep: int) -> None:
    path = pack(root)
    path.write_bytes(path.read_bytes()[:keep])
    assert str(path) in refused(root)


def test_a_pickle_that_would_run_something_is_refused(root: Path) -> None:
    (root / "cifar-100-python" / "meta").write_bytes(b"cos\nsystem\n(S'touch victim'\ntR.")
    message = refused(root)
    assert "os.system" in message
    assert str(root / "cifar-100-python" / "meta") in message
    assert not Path("victim").exists()


@pytest.mark.parametrize(
    ("part", "key", "value", "words"),
    [
        ("train", "data", np.zeros((20, 3071), np.uint8), "no array 'data' of 3072 bytes"),
        ("train", "data", np.zeros((20, 3072), np.float32), "no array 'data' of 3072 bytes"),
        ("test", "data", "none", "no array 'data' of 3072 bytes"),
        ("test", "fine_labels", [0, 1], "each of its 10 images"),
        ("test", "fine_labels", ["x"] * 10, "each of its 10 images"),
        ("train", "fine_labels", [0] * 20, "'ant' has 20 images in the file 'train' in place of 4"),
        ("meta", "fine_label_names", NAMES[:4], "does not name 5 fine labels"),
        ("meta", "fine_label_names", [1, 2, 3, 4, 5], "does not name 5 fine labels"),
    ],
)
def test_what_is_not_cifar_100_is_refused(root: Path, part: str, key: str, value: object, words: str) -> None:
    values = {"train": content(4, seed=1), "test": content(2, seed=2), "meta": {}}[part]
    write(root, part, {**values, key: value})
    assert words in refused(root)


def test_the_official_numbers_are_the_default(root: Path) -> None:
    with pytest.raises(UserError, match="does not name 100 fine labels"):
        data.load(DataConfig(name="cifar100", root=str(root), base_classes=0))


REAL = Path(os.environ.get("KCCIOL_DATA", "nowhere"))


@pytest.mark.real_data
@pytest.mark.skipif(cifar100.locate(REAL) is None, reason="needs the real CIFAR-100: set KCCIOL_DATA to its root")
def test_the_real_cifar_100() -> None:
    splits = data.load(DataConfig(name="cifar100", root=str(REAL), size=32, base_classes=0))
    assert splits.base.images.shape == (70, 600, 3, 32, 32)
    assert splits.novel.images.shape == (30, 600, 3, 32, 32)
    assert set(splits.base.counts.tolist()) == set(splits.novel.counts.tolist()) == {600}
    assert (splits.base.names[0], splits.base.names[69]) == ("apple", "rocket")
    assert (splits.novel.names[0], splits.novel.names[29]) == ("rose", "worm")
    train = torch.cat([splits.base.images[:, :500], splits.novel.images[:, :500]]).float()
    means = train.mean((0, 1, 3, 4)) / 255  # the numbers that everyone normalises by
    assert means.tolist() == pytest.approx([0.5071, 0.4866, 0.4409], abs=1e-4)
