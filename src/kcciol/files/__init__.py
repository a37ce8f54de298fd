"""Our own files: each is written whole or not at all, and read with suspicion.

What is not whole, not ours or out of proportion is a `UserError`, whoever made it. Files of tensors are in
`kcciol.files.tensors`: commands that need none do not wait for torch.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kcciol.errors import UserError, lacks_memory, quoted, visible
from kcciol.files.regular import Refused, open_regular, sentence

try:
    import fcntl
except ImportError:  # not on Windows, where everyone has every lock
    fcntl = None  # type: ignore[assignment]

LARGEST = 2**32  # bytes of a file that is read; the variable KCCIOL_LARGEST_FILE says another number
LARGEST_TEXT = 2**26  # of JSON
MOST_VALUES = 2**21  # in it, each of which takes many times its bytes
DEEPEST = 16  # tables within tables
_PART = re.compile(r"\.(.+)\.[0-9a-f]{8}\.part")


# --- appearing whole --------------------------------------------------------------------------------------------------


def _lock(file: IO[bytes], wait: bool = False) -> bool | None:
    """Whether this process now holds the lock of an open file; None where the system has no such locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """Hold a lock file while the block runs: False when another process does. It ends with the process that holds it;
    where the system has no such locks, everyone has it."""
    with _open_to_add(path) as file:
        yield _lock(file) is not False


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the place of `path` when the block ends well, else it is removed.

    What a process that was killed left of an earlier attempt goes too: its part is no longer locked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "note.txt"
    ...     with replacing(target) as part:
    ...         _ = part.write_text("whole")
    ...     [entry.name for entry in Path(folder).iterdir()]
    ['note.txt']
    """
    with contextlib.suppress(RuntimeError):  # so a link that leads to itself is told of, by some versions of Python
        path = path.resolve()  # through a link, the file it leads to is what is replaced
    if path.is_symlink():
        raise UserError(f"{path} is a link that leads to itself: name a file.")
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file, so it cannot be written over: name a file.")
    remove_stale_parts(path.parent, path.name)
    part, lock = _new_part(path)
    try:
        _give_rights(part, path, stat.S_IRUSR | stat.S_IWUSR)  # it must be written first, whatever it is to be
        with lock:
            yield part
            with part.open("rb+") as file:
                os.fsync(file.fileno())  # the name must not come to disk before the contents
            _give_rights(part, path)
            part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        if error.errno and error.filename in (None, str(part)):  # a full disk names no file; the part is unknown to all
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def _give_rights(part: Path, path: Path, more: int = 0) -> None:
    """Those of the file that it takes the place of, where there is one; a new one has the usual rights."""
    with contextlib.suppress(OSError):  # and some systems have none
        part.chmod(stat.S_IMODE(path.stat().st_mode) | more)


def _new_part(path: Path) -> tuple[Path, IO[bytes]]:
    """An empty file beside `path`, locked as long as it is open."""
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = part.open("xb")
        _lock(file, wait=True)
        if part.exists():  # else it was swept before it could be locked
            return part, file
        file.close()


def _sync_folder(folder: Path) -> None:
    """Bring names to disk."""
    with contextlib.suppress(OSError):  # some systems cannot open a folder
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def remove_stale_parts(folder: Path, name: str | None = None) -> None:
    """Remove the parts of files (of all, or of the one of this name) whose writers were killed."""
    with contextlib.suppress(OSError):
        for part in folder.iterdir():
            found = _PART.fullmatch(part.name)
            if found is None or (name is not None and found[1] != name):
                continue
            with contextlib.suppress(OSError), open_regular(part) as file:
                if _lock(file):  # without locks a part that is being written cannot be told from one that is not
                    part.unlink()


# --- reading with suspicion -------------------------------------------------------------------------------------------


def read_bytes(path: Path, kind: str, error_type: type[UserError] = UserError, largest: int | None = None) -> bytes:
    """All of a file, at once: another process may put a newer one in its place meanwhile."""
    with opened(path, kind, error_type, largest) as (file, size):
        return file.read(size)


@contextmanager
def opened(
    path: Path, kind: str, error_type: type[UserError] = UserError, largest: int | None = None
) -> Iterator[tuple[IO[bytes], int]]:
    """A file to read, with its size; what goes wrong while the block reads is told of too."""
    if os.path.isdir(path):  # noqa: PTH112  (unlike `Path.is_dir`, it raises nothing)
        raise error_type(f"{path} is a folder: name a {kind} that lies in it.")
    try:
        with open_regular(path, largest_file() if largest is None else largest) as file, enough_memory(path, kind):
            yield file, os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise error_type(f"There is no {kind} {path}.") from None
    except OSError as error:
        remedy = "; for a file of tensors KCCIOL_LARGEST_FILE may say more" if error.errno == errno.EFBIG else ""
        raise UserError(f"{sentence(path, error, kind)}{remedy}.") from None


@contextmanager
def enough_memory(path: Path, kind: str) -> Iterator[None]:
    """Say that there is too little where the block cannot have what it takes to hold a file."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise UserError(f"There is not enough memory for the {kind} {path}: use a smaller one.") from None


