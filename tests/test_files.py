"""Saves that go on at once, or are killed; what is no regular file; JSON that is too deep."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kcciol.engine.run_folder import RunFolder
from kcciol.errors import UserError
from kcciol.files import append_json, file_lock, read_json, replacing, write_json
from kcciol.files.tensors import Format, read_tensors, write_tensors
from kcciol.paper.cellfile import read_cell
from kcciol.paper.report.read import read_table

THING = Format("thing", ())


def test_saves_of_one_file_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    path, failed = tmp_path / "a.safetensors", []

    def save(value: float) -> None:
        for _ in range(40):
            try:
                write_tensors(path, THING, {"of": value}, {"x": torch.full((1000,), value)})
            except OSError as error:
                failed.append(error)

    threads = [threading.Thread(target=save, args=(float(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    header, found = read_tensors(path, THING)
    assert (found["x"] == header["of"]).all()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="a process cannot be forked")
def test_a_save_of_tensors_that_is_killed_leaves_nothing_for_good(tmp_path: Path) -> None:
    """Killed in the middle of writing, by the system, at the size that a file may have."""
    import resource

    path = tmp_path / "a.safetensors"
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        write_tensors(path, THING, {}, {"x": torch.zeros(3000)})
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert len(list(tmp_path.iterdir())) == 1
    write_tensors(path, THING, {}, {"x": torch.zeros(3)})
    assert list(tmp_path.iterdir()) == [path]


def _held(path: Path) -> None:
    with file_lock(path):
        pass


@pytest.mark.skipif(os.name == "nt", reason="there are none")
@pytest.mark.parametrize("write", [_held, lambda path: append_json(path, {}), read_json, read_table, read_cell])
def test_a_named_pipe_is_refused_at_once(write: Callable[[Path], object], tmp_path: Path) -> None:
    path, said = tmp_path / "pipe", []
    os.mkfifo(path)

    def run() -> None:
        with pytest.raises(UserError) as raised:
            write(path)
        said.append(str(raised.value))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert said, "it waits, or is not refused"
    assert "is a named pipe" in said[0]


@pytest.mark.parametrize("read", [read_json, read_table, read_cell])
@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000])
def test_json_that_is_too_deep_is_a_sentence(read: Callable[[Path], object], text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=r"a\.json"):
        read(tmp_path / "a.json")


@pytest.mark.skipif(os.name == "nt", reason="there are no such rights")
@pytest.mark.parametrize(("rights", "meanwhile"), [(0o600, 0o600), (0o444, 0o644)], ids=["private", "read-only"])
def test_a_file_keeps_its_rights_when_it_is_written_again(rights: int, meanwhile: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    write_json(path, 1)
    path.chmod(rights)
    with replacing(path) as part:
        assert part.stat().st_mode & 0o777 == meanwhile  # who is not root could not write into it else
        part.write_text("2")
    assert path.stat().st_mode & 0o777 == rights
    assert read_json(path) == 2


def test_the_place_of_the_data_is_kept_beside_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.remembered_root() == ""
    (tmp_path / "data").mkdir()
    folder.remember_root(tmp_path / "data")
    assert folder.remembered_root() == str((tmp_path / "data").resolve())
    folder.remember_root(tmp_path / "nowhere")
    (tmp_path / "data").rmdir()
    assert folder.remembered_root() == ""


def test_the_largest_file_must_be_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCCIOL_LARGEST_FILE", "much")
    with pytest.raises(UserError, match="KCCIOL_LARGEST_FILE is 'much', but must be a number of bytes"):
        read_tensors(tmp_path / "a", THING)
