"""What a result must carry to be believed: command, versions, hardware, time."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kcciol
from kcciol.engine.ranks import Ranks


def record() -> dict[str, Any]:
    """A JSON-ready description of this process and machine."""
    return {
        "command": command(sys.argv),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "versions": {
            "kcciol": kcciol.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "cuda": torch.version.cuda,
        },
        "hardware": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpu_threads": os.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "processes": Ranks.here().count,
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def command(words: list[str]) -> str:
    """A command line without the folders of one machine.

    >>> command(["/home/me/bin/kcciol", "train", "omniglot", "--out", "/home/me/runs/a", "--data.root", "data"])
    'kcciol train omniglot --out a --data.root data'
    """
    program = Path(words[0]).name if words else "kcciol"
    shown = ["kcciol" if program == "__main__.py" else program]
    shown += [Path(word).name if Path(word).is_absolute() else word for word in words[1:]]
    return shlex.join(shown)


def _commit() -> str | None:
    """The commit of the source tree, marked when it has changes; none when kcciol is installed from a package.

    Where the source is copied without its history, the variable KCCIOL_COMMIT can say it.
    """
    if named := os.environ.get("KCCIOL_COMMIT"):
        return named
    return commit_of(Path(kcciol.__file__).parent)


def commit_of(package: Path) -> str | None:
    """The commit of the repository that a package belongs to, marked when anything that git follows has changed there,
    or there are files that it does not follow in the package, or code anywhere; none when it belongs to none."""
    if not any((parent / ".git").exists() for parent in package.parents):
        return None

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", "."):  # it was installed within somebody else's repository
            return None
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no")
        changed = changed or git("status", "--porcelain", "--untracked-files=all", "--", ".", ":(top)*.py")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+changes" if changed else commit
