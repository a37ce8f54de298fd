"""Checkpoints: what goes in comes out; what is damaged is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kcciol.config import Config
from kcciol.engine.checkpoint import FORMAT, Checkpoint, load
from kcciol.errors import UserError
from kcciol.files import tensors as files
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
    with pytest.raises(UserError, match="not a saved checkpoint"):
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

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        Checkpoint(tiny, (1, 16, 16), ("x", "y"), 1, 1, {"a": torch.zeros(1)}).save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, flags: int, mode: int = 0) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "one.safetensors").write_bytes(b"whole")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\)"):
        files.read_tensors(tmp_path / "one.safetensors", FORMAT)


def test_a_full_disk_is_known_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"a\.safetensors") as raised:
        files.write_tensors(tmp_path / "a.safetensors", FORMAT, {}, {"x": torch.zeros(1)})
    assert raised.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
