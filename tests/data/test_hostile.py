"""Files that are made to hang a loader or to fill the memory are refused, in a sentence that names them."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import socket
import sys
import tarfile
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kcciol.config import DataConfig
from kcciol.data import cifar100, load, mnist, omniglot, pickles
from kcciol.data.images import Room, read_image
from kcciol.data.omniglot import OmniglotHalf
from kcciol.data.pickles import read_pickle
from kcciol.errors import UserError

MB = 10**6


@contextmanager
def refused(words: str) -> Iterator[None]:
    """The block ends in a sentence with these words, and takes little memory on the way."""
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as caught:
            yield
        assert words in str(caught.value)
        assert str(caught.value).isprintable()
        assert tracemalloc.get_traced_memory()[1] < 8 * MB
    finally:
        tracemalloc.stop()


def folders(root: Path) -> DataConfig:
    """Two classes of one image."""
    for name in "ab":
        (root / name).mkdir()
        Image.new("L", (8, 8)).save(root / name / "0.png")
    return DataConfig(name="folder", root=str(root), size=8, base_classes=0, novel_classes=1)


# --- what is no file --------------------------------------------------------------------------------------------------


def soon(work: Callable[[], object]) -> str:
    """The sentence that some work ends in, within ten seconds."""
    said = []

    def run() -> None:
        try:
            work()
        except UserError as error:
            said.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert said, "it hangs, or is not refused"
    return said[0]


@contextmanager
def pipe(path: Path) -> Iterator[None]:
    os.mkfifo(path)
    try:
        yield
    finally:
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))  # lets go of who may wait for it


@pytest.mark.skipif(sys.platform == "win32", reason="there are none")
def test_a_named_pipe_among_the_images(tmp_path: Path) -> None:
    config = folders(tmp_path)
    with pipe(tmp_path / "a" / "1.png"):
        message = soon(lambda: load(config))
    assert message == f"{tmp_path / 'a' / '1.png'} is a named pipe, and only regular files are read: mend or remove it."


@pytest.mark.skipif(sys.platform == "win32", reason="there are none")
@pytest.mark.parametrize("file", ["cifar-100-python/meta", "mini-imagenet/train.csv", "mini-imagenet-cache-train.pkl"])
def test_a_named_pipe_in_place_of_a_file(file: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    for other in ("train", "test"):
        path.with_name(path.name.replace("meta", other).replace("train", other)).write_bytes(b"")
    path.unlink(missing_ok=True)
    name = "cifar100" if "cifar" in file else "mini-imagenet"
    with pipe(path):
        message = soon(lambda: load(DataConfig(name=name, root=str(tmp_path))))
    assert message.startswith(f"{path} is a named pipe, and only regular files are read")


@pytest.mark.skipif(sys.platform == "win32", reason="there are none")
def test_a_socket_and_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = folders(tmp_path)
    monkeypatch.chdir(tmp_path / "a")  # the names of sockets are short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("1.png")
        assert "1.png is a socket, and only regular files are read" in soon(lambda: load(config))
    Path("1.png").unlink()
    Path("1.png").symlink_to("/dev/zero")
    assert "1.png is a device, and only regular files are read" in soon(lambda: load(config))


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
@pytest.mark.parametrize("name", ["a/1.png", "a1"])
def test_a_link_to_itself(name: str, tmp_path: Path) -> None:
    config = folders(tmp_path)
    (tmp_path / name).symlink_to(tmp_path / name)
    if name == "a1":  # beside the classes, a file is passed over
        assert load(config).base.names == ("a",)
    else:
        with refused(f"The file {tmp_path / name} cannot be read"):
            load(config)


def test_a_name_that_a_terminal_would_obey(tmp_path: Path) -> None:
    config = folders(tmp_path)
    (tmp_path / "a" / "\x1b[2J\n.png").write_text("no image")
    with refused(r"\x1b[2J\n.png does not decode as an image"):
        load(config)


# --- images -----------------------------------------------------------------------------------------------------------


def test_an_image_of_too_many_pixels(tmp_path: Path) -> None:
    config = folders(tmp_path)
    Image.new("1", (10_000, 5_001)).save(tmp_path / "b" / "1.png")
    with refused(f"The file {tmp_path / 'b' / '1.png'} has 10000 x 5001, which is more than 50,000,000 pixels:"):
        load(config)


@pytest.mark.parametrize("ending", ["gif", "tiff", "webp", "png", "jpg", "bmp"])
def test_the_limit_on_pixels_is_a_setting(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many frames the first counts: the others are not read."""
    path = tmp_path / f"image.{ending}"
    frames = [Image.new("L", (20, 20), k) for k in range(1, 50)] if ending in ("gif", "tiff", "webp") else []
    Image.new("L", (20, 20)).save(path, save_all=bool(frames), append_images=frames)
    monkeypatch.setenv("KCCIOL_MAX_PIXELS", "400")
    assert read_image(path, "L").shape == (1, 20, 20)
    monkeypatch.setenv("KCCIOL_MAX_PIXELS", "399")
    with refused("20 x 20, which is more than 399 pixels: make it smaller, or set the environment"):
        read_image(path, "L")


