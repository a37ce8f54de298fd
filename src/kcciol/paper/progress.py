"""What is said on the way, to a terminal or a log: a line each, which may hold the names of files."""

from __future__ import annotations

import errno
import sys
import traceback

from kcciol.errors import visible

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
REFUSED = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)


def say(line: str) -> None:
    """How far things are."""
    print(visible(line), flush=True)


def warn(line: str) -> None:
    """What goes wrong."""
    print(visible(line), file=sys.stderr, flush=True)


def is_full(error: Exception) -> bool:
    """Whether the disk takes no more, whatever is made."""
    return isinstance(error, OSError) and error.errno in FULL


def reason(error: Exception) -> str:
    """Why something failed; with a traceback, unless none would help: the disk is full, or the folder another's."""
    if isinstance(error, OSError) and error.errno in (*FULL, *REFUSED):
        return str(error)
    for line in traceback.format_exc().splitlines():
        warn(line)
    return f"{type(error).__name__}: {error}"
