"""Opening regular files, and nothing that could hang or go on for ever, as a pipe or a device; and not too large ones.

What cannot be is an `OSError`; `sentence` says it in the words of whoever knows what the file was for.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Literal, overload

from kcciol.errors import visible

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class Refused(OSError):
    """A file that the system would open. `strerror` is the rest of a sentence that begins with its name."""


def status(path: Path | str) -> os.stat_result:
    """What the system knows of a regular file."""
    try:
        found = os.stat(path)  # noqa: PTH116  (a Path for each of many files is slow)
    except ValueError as error:  # a name with a zero in it
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    _require_regular(path, found)
    return found


@overload
def open_regular(path: Path | str, limit: int | None = None, mode: Literal["rb"] = "rb") -> BufferedReader: ...
@overload
def open_regular(path: Path | str, limit: int | None, mode: Literal["ab"]) -> BufferedWriter: ...


def open_regular(
    path: Path | str, limit: int | None = None, mode: Literal["rb", "ab"] = "rb"
) -> BufferedReader | BufferedWriter:
    """A regular file of at most so many bytes, open for reading or, made if need be, for adding to it."""
    try:
        status(path)  # a socket cannot be opened, so it is told of before
    except FileNotFoundError:
        if mode == "rb":
            raise
    how = _without_waiting
    file = open(path, "rb", opener=how) if mode == "rb" else open(path, "ab", opener=how)  # noqa: SIM115  (it is given)
    try:
        found = os.fstat(file.fileno())
        _require_regular(path, found)
        if limit is not None:
            require_size(path, found.st_size, limit)
    except BaseException:
        file.close()
        raise
    return file


def read_regular(path: Path | str, limit: int) -> bytes:
    """All bytes of a regular file that has at most `limit` of them."""
    with open_regular(path, limit) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def require_size(path: Path | str, size: int, limit: int) -> None:
    """Refuse, before memory is taken, what is larger than it can be."""
    if size > limit:
        raise Refused(errno.EFBIG, f"has {size} bytes, but may have {limit} at most", str(path))


def sentence(path: Path | str, error: OSError, kind: str = "file") -> str:
    """What is wrong with a file, without a full stop: a remedy may follow."""
    if isinstance(error, Refused):
        return f"{visible(path)} {error.strerror}"
    return f"The {kind} {visible(path)} cannot be read ({error.strerror or error})"


def _require_regular(path: Path | str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")
        raise Refused(errno.EINVAL, f"is {kind}, and only regular files are read", str(path))


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)  # Windows has neither the flag nor the pipes