def largest_file() -> int:
    """Bytes that a file of tensors may have: what the environment variable KCCIOL_LARGEST_FILE says, else 4 GiB."""
    said = os.environ.get("KCCIOL_LARGEST_FILE", "") or str(LARGEST)
    if not (said.isascii() and said.isdigit() and len(said) < 20):
        raise UserError(f"KCCIOL_LARGEST_FILE is {quoted(said)}, but must be a number of bytes, such as {LARGEST}.")
    return int(said)


def path_of(path: str | Path) -> Path:
    """What names a file."""
    try:
        if isinstance(path, (str, Path)) and b"\0" not in os.fsencode(path):
            return Path(path)
    except UnicodeEncodeError:  # text that no file system has
        pass
    raise UserError(f"{quoted(path)} is not the name of a file.")


def read_text(path: Path, kind: str = "file", errors: str = "strict", largest: int = LARGEST_TEXT) -> str:
    """A text file of so many bytes at most; errors are what `bytes.decode` does with bytes that are no text."""
    try:
        return read_bytes(path, kind, largest=largest).decode(errors=errors).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(f"The {kind} {path} cannot be read ({error}).") from None


def read_json(path: Path, kind: str = "file") -> Any:
    """A value that `write_json` has written."""
    try:
        return parse_json(read_text(path, kind))
    except ValueError as error:
        raise UserError(f"The {kind} {path} is damaged ({shortened(error)}): use another copy.") from None


def parse_json(text: str | bytes, levels: int = DEEPEST, **parsers: Any) -> Any:
    """The value of a text that may be hostile: what is no JSON, or too deep, is a ValueError. The parsers are those
    that `json.loads` takes."""
    if isinstance(text, bytes):
        text = text.decode()
    if (values := values_in(text.encode(errors="surrogatepass"))) > MOST_VALUES:  # before memory is taken
        raise ValueError(f"it holds {values:,} values")
    try:
        value = json.loads(text, **parsers)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    require_shallow(value, levels)
    return value


def values_in(text: bytes) -> int:
    """How many values a text of JSON holds, at most: the signs outside of strings before which there may be one.

    >>> values_in(b'{"a": [1, 2], "b, c": "\\\\\\", [[["}')
    4
    """
    text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    found, inside = 0, 0
    for first in range(0, len(text), 2**16):  # in parts, since each piece of text takes more than its bytes
        pieces = text[first : first + 2**16].split(b'"')
        outside = b"".join(pieces[inside::2])
        found += sum(map(outside.count, (b",", b"[", b"{")))
        inside ^= (len(pieces) - 1) & 1
    return found


def require_shallow(value: Any, levels: int = DEEPEST) -> None:
    """Refuse tables within tables within tables, which would go beyond the stack of whoever reads them."""
    if isinstance(value, (dict, list)):
        if not levels:
            raise ValueError("it is nested too deeply")
        for part in value.values() if isinstance(value, dict) else value:
            require_shallow(part, levels - 1)


def shortened(value: object) -> str:
    return quoted(str(value))[1:-1]


# --- writing text -----------------------------------------------------------------------------------------------------


def require_file(path: Path, *endings: str) -> None:
    """Say before the work, not after it, that a result cannot be written there."""
    if os.path.isdir(path):  # noqa: PTH112
        raise UserError(f"The result cannot be written to {path}: that is a folder.")
    if path.suffix not in endings:
        raise UserError(f"The result cannot be written to {path}: name a file that ends in {' or '.join(endings)}.")
    require_place(path)


def require_place(path: Path) -> None:
    """The same for a file of any name."""
    folder = path.absolute().parent
    if not os.path.isdir(folder):  # noqa: PTH112
        raise UserError(f"The file {path} cannot be written: there is no folder {folder}.")
    if not os.access(folder, os.W_OK):
        raise UserError(f"The file {path} cannot be written: {folder} is not a folder one may write to.")


def require_json(path: Path) -> None:
    """The same for JSON."""
    require_file(path, ".json")


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON; numbers that are not finite have no place in it."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def append_json(path: Path, value: Any) -> None:
    """Add a value to a file of lines of JSON."""
    with _open_to_add(path) as file:
        file.write(json.dumps(value).encode() + b"\n")


def _open_to_add(path: Path) -> IO[bytes]:
    """A regular file, made if need be."""
    try:
        return open_regular(path, None, "ab")
    except Refused as error:
        raise UserError(f"{visible(path)} {error.strerror} and written: remove it.") from None
