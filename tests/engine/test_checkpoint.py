"""Checkpoints: what goes in comes out; what is damaged is refused."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from kcciol.config import Config
from kcciol.engine import checkpoint
from kcciol.engine.checkpoint import Checkpoint, load, read
from kcciol.errors import UserError
from kcciol.nets.layout import Layout


@pytest.fixture
def saved(tiny: Config, tmp_path: Path) -> Path:
    path = tmp_path / "c.safetensors"
    tensors = {"a": torch.randn(3, 2), "b": torch.randn(4, 2, 3, 3).to(memory_format=torch.channels_last)}
    Checkpoint(tiny, (1, 16, 16), ("x", "y"), 2, 34, tensors).save(path)
    return path


def test_round_trip(tiny: Config, saved: Path) -> None:
    found = load(saved)
    assert (found.config, found.image_shape, found.base_names) == (tiny, (1, 16, 16), ("x", "y"))
    assert (found.phase, found.step) == (2, 34)
    layout = Layout({"a": (3, 2), "b": (4, 2, 3, 3)})
    views = layout.views(found.vector(layout, saved))
    assert all(torch.equal(views[name], found.tensors[name]) for name in views)
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]  # nothing left beside it


def test_truncated(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in (0, 4, 100, len(whole) - 1):
        saved.write_bytes(whole[:length])
        with pytest.raises(UserError, match="damaged or truncated"):
            load(saved)


def test_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint"):
        load(tmp_path / "none.safetensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="not a representation"):
        load(tmp_path / "x.safetensors")


def test_not_finite(tiny: Config, tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    Checkpoint(tiny, (1, 16, 16), ("x", "y"), 1, 1, {"a": torch.tensor([float("nan")])}).save(path)
    with pytest.raises(UserError, match="not finite"):
        load(path)


def test_another_shape(saved: Path) -> None:
    with pytest.raises(UserError, match=r"a has shape \(3, 2\), but \(5,\) is needed"):
        load(saved).vector(Layout({"a": (5,)}), saved)


def test_a_failed_write_keeps_the_old_file(tiny: Config, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fail(*arguments: object, **options: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("kcciol.engine.checkpoint.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        Checkpoint(tiny, (1, 16, 16), ("x", "y"), 1, 1, {"a": torch.zeros(1)}).save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "one.safetensors").write_bytes(b"whole")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\)"):
        read(tmp_path / "one.safetensors")


@pytest.mark.parametrize(
    ("words", "number"), [("I/O error: No space left on device (os error 28)", errno.ENOSPC), ("odd", errno.EIO)]
)
def test_a_full_disk_is_known_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, number: int) -> None:
    def full(*arguments: Any, **more: Any) -> None:
        raise SafetensorError(words)

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match=r"a\.safetensors") as raised:
        checkpoint.write(tmp_path / "a.safetensors", {}, {"x": torch.zeros(1)})
    assert raised.value.errno == number
    assert list(tmp_path.iterdir()) == []
