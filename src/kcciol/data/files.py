"""Image files, lying in a folder or inside a zip, read the same way."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kcciol.errors import UserError

LITTER = frozenset({"thumbs.db", "desktop.ini"})  # left behind by file browsers, beside the hidden files


class ImageFile(Protocol):
    """What a decoder needs of a file."""

    @property
    def label(self) -> str:
        """The file's name in messages."""

    @property
    def stamp(self) -> str:
        """Differs when the file's content does; does not depend on the folder that the file lies in."""

    def read(self) -> bytes:
        """All bytes; a file that cannot be read is a UserError."""


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A file of its own."""

    path: str

    @property
    def label(self) -> str:
        return self.path

    @property
    def stamp(self) -> str:
        try:
            status = os.stat(self.path)  # noqa: PTH116  (a Path for each of thirty thousand files is slow)
        except OSError as error:
            raise UserError(self._unreadable(error)) from None
        return f"{os.path.basename(self.path)} {status.st_size} {status.st_mtime_ns}"  # noqa: PTH119

    def read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123
                return file.read()
        except OSError as error:
            raise UserError(self._unreadable(error)) from None

    def _unreadable(self, error: OSError) -> str:
        return f"The file {self.path} cannot be read ({error.strerror}): mend or remove it."


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file inside an open zip, read without unpacking."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo

    @property
    def label(self) -> str:
        return f"{self.archive.filename}/{self.info.filename}"

    @property
    def stamp(self) -> str:
        return f"{self.info.filename} {self.info.file_size} {self.info.CRC}"

    def read(self) -> bytes:
        try:
            return self.archive.read(self.info)
        except Exception as error:  # zipfile lets through what the decompressors raise
            raise UserError(
                f"The image {self.label} cannot be read ({error}): the zip is damaged, get a new copy of it."
            ) from None


def folders(where: Path) -> list[str]:
    """The names of the folders in a folder, sorted, hidden ones left out."""
    return sorted(e.name for e in _entries(where) if e.is_dir())


def plain_files(where: Path) -> list[str]:
    """The names of all that is in a folder and no folder itself, sorted, hidden files and litter left out.

    A broken link counts as a file: reading it then fails with its name, where leaving it out would hide it.
    """
    return sorted(e.name for e in _entries(where) if not e.is_dir() and e.name.lower() not in LITTER)


def _entries(where: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(where) as entries:
            yield from (e for e in entries if not e.name.startswith("."))
    except OSError as error:
        raise UserError(
            f"The folder {where} cannot be read ({error.strerror}): check the path and its rights."
        ) from None


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
