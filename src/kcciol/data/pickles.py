"""Pickles that other people's data come in, read without running what is in them.

A pickle is a small program, which may call any function there is. Here it can make dictionaries, lists, texts, numbers
and arrays of numbers, and nothing else. It does not even get hold of numpy's own types, as a crafted dtype can make
numpy follow bytes of the file as addresses: stand-ins take what the file says of an array, and check it.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from kcciol.errors import UserError


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

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes | str]) -> None:
        _, shape, dtype, fortran, raw = state
        self.value = np.frombuffer(_bytes(raw), dtype.dtype).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _frombuffer(raw: bytes, dtype: _Dtype, shape: tuple[int, ...], order: Any) -> _Array:
    array = _Array()
    array.value = np.frombuffer(raw, dtype.dtype).reshape(shape, order=order)
    return array


def _scalar(dtype: _Dtype, raw: bytes | str) -> int | float | bool:
    number: int | float | bool = np.frombuffer(_bytes(raw), dtype.dtype)[0].item()
    return number


def _encode(text: str, encoding: str) -> bytes:
    """Stands in for _codecs.encode, by which old protocols write bytes."""
    if encoding != "latin1":
        raise _Refused(f"the encoding {encoding!r}")
    return text.encode("latin-1")


def _bytes(raw: bytes | str) -> bytes:
    return raw.encode("latin-1") if isinstance(raw, str) else raw  # text where Python 2 wrote the file


_KNOWN: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy._core."):  # what numpy 2 calls numpy.core
            module = module.replace("_core", "core", 1)
        if (module, name) not in _KNOWN:
            raise _Refused(f"{module}.{name}")
        return _KNOWN[module, name]


def read_pickle(file: IO[bytes], label: str, remedy: str) -> dict[str, Any]:
    """The dictionary in a file of Python 2 or 3, arrays as numpy's; label and remedy are for messages."""
    try:
        values = _Reader(file, encoding="latin1").load()
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


def _plain(value: Any) -> Any:
    """The value with arrays in place of their stand-ins, those in a dictionary of it too."""
    if isinstance(value, dict):
        return {key: inner.value if isinstance(inner, _Array) else inner for key, inner in value.items()}
    return value.value if isinstance(value, _Array) else value
