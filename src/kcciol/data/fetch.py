"""Downloads: the only file of the package that touches the network."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

from kcciol.data.dataset import Download
from kcciol.data.files import open_data
from kcciol.errors import UserError


def fetch(download: Download, root: Path) -> list[str]:
    """Bring the files into a root where they are missing; a line on each for the user.

    What was in a file, such as a folder unpacked from an archive, counts as there (`check` looks into it). Nothing that
    exists is overwritten.
    """
    folder = root / download.folder
    return [
        _fetch_file(name, digest, download.url, folder, download.there(root, name))
        for name, digest in download.md5.items()
    ]


def _fetch_file(name: str, digest: str, base_url: str, folder: Path, there: Path | None) -> str:
    """Download a file unless it, or what is in it, is there; what was done."""
    if there is None:
        _download(f"{base_url}/{name}", digest, folder / name)
        return f"{name}: downloaded to {folder}"
    if there.is_file() and there.name == name:  # what was unpacked has another hash
        _verify(there, digest)
    return f"{there.name}: already there, {there}"


def _verify(path: Path, digest: str) -> None:
    try:
        with open_data(path) as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check its rights or move it away.") from None
    if found != digest:
        raise UserError(
            f"{path} is not the official file (its md5 is {found}, not {digest}): delete or move it and run again; "
            "nothing was overwritten."
        )


def _download(url: str, digest: str, path: Path) -> None:
    pooch = _pooch()
    by_hand = f"download {url} by other means and put it at {path}"
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # pooch writes beside the target, checks the md5, and only then renames
        pooch.retrieve(url, known_hash=f"md5:{digest}", fname=path.name, path=path.parent)
        _give_usual_rights(path)
    except ValueError:
        raise UserError(f"What came from {url} has not the md5 {digest}: try again, or {by_hand}.") from None
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path.parent} is, or lies in, a file, not a folder: choose another --root.") from None
    except PermissionError:
        raise UserError(f"The folder {path.parent} is not one you may write to: choose another --root.") from None
    except OSError as error:  # also all of requests' errors
        raise UserError(f"{url} could not be downloaded ({_brief(error)}): try again, or {by_hand}.") from None
    finally:
        for folder in made:  # nothing is left of what was not to be had
            with contextlib.suppress(OSError):  # something lies in it
                folder.rmdir()


def _give_usual_rights(path: Path) -> None:
    """Give a file the rights that new files have; pooch makes its own readable by the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def _pooch() -> Any:
    try:
        import pooch
    except ImportError:
        raise UserError("Downloads need pooch: run `pip install 'kcciol[download]'`.") from None
    return pooch


def _brief(error: OSError) -> str:
    """The error in a few words: requests' own text is a chain of objects, but for a server's answer."""
    name = type(error).__name__
    if type(error).__module__.startswith("requests") and name != "HTTPError":
        return {"ConnectionError": "no connection"}.get(name, name)
    return error.strerror or str(error).partition(" for url")[0]
