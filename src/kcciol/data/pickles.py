"""Pickles that other people's data come in, read without running what is in them.

A pickle is a small program, which may call any function there is. Here it can make dictionaries, lists, texts, numbers
and arrays of numbers, and nothing else. It does not even get hold of numpy's own types, as a crafted dtype can make
numpy follow bytes of the file as addresses: stand-ins take what the file says of an array, and check it.
"""

from __future__ import annotations

import os
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from kcciol.data.files import require_size
from kcciol.errors import UserError

MAX_STEPS = 2_000_000  # that make an object each; CIFAR-100's training file has 200,000
MAX_TUPLES = 100_000  # one in another, Python follows them by recursion


class _Refused(Exception):
    """What the pickle asks for is not data."""


class _Dtype:
    """Stands in for numpy.dtype: whole numbers, floating-point numbers and truth values only."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch("b1|[iu][1248]|f[248]", code):
            raise _Refused(f"an array of the type {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands in for numpy.ndarray; the contents come after it, by __setstate__."""

    value: npt.NDArray[Any] | None = None

    def __init__(self, encoded: Callable[[bytes | str], bytes]) -> None:
        self._encoded = encoded

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes | str]) -> None:
        _, shape, dtype, fortran, raw = state
        self.value = np.frombuffer(self._encoded(raw), dtype.dtype).reshape(shape, order="F" if fortran else "C")


class _ExactFile:
    """A file that refuses to be asked for more than is in it, before memory is taken for that."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left = file, size

    def read(self, count: int) -> bytes:
        if not 0 <= count <= self.left:
            raise EOFError("it ends too early")
        self.left -= count
        return self.file.read(count)

    def readline(self) -> bytes:
        line = self.file.readline()
        self.left -= len(line)
        return line


class _Reader(pickle.Unpickler):
    def __init__(self, file: _ExactFile) -> None:
        self._unencoded = file.left  # characters that may still become bytes: those of the file, each once
        super().__init__(file, encoding="latin1")
        self._known: dict[tuple[str, str], Callable[..., object]] = {
            ("numpy", "dtype"): _Dtype,
            ("numpy", "ndarray"): _not_called,
            ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(self._encoded),
            ("numpy.core.multiarray", "scalar"): self._scalar,
            ("numpy.core.numeric", "_frombuffer"): self._frombuffer,
            ("_codecs", "encode"): self._encode,
        }

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy._core."):  # what numpy 2 calls numpy.core
            module = module.replace("_core", "core", 1)
        if (module, name) not in self._known:
            raise _Refused(f"{module}.{name}")
        return self._known[module, name]

    def _frombuffer(self, raw: bytes, dtype: _Dtype, shape: tuple[int, ...], order: Any) -> _Array:
        array = _Array(self._encoded)
        array.value = np.frombuffer(raw, dtype.dtype).reshape(shape, order=order)
        return array

    def _scalar(self, dtype: _Dtype, raw: bytes | str) -> int | float | bool:
        number: int | float | bool = np.frombuffer(self._encoded(raw), dtype.dtype)[0].item()
        return number

    def _encode(self, text: str, encoding: str) -> bytes:
        """Stands in for _codecs.encode, by which old protocols write bytes."""
        if encoding != "latin1":
            raise _Refused(f"the encoding {encoding!r}")
        return self._encoded(text)

    def _encoded(self, raw: bytes | str) -> bytes:
        if isinstance(raw, bytes):
            return raw
        self._unencoded -= len(raw)  # text where Python 2 wrote the file
        if self._unencoded < 0:
            raise _Refused("more bytes than it has")
        return raw.encode("latin-1")


def _not_called(*_: object) -> None:
    """Stands in for numpy.ndarray where that is only named."""
    raise _Refused("an array without contents")


def read_pickle(file: IO[bytes], label: str, remedy: str, limit: int) -> dict[str, Any]:
    """The dictionary in a file of Python 2 or 3, arrays as numpy's; label and remedy are for messages.

    file: one that can be read twice. limit: bytes that it may have.
    """
    size = file.seek(0, os.SEEK_END)
    require_size(label, size, limit, remedy)
    try:
        file.seek(0)
        _limit_objects(_ExactFile(file, size))
        file.seek(0)
        values = _Reader(_ExactFile(file, size)).load()
    except _Refused as refused:
        raise UserError(
            f"{label} is refused, because it asks for {refused}, which data have no need of: {remedy}."
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle raises anything: EOFError, KeyError, TypeError, ...
        raise UserError(f"{label} is not a whole pickle file ({error or type(error).__name__}): {remedy}.") from None
    if not isinstance(values, dict):
        raise UserError(f"{label} does not hold a dictionary: {remedy}.")
    return {str(key): _plain(value) for key, value in values.items()}


def _limit_objects(file: _ExactFile) -> None:
    """Refuse what takes far more memory than the file has bytes; numbers and texts are only walked over."""
    tuples = 0
    for number, (opcode, argument, _) in enumerate(pickletools.genops(file)):  # type: ignore[arg-type]
        tuples += "TUPLE" in opcode.name
        if number >= MAX_STEPS or tuples > MAX_TUPLES:
            raise _Refused(f"more than {MAX_TUPLES if tuples > MAX_TUPLES else MAX_STEPS} objects")
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > MAX_STEPS:
            raise _Refused(f"room for {argument} objects")


def _plain(value: Any) -> Any:
    """The value with arrays in place of their stand-ins, those in a dictionary of it too."""
    if isinstance(value, dict):
        return {key: inner.value if isinstance(inner, _Array) else inner for key, inner in value.items()}
    return value.value if isinstance(value, _Array) else value
