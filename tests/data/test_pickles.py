from __future__ import annotations

import contextlib
import io
import os
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcciol.data.pickles import read_pickle
from kcciol.errors import UserError


def read(content: bytes) -> dict[str, Any]:
    return read_pickle(io.BytesIO(content), "the file", "get another", 10**6)


def refused(content: bytes) -> str:
    with pytest.raises(UserError) as caught:
        read(content)
    message = str(caught.value)
    assert message.startswith("the file ")
    assert message.endswith(": get another.")
    return message


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["u1", "i8", ">i4", "f4", "?"])
def test_arrays_and_plain_values_come_through(protocol: int, dtype: str) -> None:
    grid = np.arange(24).reshape(2, 3, 4).astype(dtype)
    values = {"c": grid, "fortran": np.asfortranarray(grid), "in": {"a": grid}, "n": [np.int64(7), 2, -1], "t": "ü"}
    found = read(pickle.dumps(values, protocol))
    for array in (found["c"], found["fortran"], found["in"]["a"]):
        np.testing.assert_array_equal(array, grid)
    assert found["c"].dtype == grid.dtype
    assert found["n"] == [7, 2, -1]
    assert found["t"] == "ü"


def python_2(raw: bytes, flags: int = 0) -> bytes:
    """An array of 2 x 2 bytes and some names; texts and bytes are the same type there: opcodes U and T."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        b"(K\x01(K\x02K\x02tcnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK"
        + bytes([flags])
        + b"tb\x89T\x04\x00\x00\x00"
        + raw
        + b"tb"
    )
    return b"\x80\x02}(U\x04data" + array + b"U\x05names](U\x05appleU\x04beareu."


def test_what_python_2_wrote() -> None:
    raw = b"\x00\x7f\xff\x80"
    found = read(python_2(raw))
    assert found["names"] == ["apple", "bear"]
    np.testing.assert_array_equal(found["data"], np.frombuffer(raw, np.uint8).reshape(2, 2))


def test_flags_of_a_crafted_dtype_are_not_believed() -> None:
    """numpy would: with all flags set it takes the bytes of the file for addresses of objects."""
    found = read(python_2(b"abcd", flags=63))
    assert not found["data"].dtype.hasobject
    assert found["data"].tolist() == [[97, 98], [99, 100]]


@pytest.mark.parametrize("function", [os.system, eval, getattr, np.load, np.frombuffer])
def test_functions_are_refused_and_not_called(function: Callable[..., object], tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    attack = Call(function, f"touch {victim}")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert function.__name__ in refused(pickle.dumps({"data": attack}, protocol))
    assert not victim.exists()


def test_dotted_names_do_not_lead_out() -> None:
    attack = b"\x80\x04\x8c\x05numpy\x8c\x0adtype.type\x93."
    assert "dtype.type" in refused(attack)
    assert [op.name for op, _, _ in pickletools.genops(attack)][-2:] == ["STACK_GLOBAL", "STOP"]


@pytest.mark.parametrize("values", [np.array([object]), np.array(["text"]), np.zeros(2, "u1,u1"), np.zeros(2, "M8[s]")])
def test_only_arrays_of_numbers(values: Any) -> None:
    refused(pickle.dumps({"data": values}))


@pytest.mark.parametrize("codec", ["rot13", "utf-8", "zlib"])
def test_bytes_are_latin_1_only(codec: str) -> None:
    attack = b"\x80\x02}U\x01ac_codecs\nencode\n(U\x01xU" + bytes([len(codec)]) + codec.encode() + b"tRs."
    assert repr(codec) in refused(attack)


def test_every_truncation_is_refused() -> None:
    content = pickle.dumps({"data": np.arange(40, dtype=np.uint8), "labels": [1, 2, 3]}, 2)
    for length in range(len(content)):
        refused(content[:length])


def test_damage_is_refused_or_harmless() -> None:
    content = pickle.dumps({"data": np.arange(40, dtype=np.uint8), "labels": [1, 2, 3]}, 4)
    for position in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            with contextlib.suppress(UserError, MemoryError):  # never anything else
                read(bytes(damaged))


def test_no_dictionary() -> None:
    assert "does not hold a dictionary" in refused(pickle.dumps([1, 2]))
