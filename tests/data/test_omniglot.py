from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from kcciol import data
from kcciol.config import DataConfig
from kcciol.data import ClassSet, omniglot
from kcciol.data.omniglot import OmniglotHalf
from kcciol.errors import UserError
from kcciol.files.tensors import Format, read_tensors, write_tensors

BASE = OmniglotHalf("images_background", 4, drawers=3)
NOVEL = OmniglotHalf("images_evaluation", 2, drawers=3)
ALPHA, ZETA = "Alpha", "Zeta"


def write_split(where: Path, split: OmniglotHalf) -> None:
    """Two alphabets with as many characters and drawers as the split says, 105 x 105 pixels of one bit."""
    for i in range(split.characters):
        folder = where / split.name / (ALPHA if i % 2 else ZETA) / f"character{i:02}"
        folder.mkdir(parents=True)
        for drawer in range(split.drawers):
            ink = np.random.default_rng(100 * i + drawer).random((105, 105)) < 0.08
            image = Image.fromarray(np.where(ink, 0, 255).astype(np.uint8)).convert("1")
            image.save(folder / f"{i:04}_{drawer + 1:02}.png")


def zip_split(where: Path, split: OmniglotHalf) -> Path:
    """The split's folder turned into its zip."""
    path = where / f"{split.name}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (where / split.name).rglob("*"):
            archive.write(file, file.relative_to(where))
    shutil.rmtree(where / split.name)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tiny Omniglot in the official folder layout."""
    for split in (BASE, NOVEL):
        write_split(tmp_path / "omniglot-py", split)
    return tmp_path


def load(root: Path, size: int = 20) -> tuple[ClassSet, ClassSet]:
    return omniglot.load(DataConfig(root=str(root), size=size), BASE, NOVEL)


def caches(root: Path) -> list[str]:
    return sorted(p.name for p in (root / ".kcciol-cache").iterdir())


def test_folders_are_read_sorted_resized_and_not_inverted(root: Path) -> None:
    base, novel = load(root)
    assert base.names == (
        "Alpha/character01",
        "Alpha/character03",
        "Zeta/character00",
        "Zeta/character02",
    )
    assert base.images.shape == (4, 3, 1, 20, 20)
    assert novel.images.shape == (2, 3, 1, 20, 20)
    assert base.counts.tolist() == [3] * 4
    file = root / "omniglot-py/images_background/Alpha/character03/0003_02.png"
    expected = Image.open(file).convert("L").resize((20, 20), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(base.images[1, 1, 0].numpy(), np.asarray(expected))
    assert base.images.float().mean() > 200  # white paper


def test_all_layouts_give_the_same(root: Path) -> None:
    expected = load(root)
    inner = root / "omniglot-py"
    for split in (BASE, NOVEL):
        (inner / split.name).rename(root / split.name)
    bare = load(root)
    zips = [zip_split(root, split) for split in (BASE, NOVEL)]
    zipped = load(root)
    for path in zips:
        path.rename(inner / path.name)
    inner_zips = load(root)
    for found in (bare, zipped, inner_zips):
        for a, b in zip(found, expected, strict=True):
            assert a.names == b.names
            assert torch.equal(a.images, b.images)


def test_the_second_load_decodes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(root)
    monkeypatch.setattr(omniglot, "read_classes", lambda *_: pytest.fail("decoded again"))
    second = load(root)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.counts, b.counts)
        assert a.names == b.names
    assert len(caches(root)) == 1


def test_the_cache_moves_with_the_data(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(root)
    moved = root.rename(root.with_name("moved"))
    monkeypatch.setattr(omniglot, "read_classes", lambda *_: pytest.fail("decoded again"))
    load(moved)


def test_each_size_has_its_cache(root: Path) -> None:
    assert load(root, 20)[0].image_shape == (1, 20, 20)
    assert load(root, 28)[0].image_shape == (1, 28, 28)
    assert len(caches(root)) == 2


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "nonsense", "half"])
def test_a_corrupt_cache_is_rebuilt(root: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load(root)[0].images.clone()
    (path,) = (root / ".kcciol-cache").iterdir()
    good = path.read_bytes()
    flipped = good[:-100] + bytes([good[-100] ^ 255]) + good[-99:]
    bad = {"truncated": good[: len(good) // 2], "flipped": flipped, "empty": b"", "nonsense": b"x" * 999}
    if damage == "half":  # a whole file in which a split is missing
        header, tensors = read_tensors(path, Format("cache", ()))
        del header["names"]["novel"]
        path.unlink()
        write_tensors(path, Format("cache", ()), header, tensors)
    else:
        path.unlink()
        path.write_bytes(bad[damage])
    assert torch.equal(load(root)[0].images, expected)
    monkeypatch.setattr(omniglot, "read_classes", lambda *_: pytest.fail("decoded again"))
    assert torch.equal(load(root)[0].images, expected)


def test_a_changed_image_is_read_again_and_the_old_cache_removed(root: Path) -> None:
    before = load(root)[0].images.clone()
    file = root / "omniglot-py/images_background/Alpha/character01/0001_01.png"
    Image.new("1", (105, 105), 0).save(file)
    after = load(root)[0].images
    assert after[0, 0].max() == 0
    assert torch.equal(after[1:], before[1:])
    assert len(caches(root)) == 1


def test_a_root_that_cannot_hold_a_cache_still_loads(root: Path) -> None:
    (root / ".kcciol-cache").write_text("in the way")
    assert len(load(root)[0]) == 4
    assert (root / ".kcciol-cache").read_text() == "in the way"


def refused(root: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(root)
    assert not list(root.glob(".kcciol-cache/*"))
    return str(caught.value)


def test_missing_root(tmp_path: Path) -> None:
    message = refused(tmp_path / "nowhere")
    assert "nowhere' does not exist" in message
    assert f"kcciol data get omniglot --root {tmp_path / 'nowhere'}" in message


def test_missing_split(root: Path) -> None:
    shutil.rmtree(root / "omniglot-py/images_evaluation")
    message = refused(root)
    assert "has no images_evaluation" in message
    assert "ALPHABET/CHARACTER" in message
    assert "kcciol data get omniglot" in message


def test_too_few_images(root: Path) -> None:
    (root / "omniglot-py/images_background/Alpha/character03/0003_02.png").unlink()
    assert "Alpha/character03 has 2 images in place of 3" in refused(root)


def test_too_few_characters(root: Path) -> None:
    shutil.rmtree(root / "omniglot-py/images_evaluation/Alpha/character01")
    message = refused(root)
    assert "images_evaluation" in message
    assert "1 characters in place of 2" in message


def test_the_official_numbers_are_the_default(root: Path) -> None:
    with pytest.raises(UserError, match="has 3 images in place of 20"):
        data.load(DataConfig(root=str(root)))


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_an_image_that_does_not_decode_is_named(root: Path, content: bytes) -> None:
    file = root / "omniglot-py/images_background/Zeta/character02/0002_03.png"
    file.write_bytes(content)
    message = refused(root)
    assert str(file) in message
    assert "BytesIO" not in message


def test_a_truncated_image_is_named(root: Path) -> None:
    file = root / "omniglot-py/images_background/Zeta/character02/0002_03.png"
    file.write_bytes(file.read_bytes()[:300])
    assert str(file) in refused(root)


def test_a_dangling_link_is_named(root: Path) -> None:
    file = root / "omniglot-py/images_background/Zeta/character02/0002_03.png"
    file.unlink()
    file.symlink_to(root / "gone.png")
    assert str(file) in refused(root)


def test_a_truncated_zip(root: Path) -> None:
    path = zip_split(root / "omniglot-py", BASE)
    path.write_bytes(path.read_bytes()[:-200])
    message = refused(root)
    assert f"{path} is not a whole zip file" in message
    assert "delete or move it" in message


def test_a_damaged_member_is_named(root: Path) -> None:
    path = zip_split(root / "omniglot-py", BASE)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = next(i for i in archive.infolist() if i.filename.endswith(".png"))
    start = info.header_offset + 30 + len(info.filename)
    content[start + 50] ^= 255
    path.write_bytes(content)
    assert f"{path}/{info.filename}" in refused(root)


def test_hidden_files_are_passed_over(root: Path) -> None:
    (root / "omniglot-py/images_background/.DS_Store").write_bytes(b"")
    (root / "omniglot-py/images_background/Alpha/character01/._0001_01.png").write_bytes(b"")
    assert len(load(root)[0]) == 4


@pytest.mark.real_data
def test_the_real_omniglot() -> None:
    root = os.environ.get("KCCIOL_DATA")
    if not root:
        pytest.skip("KCCIOL_DATA is not set")
    splits = data.load(DataConfig(root=root, size=84, base_classes=963))
    assert (len(splits.base), len(splits.validation), len(splits.novel)) == (963, 0, 659)
    assert splits.base.images.shape == (963, 20, 1, 84, 84)
    assert splits.base.names[0] == "Alphabet_of_the_Magi/character01"
    assert splits.base.images.float().mean().item() / 255 == pytest.approx(0.922, abs=0.002)
    assert splits.novel.images.float().mean().item() / 255 == pytest.approx(0.916, abs=0.002)
