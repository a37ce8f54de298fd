"""Files of a data set, lying in a folder or inside a zip, read the same way; whatever is hostile is refused."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Protocol

from kcciol.errors import UserError, quoted, visible
from kcciol.files import regular
from kcciol.files.regular import open_regular, read_regular, sentence

LITTER = frozenset({"thumbs.db", "desktop.ini"})  # left behind by file browsers, beside the hidden files
MEND = "mend or remove it"


@contextmanager
def _as_user_error(path: Path | str, remedy: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"There is no file {quoted(str(path))[1:-1]}.") from None
    except OSError as error:
        raise UserError(f"{sentence(path, error)}: {remedy}.") from None


def open_data(path: Path | str, remedy: str = MEND, limit: int | None = None) -> BufferedReader:
    """A file of a data set that has at most `limit` bytes, open for reading."""
    with _as_user_error(path, remedy):
        return open_regular(path, limit)


def read_whole(path: Path | str, limit: int, remedy: str = MEND) -> bytes:
    """All bytes of a file that has at most `limit` of them."""
    with _as_user_error(path, remedy):
        return read_regular(path, limit)


def require_size(name: str, size: int, limit: int, remedy: str) -> None:
    """Refuse what would unpack to more than it can be."""
    with _as_user_error(name, remedy):
        regular.require_size(name, size, limit)


class Bounded:
    """A stream that ends in an error after so many bytes, for what unpacks to more than it can be."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._left = limit

    def read(self, count: int) -> bytes:
        data = self._stream.read(count)
        self._left -= len(data)
        if self._left < 0:
            raise OSError(f"it unpacks to more than {self._limit} bytes")
        return data


class ImageFile(Protocol):
    """What a decoder needs of a file."""

    @property
    def label(self) -> str:
        """The file's name in messages."""

    @property
    def stamp(self) -> str:
        """Differs when the file's content does; does not depend on the folder that the file lies in."""

    def read(self, limit: int) -> bytes:
        """All bytes; a file that cannot be read, or has more of them than the limit, is a UserError."""


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A file of its own."""

    path: str

    @property
    def label(self) -> str:
        return visible(self.path)

    @property
    def stamp(self) -> str:
        with _as_user_error(self.path, MEND):
            status = regular.status(self.path)
        return f"{os.path.basename(self.path)} {status.st_size} {status.st_mtime_ns}"  # noqa: PTH119

    def read(self, limit: int) -> bytes:
        return read_whole(self.path, limit)


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file inside an open zip, read without unpacking."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo

    @property
    def label(self) -> str:
        return visible(f"{self.archive.filename}/{self.info.filename}")

    @property
    def stamp(self) -> str:
        return f"{self.info.filename} {self.info.file_size} {self.info.CRC}"

    def read(self, limit: int) -> bytes:
        size = self.info.file_size
        require_size(self.label, size, limit, "get a new copy of the zip")
        try:
            if self.info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("a compression that kcciol does not read")  # of the others, pieces have no bound
            with self.archive.open(self.info) as file:
                return file.read(size)  # a size must be said: without one, all that is packed comes before it is cut
        except Exception as error:  # zipfile lets through what the decompressors raise
            raise UserError(
                f"The image {self.label} cannot be read ({error}): the zip is damaged, get a new copy of it."
            ) from None


def folders(where: Path) -> list[str]:
    """The names of the folders in a folder, sorted, hidden ones left out."""
    return sorted(name for name, is_folder in _entries(where) if is_folder)


def plain_files(where: Path) -> list[str]:
    """The names of all that is in a folder and no folder itself, sorted, hidden files and litter left out.

    A broken link counts as a file: reading it then fails with its name, where leaving it out would hide it.
    """
    return sorted(name for name, is_folder in _entries(where) if not is_folder and name.lower() not in LITTER)


def _entries(where: Path) -> list[tuple[str, bool]]:
    """Name, and whether it is a folder."""
    try:
        with os.scandir(where) as entries:
            return [(e.name, _is_folder(e)) for e in entries if not e.name.startswith(".")]
    except OSError as error:
        raise UserError(
            f"The folder {visible(where)} cannot be read ({error.strerror}): check the path and its rights."
        ) from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


@dataclass(frozen=True)
class ClassFiles:
    """A class before decoding."""

    name: str
    files: Sequence[ImageFile]


def fingerprint(classes: Iterable[ClassFiles]) -> str:
    """Sixteen hexadecimal digits that change when a class's name or any of its files does."""
    digest = hashlib.sha256()
    for c in classes:
        for line in (f"class {c.name}", *(file.stamp for file in c.files)):
            digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()[:16]