@pytest.mark.parametrize("said", ["0", "-1", "many", "1e9", "178000001", "9" * 5000, "\u0663"])
def test_the_limit_must_be_a_number(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCCIOL_MAX_PIXELS", said)
    with refused("but must be a number between 1 and 178000000"):
        read_image(b"", "L")


def test_a_file_of_too_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCCIOL_MAX_PIXELS", "1000")
    config = folders(tmp_path)
    with (tmp_path / "a" / "1.png").open("wb") as file:
        file.truncate(10**9)
    with refused("1.png has 1000000000 bytes, but may have 1056576 at most"):
        load(config)


@pytest.mark.parametrize("ending", ["ico", "eps"])
def test_formats_that_hold_other_images_or_start_programs(ending: str, tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / f"image.{ending}")
    with refused("no image of a format that kcciol reads"):
        read_image(tmp_path / f"image.{ending}", "RGB")


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "webp", "tiff", "bmp"])
def test_a_truncated_image(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"image.{ending}"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with refused(f"The file {path} does not decode as an image"):
        read_image(path, "RGB")


def test_an_image_of_a_user_in_every_form(tmp_path: Path) -> None:
    drawn = Image.fromarray(np.arange(96, dtype=np.uint8).reshape(8, 12))
    drawn.save(tmp_path / "image.png")
    expected = np.asarray(drawn)[None]
    for source in (tmp_path / "image.png", str(tmp_path / "image.png"), (tmp_path / "image.png").read_bytes(), drawn):
        np.testing.assert_array_equal(read_image(source, "L"), expected)
    assert read_image(drawn, "RGB", 5).shape == (3, 5, 5)
    assert (read_image(Image.new("RGBA", (2, 2)), "L") == 255).all()


@pytest.mark.parametrize(
    ("source", "mode", "size", "says"),
    [
        (3, "L", 8, "must be a path"),
        (None, "L", 8, "must be a path"),
        (io.BytesIO(), "L", 8, "must be a path"),
        ("a.png", "foo", 8, "mode is 'foo'"),
        ("a.png", "L", "28", "size is '28'"),
        ("a.png", "L", 0, "size is 0"),
        ("a.png", "L", -1, "size is -1"),
        ("a.png", "L", True, "size is True"),
        ("a.png", "L", 10**6, "size is 1000000, but must be a side of 1 to 7071 pixels"),
    ],
)
def test_what_the_caller_got_wrong_is_not_blamed_on_the_file(source: Any, mode: Any, size: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_image(source, mode, size)


def test_an_image_of_pillow_is_judged_as_a_file_is() -> None:
    with refused("The image does not decode as an image (its pixels are floating-point numbers"):
        read_image(Image.new("F", (2, 2)), "L")
    with refused("The image has 13000 x 13000, which is more than 50,000,000 pixels"):
        read_image(Image.new("1", (13_000, 13_000)), "L")


def test_what_is_decoded_at_once_is_bounded_and_served_in_order() -> None:
    room, entered, leave = Room(), list[str](), threading.Event()

    def use(name: str, pixels: int) -> None:
        with room.of(pixels, most=10):
            entered.append(name)
            leave.wait(10)

    threads = []
    for name, pixels in (("first", 8), ("large", 9), ("small", 1), ("larger than all may be", 99)):
        threads.append(threading.Thread(target=use, args=(name, pixels)))
        threads[-1].start()
        while not entered or room.waiting < len(threads) - 1:
            time.sleep(0.001)
    assert entered == ["first"]  # there would be room for the small one, but another came before
    leave.set()
    for thread in threads:
        thread.join(10)
    assert entered == ["first", "large", "small", "larger than all may be"]


def test_who_is_interrupted_while_waiting_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(room.changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), room.of(5, most=10):
            pass
    done = []
    for pixels in (10, 99, 10):
        with room.of(pixels, most=10):
            done.append(pixels)
    assert done == [10, 99, 10]


# --- packed files -----------------------------------------------------------------------------------------------------


def test_a_gz_of_far_more_than_its_header_says(tmp_path: Path) -> None:
    for name in mnist.FILES:
        shape = [10, 28, 28] if "images" in name else [10]
        head = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
        with gzip.open(tmp_path / f"{name}.gz", "wb", 1) as file:
            file.write(head + bytes(60 * MB))
    with refused("has more bytes of data in place of 7840"):
        mnist.load(DataConfig(root=str(tmp_path)), (10, 10))


def test_a_tar_whose_header_unpacks_to_more_than_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar100, "MOST_BYTES", 2**20, raising=False)
    header = tarfile.TarInfo("cifar-100-python/meta")
    header.type, header.size = tarfile.XHDTYPE, 30 * MB
    with gzip.open(tmp_path / "cifar-100-python.tar.gz", "wb", 1) as file:
        file.write(header.tobuf() + bytes(30 * MB))
    with refused("cifar-100-python.tar.gz cannot be read (it unpacks to more than 1048576 bytes)"):
        load(DataConfig(name="cifar100", root=str(tmp_path)))


HALVES = [OmniglotHalf(name, characters=1, drawers=1) for name in ("images_background", "images_evaluation")]


def zipped(root: Path, content: bytes, how: int = zipfile.ZIP_DEFLATED) -> Path:
    """Both zips of an Omniglot of one image, of this content."""
    for half in HALVES:
        with zipfile.ZipFile(root / f"{half.name}.zip", "w", how, compresslevel=1) as archive:
            archive.writestr(f"{half.name}/A/B/0.png", content)
    return root / "images_background.zip"


def test_a_member_of_a_zip_that_is_larger_than_it_says(tmp_path: Path) -> None:
    path = zipped(tmp_path, bytes(60 * MB))
    size = (60 * MB).to_bytes(4, "little")
    data = path.read_bytes()
    assert data.count(size) == 2  # before the member and in the list of all
    path.write_bytes(data.replace(size, (100).to_bytes(4, "little")))
    with refused(f"The image {path}/images_background/A/B/0.png cannot be read"):
        omniglot.load(DataConfig(root=str(tmp_path)), *HALVES)


def test_a_member_of_a_zip_in_a_compression_whose_pieces_have_no_bound(tmp_path: Path) -> None:
    zipped(tmp_path, bytes(60 * MB), zipfile.ZIP_BZIP2)
    with refused("cannot be read (a compression that kcciol does not read)"):
        omniglot.load(DataConfig(root=str(tmp_path)), *HALVES)


def test_a_member_of_a_zip_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCCIOL_MAX_PIXELS", "1000")
    path = zipped(tmp_path, bytes(60 * MB))
    with refused(f"{path}/images_background/A/B/0.png has 60000000 bytes, but may have 1056576 at most"):
        omniglot.load(DataConfig(root=str(tmp_path)), *HALVES)


def test_a_zip_that_is_too_large(tmp_path: Path) -> None:
    for split in ("images_background", "images_evaluation"):
        with (tmp_path / f"{split}.zip").open("wb") as file:
            file.truncate(10**9)
    with refused("images_background.zip has 1000000000 bytes, but may have 67108864 at most"):
        load(DataConfig(root=str(tmp_path)))


# --- pickles ----------------------------------------------------------------------------------------------------------

TEXT = b"X" + (MB).to_bytes(4, "little") + b"x" * MB + b"X\x06\x00\x00\x00latin1\x86q\x01R"
AGAIN = b"h\x00h\x01R"
PICKLES = {
    "a length beyond the end": b"\x80\x04}\x8c\x01a\x8e" + (10**15).to_bytes(8, "little") + b"xs.",
    "a place beyond the end": b"\x80\x02}r" + (2**24).to_bytes(4, "little") + b".",
    "one text made bytes often": b"\x80\x02}K\x01(c_codecs\nencode\nq\x00" + TEXT + AGAIN * 40 + b"ls.",
    "tuples in tuples": b"\x80\x02}" + b")" + b"\x85" * 20_000 + b"K\x01s.",
    "more objects than there can be": b"\x80\x02}K\x01(" + b"]" * 50_000 + b"ls.",
}


@pytest.mark.parametrize("attack", PICKLES)
def test_pickles_that_ask_for_more_than_they_are(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_STEPS", 40_000, raising=False)
    monkeypatch.setattr(pickles, "MAX_TUPLES", 10_000, raising=False)
    content = io.BytesIO(PICKLES[attack])
    with refused("the file is"):
        read_pickle(content, "the file", "get another", 10 * MB)


def test_a_pickle_that_is_too_large() -> None:
    with refused("the file has 21 bytes, but may have 16 at most: get another."):
        read_pickle(io.BytesIO(pickle.dumps({"a": 1})), "the file", "get another", 16)
