"""Files appear whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kcciol.errors import UserError


def share(path: Path) -> None:
    """Give a file the rights that new files have; some libraries make theirs readable by the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold a lock file while the block runs: False when another process does. It ends with the process that holds it;
    where the system has no such locks, everyone has it."""
    try:
        import fcntl
    except ImportError:
        yield True
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except BlockingIOError:
            mine = False
        except OSError:  # a file system without locks
            mine = True
        yield mine


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` when the block ends well, else it is removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "note.txt"
    ...     with replacing(target) as part:
    ...         _ = part.write_text("whole")
    ...     [entry.name for entry in Path(folder).iterdir()]
    ['note.txt']
    """
    path = path.resolve()  # through a link, the file it leads to is what is replaced
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file, so it cannot be written over: name a file.")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())  # the name must not come to disk before the contents
        part.replace(path)
    except OSError as error:
        if error.errno and error.filename in (None, str(part)):  # a full disk names no file; the part is unknown to all
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def require_file(path: Path, *endings: str) -> None:
    """Say before the work, not after it, that a result cannot be written there."""
    if path.is_dir():
        raise UserError(f"The result cannot be written to {path}: that is a folder.")
    if path.suffix not in endings:
        raise UserError(f"The result cannot be written to {path}: name a file that ends in {' or '.join(endings)}.")
    require_place(path)


def require_place(path: Path) -> None:
    """The same for a file of any name."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"The file {path} cannot be written: there is no folder {folder}.")
    if not os.access(folder, os.W_OK):
        raise UserError(f"The file {path} cannot be written: {folder} is not a folder one may write to.")


def require_json(path: Path) -> None:
    """The same for JSON."""
    require_file(path, ".json")


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON; numbers that are not finite have no place in it."""
    with replacing(path) as part:
        part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
