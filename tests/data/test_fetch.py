from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kcciol.data import DATASETS, DataSet, Download, cifar100, mnist, omniglot
from kcciol.data.fetch import fetch
from kcciol.errors import UserError

FILES = {"images_background.zip": b"background" * 1000, "images_evaluation.zip": b"evaluation" * 1000}
MD5 = {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()}


class Quiet(SimpleHTTPRequestHandler):
    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The folder that the server hands out."""
    folder = tmp_path / "served"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def url(served: Path) -> Iterator[str]:
    pytest.importorskip("pooch")
    Quiet.requests = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(served))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "new" / "root"


def at(dataset: DataSet, url: str, md5: dict[str, str]) -> Download:
    """Its download from another place, with the hashes of other files."""
    assert dataset.download is not None
    return dataclasses.replace(dataset.download, url=url, md5=md5)


def names(root: Path) -> list[str]:
    return sorted(p.name for p in root.iterdir())


def test_both_zips_come_and_come_once(url: str, root: Path) -> None:
    lines = fetch(at(omniglot.DATASET, url, MD5), root)
    assert len(lines) == 2
    assert all("downloaded" in line for line in lines)
    assert {name: (root / name).read_bytes() for name in names(root)} == FILES
    assert Quiet.requests == 2
    assert all("already there" in line for line in fetch(at(omniglot.DATASET, url, MD5), root))
    assert Quiet.requests == 2


def test_a_folder_counts_as_there(url: str, root: Path) -> None:
    (root / "omniglot-py" / "images_background").mkdir(parents=True)
    fetch(at(omniglot.DATASET, url, MD5), root)
    assert names(root) == ["images_evaluation.zip", "omniglot-py"]


def test_a_wrong_file_is_named_and_not_overwritten(url: str, root: Path) -> None:
    root.mkdir(parents=True)
    (root / "images_background.zip").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"images_background.zip is not the official file.*delete or move it"):
        fetch(at(omniglot.DATASET, url, MD5), root)
    assert (root / "images_background.zip").read_bytes() == b"mine"
    assert names(root) == ["images_background.zip"]


def test_a_download_with_the_wrong_content_leaves_nothing(url: str, served: Path, root: Path) -> None:
    (served / "images_background.zip").write_bytes(b"something else")
    with pytest.raises(UserError, match="has not the md5"):
        fetch(at(omniglot.DATASET, url, MD5), root)
    assert not root.parent.exists()  # nor folders that were made for it


def test_a_missing_page_leaves_nothing(url: str, served: Path, root: Path) -> None:
    (served / "images_evaluation.zip").unlink()
    with pytest.raises(UserError, match=r"images_evaluation.zip could not be downloaded \(404") as caught:
        fetch(at(omniglot.DATASET, url, MD5), root)
    assert f"put it at {root / 'images_evaluation.zip'}" in str(caught.value)
    assert names(root) == ["images_background.zip"]


def test_a_file_where_a_folder_must_be_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pooch")
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "inner"):
        with pytest.raises(UserError, match="lies in, a file, not a folder: choose another --root"):
            fetch(at(omniglot.DATASET, "http://unused", MD5), folder)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_may_not_be_written_to_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr("pooch.retrieve", refuse)
    with pytest.raises(UserError, match=f"The folder {root} is not one you may write to"):
        fetch(at(omniglot.DATASET, "http://unused", MD5), root)


def test_a_download_cut_short_leaves_nothing(url: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(handler: Quiet) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10000")
        handler.end_headers()
        handler.wfile.write(b"background")

    monkeypatch.setattr(Quiet, "do_GET", cut)
    with pytest.raises(UserError, match="put it at"):
        fetch(at(omniglot.DATASET, url, MD5), root)
    assert not root.parent.exists()  # nor folders that were made for it


def test_no_network_is_one_sentence(root: Path) -> None:
    pytest.importorskip("pooch")
    with pytest.raises(UserError, match="could not be downloaded") as caught:
        fetch(at(omniglot.DATASET, "http://127.0.0.1:9", MD5), root)
    assert f"put it at {root / 'images_background.zip'}" in str(caught.value)
    assert "(no connection)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not root.parent.exists()  # nor folders that were made for it


def test_pooch_missing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(UserError, match=r"pip install 'kcciol\[download\]'"):
        fetch(at(omniglot.DATASET, "http://127.0.0.1:9", MD5), root)
    assert not root.exists()


OTHERS = {
    "cifar-100-python.tar.gz": b"cifar" * 1000,
    "train-images-idx3-ubyte.gz": b"digits" * 1000,
    "train-labels-idx1-ubyte.gz": b"labels" * 1000,
    "t10k-images-idx3-ubyte.gz": b"more digits" * 1000,
    "t10k-labels-idx1-ubyte.gz": b"more labels" * 1000,
}
HASHES = {name: hashlib.md5(content).hexdigest() for name, content in OTHERS.items()}
CIFAR = {name: digest for name, digest in HASHES.items() if name.endswith(".tar.gz")}
DIGITS = {name: digest for name, digest in HASHES.items() if name not in CIFAR}


@pytest.fixture
def others(served: Path) -> None:
    for name, content in OTHERS.items():
        (served / name).write_bytes(content)


@pytest.mark.usefixtures("others")
def test_the_archive_of_cifar_100_comes_once(url: str, root: Path) -> None:
    for word in ("downloaded", "already there"):
        (line,) = fetch(at(cifar100.DATASET, url, CIFAR), root)
        assert word in line
    assert (root / "cifar-100-python.tar.gz").read_bytes() == OTHERS["cifar-100-python.tar.gz"]
    assert names(root) == ["cifar-100-python.tar.gz"]
    assert Quiet.requests == 1


@pytest.mark.usefixtures("others")
def test_the_folder_of_cifar_100_counts_as_there(url: str, root: Path) -> None:
    (root / "cifar-100-python").mkdir(parents=True)
    (line,) = fetch(at(cifar100.DATASET, url, CIFAR), root)
    assert line == f"cifar-100-python: already there, {root / 'cifar-100-python'}"
    assert Quiet.requests == 0


@pytest.mark.usefixtures("others")
def test_the_files_of_mnist_come_once(url: str, root: Path) -> None:
    for word in ("downloaded", "already there"):
        lines = fetch(at(mnist.DATASET, url, DIGITS), root)
        assert len(lines) == 4
        assert all(word in line for line in lines)
    assert names(root / "MNIST" / "raw") == sorted(DIGITS)
    assert Quiet.requests == 4


@pytest.mark.usefixtures("others")
def test_an_unpacked_file_of_mnist_counts_as_there(url: str, root: Path) -> None:
    (root / "mnist").mkdir(parents=True)
    (root / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(b"unpacked, so of another hash")
    fetch(at(mnist.DATASET, url, DIGITS), root)
    assert names(root / "MNIST" / "raw") == sorted(set(DIGITS) - {"t10k-labels-idx1-ubyte.gz"})


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(("dataset", "name"), [(cifar100.DATASET, min(CIFAR)), (mnist.DATASET, min(DIGITS))])
def test_hashes_of_the_others_are_checked(dataset: DataSet, name: str, url: str, served: Path, root: Path) -> None:
    download = at(dataset, url, {name: HASHES[name]})
    (served / name).write_bytes(b"something else")
    with pytest.raises(UserError, match="has not the md5"):
        fetch(download, root)
    assert not root.parent.exists()
    root.mkdir(parents=True)
    (root / name).write_bytes(b"mine")
    with pytest.raises(UserError, match=f"{name} is not the official file"):
        fetch(download, root)
    assert (root / name).read_bytes() == b"mine"


def test_the_official_hashes() -> None:
    known = {name: dataset.download.md5 for name, dataset in DATASETS.items() if dataset.download}
    assert {name: set(md5) for name, md5 in known.items()} == {
        "omniglot": set(FILES),
        "cifar100": set(CIFAR),
        "mnist": set(DIGITS),
    }
    assert all(len(bytes.fromhex(digest)) == 16 for md5 in known.values() for digest in md5.values())
