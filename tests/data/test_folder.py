from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kcciol.config import DataConfig
from kcciol.data import Splits, load
from kcciol.errors import UserError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five classes a..e of 1 to 5 greyscale images of 12 x 10."""
    for i, name in enumerate("abcde"):
        (tmp_path / name).mkdir()
        for k in range(i + 1):
            Image.new("L", (12, 10), 40 * i + k).save(tmp_path / name / f"{k}.png")
    return tmp_path


def read(root: Path, novel: int = 2, base: int = 0) -> Splits:
    return load(DataConfig(name="folder", root=str(root), size=8, base_classes=base, novel_classes=novel))


def refused(root: Path, novel: int = 2) -> str:
    with pytest.raises(UserError) as caught:
        read(root, novel)
    return str(caught.value)


def test_the_last_classes_are_novel_and_short_ones_padded(root: Path) -> None:
    splits = read(root)
    assert splits.base.names == ("a", "b", "c")
    assert splits.novel.names == ("d", "e")
    assert splits.base.counts.tolist() == [1, 2, 3]
    assert splits.base.images.shape == (3, 3, 1, 8, 8)
    assert splits.novel.images.shape == (2, 5, 1, 8, 8)
    assert (splits.base.images[2, :, 0, 0, 0]).tolist() == [80, 81, 82]
    assert splits.base.images[0, 1:].max() == 0


def test_base_and_novel_folders_are_the_splits(root: Path) -> None:
    for split, names in (("base", "bce"), ("novel", "ad")):
        (root / split).mkdir()
        for name in names:
            (root / name).rename(root / split / name)
    (root / ".hidden").mkdir()
    (root / "labels.csv").write_text("not a class")
    splits = read(root, novel=0)
    assert splits.base.names == ("b", "c", "e")
    assert splits.novel.names == ("a", "d")
    assert read(root, novel=1).novel.names == ("a",)
    with pytest.raises(UserError, match=r"data\.novel_classes is 3, but there are 2 novel classes"):
        read(root, novel=3)


def test_one_colour_image_makes_the_set_rgb(root: Path) -> None:
    Image.new("RGB", (30, 20), (10, 20, 30)).save(root / "e" / "colour.bmp")
    splits = read(root)
    assert splits.base.image_shape == splits.novel.image_shape == (3, 8, 8)
    assert splits.novel.images[1, -1, :, 0, 0].tolist() == [10, 20, 30]  # e/colour.bmp comes after e/4.png
    assert splits.base.images[2, 1, :, 0, 0].tolist() == [81, 81, 81]


@pytest.mark.parametrize("mode", ["1", "L", "LA"])
def test_modes_without_colour_stay_grey(root: Path, mode: str) -> None:
    Image.new("L", (9, 9), 255).convert(mode).save(root / "a" / "other.png")
    splits = read(root)
    assert splits.base.image_shape == (1, 8, 8)
    assert splits.base.images[0, 1].min() == 255


def test_sixteen_bits_are_scaled_not_cut(root: Path) -> None:
    Image.fromarray(np.full((9, 9), 128 * 256, np.uint16)).save(root / "a" / "deep.png")
    splits = read(root)
    assert splits.base.image_shape == (1, 8, 8)
    assert bool((splits.base.images[0, 1] == 128).all())


def test_pixels_of_no_known_range_are_refused(root: Path) -> None:
    Image.fromarray(np.full((9, 9), 0.5, np.float32)).save(root / "a" / "float.tiff")
    assert "floating-point numbers" in refused(root)


def test_transparent_is_white(root: Path) -> None:
    Image.new("RGBA", (9, 9), (0, 0, 0, 0)).save(root / "a" / "clear.png")
    assert read(root).base.images[0, 1].min() == 255


def test_large_images_are_read_by_many_threads(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (80, 80, 3), np.uint8)
    for name in "abc":
        (tmp_path / name).mkdir()
        for k in range(3):
            Image.fromarray(np.roll(noise, k, axis=2)).save(tmp_path / name / f"{k}.png")
    splits = read(tmp_path, novel=1)
    expected = Image.fromarray(noise).resize((8, 8), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(splits.base.images[1, 0].permute(1, 2, 0).numpy(), np.asarray(expected))
    (tmp_path / "b" / "2.png").write_bytes((tmp_path / "b" / "2.png").read_bytes()[:5000])
    assert str(tmp_path / "b" / "2.png") in refused(tmp_path, novel=1)


def test_litter_is_passed_over(root: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", "._0.png"):
        (root / "a" / name).write_bytes(b"litter")
    assert read(root).base.counts.tolist() == [1, 2, 3]


def test_a_file_that_is_no_image_is_named(root: Path) -> None:
    (root / "b" / "notes.txt").write_text("hello")
    message = refused(root)
    assert str(root / "b" / "notes.txt") in message
    assert "does not decode" in message


def test_a_file_that_cannot_be_read_is_named(root: Path) -> None:
    (root / "d" / "9.png").symlink_to(root / "gone.png")
    assert str(root / "d" / "9.png") in refused(root)


def test_an_empty_class_is_named(root: Path) -> None:
    (root / "bb").mkdir()
    (root / "bb" / ".DS_Store").write_bytes(b"")
    assert f"{root / 'bb'} is empty" in refused(root)


def test_a_folder_inside_a_class_is_named(root: Path) -> None:
    (root / "b" / "more").mkdir()
    assert f"{root / 'b'} holds a folder, 'more'" in refused(root)


def test_one_split_needs_the_other(root: Path) -> None:
    for name in "abcde":
        (root / "base").mkdir(exist_ok=True)
        (root / name).rename(root / "base" / name)
    assert "has base/, but no novel/" in refused(root)


def test_no_classes(tmp_path: Path) -> None:
    assert f"{tmp_path} has no classes" in refused(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_root_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    assert f"{str(tmp_path / name)!r} is no folder" in refused(tmp_path / name)


@pytest.mark.parametrize(
    ("novel", "words"), [(0, "data.novel_classes is 0"), (5, "data.novel_classes is 5"), (9, "has 5 classes")]
)
def test_the_number_of_novel_classes_must_fit(root: Path, novel: int, words: str) -> None:
    assert words in refused(root, novel)


def test_a_class_beside_the_splits_is_named(tmp_path: Path) -> None:
    for name in ("base/a", "novel/b", "c"):
        (tmp_path / name).mkdir(parents=True)
        Image.new("L", (9, 9)).save(tmp_path / name / "1.png")
    assert "has base/ and novel/, but also 'c': move that into one of the two" in refused(tmp_path)
