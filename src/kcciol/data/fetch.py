"""Downloads: the only file of the package that touches the network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from kcciol.atomic import share
from kcciol.data import cifar100, mnist, omniglot
from kcciol.errors import UserError

OMNIGLOT_URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
OMNIGLOT_MD5 = {
    "images_background.zip": "68d2efa1b9178cc56df9314c21c6e718",
    "images_evaluation.zip": "6b91aef0f799c5bb55b94e3f2daec811",
}
CIFAR100_URL = "https://www.cs.toronto.edu/~kriz"
CIFAR100_MD5 = {cifar100.ARCHIVE: "eb9058c3a382ffc7106e4002c42a8d85"}
MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"
MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


def fetch_omniglot(root: Path, base_url: str = OMNIGLOT_URL, md5: dict[str, str] = OMNIGLOT_MD5) -> list[str]:
    """Bring the two official zips into root where they are missing; a line on each for the user.

    A folder of the same name counts as there (`check` looks into it). Nothing that exists is overwritten.
    """
    return [
        _bring(name, digest, base_url, root, omniglot.locate(root, name.removesuffix(".zip")))
        for name, digest in md5.items()
    ]


def fetch_cifar100(root: Path, base_url: str = CIFAR100_URL, md5: dict[str, str] = CIFAR100_MD5) -> list[str]:
    """The same for the official archive."""
    return [_bring(name, digest, base_url, root, cifar100.locate(root)) for name, digest in md5.items()]


def fetch_mnist(root: Path, base_url: str = MNIST_URL, md5: dict[str, str] = MNIST_MD5) -> list[str]:
    """The same for the four files, into MNIST/raw; one that was unpacked already counts as there."""
    folder = root / mnist.FOLDERS[0]
    return [
        _bring(name, digest, base_url, folder, mnist.locate(root, name.removesuffix(".gz")))
        for name, digest in md5.items()
    ]


def _bring(name: str, digest: str, base_url: str, folder: Path, there: Path | None) -> str:
    """Download a file unless it, or what is in it, is there; what was done."""
    if there is None:
        _download(f"{base_url}/{name}", digest, folder / name)
        return f"{name}: downloaded to {folder}"
    if there.is_file() and there.name == name:  # what was unpacked has another hash
        _verify(there, digest)
    return f"{there.name}: already there, {there}"


def _verify(path: Path, digest: str) -> None:
    try:
        with path.open("rb") as file:
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # pooch writes beside the target, checks the md5, and only then renames
        pooch.retrieve(url, known_hash=f"md5:{digest}", fname=path.name, path=path.parent)
        share(path)
    except ValueError:
        raise UserError(f"What came from {url} has not the md5 {digest}: try again, or {by_hand}.") from None
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path.parent} is, or lies in, a file, not a folder: choose another --root.") from None
    except PermissionError:
        raise UserError(f"The folder {path.parent} is not one you may write to: choose another --root.") from None
    except OSError as error:  # also all of requests' errors
        raise UserError(f"{url} could not be downloaded ({_brief(error)}): try again, or {by_hand}.") from None


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
