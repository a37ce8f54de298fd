from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from kcciol import data
from kcciol.config import DataConfig
from kcciol.data import ClassSet, mnist
from kcciol.errors import UserError

COUNTS = (40, 20)


def content(count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Images and labels; every digit is there, some more often than others."""
    rng = np.random.default_rng(count)
    labels = np.concatenate([np.arange(10), rng.integers(0, 10, count - 10)]).astype(np.uint8)
    return rng.integers(0, 256, (count, 28, 28), np.uint8), labels


def idx(array: npt.NDArray[np.uint8]) -> bytes:
    lengths = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes()


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in zip(("train", "t10k"), COUNTS, strict=True):
        images, labels = content(count)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels))


def zip_up(path: Path) -> Path:
    """The file turned into its .gz."""
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tiny MNIST."""
    write(tmp_path / "MNIST" / "raw")
    return tmp_path


def load(root: Path, size: int = 28) -> tuple[ClassSet, ClassSet]:
    return mnist.load(DataConfig(name="mnist", root=str(root), size=size), COUNTS)


def refused(root: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(root)
    assert not list(root.glob(".kcciol-cache/*"))
    return str(caught.value)


def test_digits_are_classes_of_different_size(root: Path) -> None:
    base, novel = load(root)
    assert base.names == ("0", "1", "2", "3", "4", "8", "9")
    assert novel.names == ("5", "6", "7")
    (train, train_labels), (test, test_labels) = content(COUNTS[0]), content(COUNTS[1])
    for part in (base, novel):
        assert part.image_shape == (1, 28, 28)
        assert part.images.shape[1] == part.counts.max()
        for name, count, images in zip(part.names, part.counts.tolist(), part.images, strict=True):
            expected = np.concatenate([train[train_labels == int(name)], test[test_labels == int(name)]])
            assert count == len(expected)
            np.testing.assert_array_equal(images[:count, 0].numpy(), expected)
            assert not images[count:].any()
    assert base.counts.sum() + novel.counts.sum() == sum(COUNTS)


def test_images_are_brought_to_the_size(root: Path) -> None:
    native, resized = load(root)[0], load(root, 32)[0]
    assert resized.image_shape == (1, 32, 32)
    expected = Image.fromarray(native.images[3, 1, 0].numpy()).resize((32, 32), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(resized.images[3, 1, 0].numpy(), np.asarray(expected))


def test_all_layouts_give_the_same(root: Path) -> None:
    expected = load(root)
    raw = root / "MNIST" / "raw"
    raw.rename(root / "mnist")
    found = [load(root)]
    for path in list((root / "mnist").iterdir()):
        path.rename(root / path.name)
    found.append(load(root))
    for path in root.glob("*-ubyte"):
        zip_up(path)
    found.append(load(root))
    raw.mkdir()
    for path in list(root.glob("*-images-*.gz")):
        path.rename(raw / path.name)  # some here, some there
    found.append(load(root))
    for sets in found:
        for a, b in zip(sets, expected, strict=True):
            assert a.names == b.names
            assert torch.equal(a.images, b.images)
            assert torch.equal(a.counts, b.counts)


def test_the_second_load_reads_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(root)
    monkeypatch.setattr(mnist, "from_pixels", lambda *_: pytest.fail("read again"))
    for a, b in zip(first, load(root), strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.counts, b.counts)


def test_missing_root(tmp_path: Path) -> None:
    message = refused(tmp_path / "nowhere")
    assert "nowhere' does not exist" in message
    assert f"kcciol data get mnist --root {tmp_path / 'nowhere'}" in message


@pytest.mark.parametrize("name", mnist.FILES)
def test_a_missing_file_is_named(root: Path, name: str) -> None:
    (root / "MNIST" / "raw" / name).unlink()
    message = refused(root)
    assert f"has no {name}" in message
    assert "MNIST/raw" in message


@pytest.mark.parametrize("name", mnist.FILES)
@pytest.mark.parametrize("keep", [0, 3, 10, -1])
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_file_is_named(root: Path, name: str, keep: int, packed: bool) -> None:
    path = root / "MNIST" / "raw" / name
    path = zip_up(path) if packed else path
    path.write_bytes(path.read_bytes()[:keep])
    message = refused(root)
    assert str(path) in message
    assert "delete or move it and run `kcciol data get mnist" in message


def test_a_damaged_gz_is_named(root: Path) -> None:
    path = zip_up(root / "MNIST" / "raw" / mnist.FILES[0])
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 255
    path.write_bytes(damaged)
    assert f"{path} is not a whole gz file" in refused(root)


def test_files_in_each_others_place(root: Path) -> None:
    raw = root / "MNIST" / "raw"
    (raw / mnist.FILES[0]).write_bytes((raw / mnist.FILES[1]).read_bytes())
    assert f"{raw / mnist.FILES[0]} is not an idx file of bytes in 3 axes" in refused(root)
    write(raw)
    (raw / mnist.FILES[1]).write_bytes((raw / mnist.FILES[3]).read_bytes())
    assert f"{raw / mnist.FILES[1]} is not all of MNIST: it has 20 entries in place of 40" in refused(root)


def test_lengths_that_lie(root: Path) -> None:
    path = root / "MNIST" / "raw" / mnist.FILES[0]
    good = path.read_bytes()
    path.write_bytes(good[:16] + b"some")
    assert "has 4 bytes of data in place of 31360" in refused(root)
    path.write_bytes(good + b"s")
    assert "has more bytes of data in place of 31360" in refused(root)
    path.write_bytes(good[:8] + b"\xff" * 8 + b"some")
    assert "its images are 4294967295 x 4294967295 pixels, not 28 x 28" in refused(root)
    path.write_bytes(good[:4] + b"\xff" * 12 + b"some")
    assert "has 4294967295 entries in place of 40" in refused(root)


def test_a_label_that_is_no_digit(root: Path) -> None:
    path = root / "MNIST" / "raw" / mnist.FILES[1]
    path.write_bytes(path.read_bytes()[:-1] + b"\x0a")
    assert "a label that is no digit" in refused(root)


def test_the_official_numbers_are_the_default(root: Path) -> None:
    with pytest.raises(UserError, match="has 40 entries in place of 60000"):
        data.load(DataConfig(name="mnist", root=str(root), base_classes=0))


REAL = Path(os.environ.get("KCCIOL_DATA", "nowhere"))


@pytest.mark.real_data
@pytest.mark.skipif(
    mnist.locate(REAL, mnist.FILES[0]) is None, reason="needs the real MNIST: set KCCIOL_DATA to its root"
)
def test_the_real_mnist() -> None:
    splits = data.load(DataConfig(name="mnist", root=str(REAL), size=28, base_classes=0))
    assert splits.base.counts.tolist() == [6903, 7877, 6990, 7141, 6824, 6825, 6958]
    assert splits.novel.counts.tolist() == [6313, 6876, 7293]
    assert splits.base.images.shape == (7, 7877, 1, 28, 28)
    total = sum(int(part.images.sum(dtype=torch.int64)) for part in (splits.base, splits.novel))
    assert total / (70_000 * 784 * 255) == pytest.approx(0.1309, abs=1e-4)
