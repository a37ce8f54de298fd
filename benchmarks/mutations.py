"""Files and command lines that are nearly right: what `robustness.py` tries on kcciol. The n-th is always the same."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from kcciol.files.tensors import checksum, sealed, unsealed

EXTREME: list[Any] = [None, True, -1, 0, 1, 2**31, 2**63, 10**30, -0.5, 1e308, float("nan"), float("inf"), ""]
EXTREME += ["x" * 5000, "\x1b[2J\n", [], {}, [[[]]], {"a": {"b": 1}}, [1, "a", None], "ncm", "podnet", 16384, 10**6]
EXTREME += [2**24 - 1, 2**31 - 1, 10**4299, -(10**4299), -(10**7), 1 - 2**31]
NUMBERS = [float("nan"), float("inf"), -1.0, 0.0, 1e30, 1e38]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn]
DTYPES += [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]
WORDS = ["", "-1", "0", "1", "99999999999999999999", "1e308", "nan", "inf", "-inf", "x", "\x1b[31m\n", "--", "-"]
WORDS += ["nowhere", "/", "/dev/null", "/dev/zero", ".", "{pipe}", "{loop}", "{binary}", "{deep}", "{run}", "é\udcff"]
WORDS += ["0x10", "--help", "9" * 5000, "--seed", "--out", "a" * 300, "1000000", "65536", "None", "True", "[1,2]"]

AMOUNTS = ["-1", "0", "1", "3", "7", "64", "1000", "65536", "1000000", "2147483648", "9223372036854775808"]
AMOUNTS += ["1" + "0" * 20, "9" * 5000, "1e-300", "1e-3", "0.5", "1e6", "1e30", "1e308", "nan", "inf", "-inf"]


def draw(seed: int, part: str, number: int) -> random.Random:
    """The random numbers of one mutant."""
    return random.Random(f"{seed} {part} {number}")


def _extreme(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(EXTREME))  # it may be changed further


# --- files ------------------------------------------------------------------------------------------------------------


def mutated(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A file of tensors with something wrong, and what was done to it."""
    change = rng.choice(FILE_CHANGES)
    return change.__name__, change(whole, rng)


def flipped(whole: bytes, rng: random.Random) -> bytes:
    """Some bits of it, more often in the header than in what is after it."""
    data = bytearray(whole)
    size = 8 + struct.unpack("<Q", whole[:8])[0]
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(size if rng.random() < 0.7 else len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(whole: bytes, rng: random.Random) -> bytes:
    """Shorter than it was, or longer."""
    return whole[: rng.randrange(len(whole))] if rng.random() < 0.8 else whole + rng.randbytes(rng.randint(1, 100))


def bent(whole: bytes, rng: random.Random) -> bytes:
    """What the container says of its tensors does not fit them."""
    size = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + size])
    names = [name for name in header if name != "__metadata__"]
    if names and rng.random() < 0.9:
        entry = header[rng.choice(names)]
        key = rng.choice(list(entry))
        odd = [
            [2**40, 2**40],
            [0, 2**62],
            [-1],
            [2**31] * 8,
            [1] * 100,
            "F4",
            "F8_E8M0",
            "C64",
            "BF16",
            "U64",
            [0, 2**63],
        ]
        entry[key] = rng.choice([*odd, *EXTREME])
    else:
        header["__metadata__"] = _extreme(rng)
    text = json.dumps(header).encode()
    return struct.pack("<Q", rng.choice([len(text)] * 9 + [2**63])) + text + whole[8 + size :]


def reworded(whole: bytes, rng: random.Random) -> bytes:
    """Other values in our header, its checksum made right again."""
    metadata, header, tensors = _opened(whole)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        _change(header, rng)
    if rng.random() < 0.05:
        return _closed(metadata, "[" * 3000 + "]" * 3000, tensors)
    return _closed(metadata, json.dumps(header), tensors)


def reshaped(whole: bytes, rng: random.Random) -> bytes:
    """Other tensors, the checksum made right again."""
    metadata, header, tensors = _opened(whole)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not tensors:
            break
        name = rng.choice(sorted(tensors))
        tensors |= {name: _other(tensors[name], rng)}
        if rng.random() < 0.2:
            del tensors[name]
        if rng.random() < 0.1:
            tensors[rng.choice(["", "a", "memory.x", name + "\n"])] = torch.zeros(rng.randint(0, 3))
    return _closed(metadata, json.dumps(header), tensors)


FileChange = Callable[[bytes, random.Random], bytes]
FILE_CHANGES: list[FileChange] = [flipped, cut, bent, reworded, reworded, reworded, reshaped, reshaped]


def _opened(whole: bytes) -> tuple[dict[str, str], Any, dict[str, Tensor]]:
    size = struct.unpack("<Q", whole[:8])[0]
    metadata = json.loads(whole[8 : 8 + size])["__metadata__"]
    return metadata, json.loads(unsealed(metadata, "learner")[0] or ""), load(whole)


def _closed(metadata: dict[str, str], text: str, tensors: dict[str, Tensor]) -> bytes:
    found = {"kcciol": text} if unsealed(metadata)[1] is None else sealed(text, tensors)
    if "learner" in metadata:
        found = {"learner": text, "sum": checksum(text, tensors, shapes=False)}
    try:
        return save({name: tensor.contiguous() for name, tensor in tensors.items()}, found)
    except (SafetensorError, ValueError, RuntimeError):  # what cannot be written need not be read
        return save({}, found)


def _change(value: Any, rng: random.Random) -> None:
    """Something somewhere in a tree of dictionaries and lists."""
    if not isinstance(value, (dict, list)) or not value:
        return
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    tables = [key for key in keys if isinstance(value[key], dict)]
    key = rng.choice(tables if tables and rng.random() < 0.5 else keys)
    deeper = isinstance(value[key], (dict, list)) and value[key]
    if deeper and rng.random() < 0.7:
        _change(value[key], rng)
    elif rng.random() < 0.15:
        del value[key]
    elif isinstance(value, dict) and rng.random() < 0.1:
        value[rng.choice(["", "a", "kind", "version", "\n"])] = _extreme(rng)
    else:
        old = value[key]
        near = [old + 1, old * 2, -old] if type(old) in (int, float) else []
        value[key] = rng.choice(near) if near and rng.random() < 0.3 else _extreme(rng)


def _other(tensor: Tensor, rng: random.Random) -> Tensor:
    what = rng.randrange(6)
    if what == 0:
        return tensor.to(rng.choice(DTYPES))
    if what == 1:
        return tensor[None] if rng.random() < 0.5 else tensor.flatten()
    if what == 2 and tensor.ndim:
        axis = rng.randrange(tensor.ndim)
        return torch.cat([tensor] * rng.choice([2, 3]), axis) if rng.random() < 0.5 else tensor.narrow(axis, 0, 0)
    if what == 3:
        return tensor.new_zeros([rng.choice([0, 1, 2, 7]) for _ in range(rng.randint(0, 3))] + [rng.choice([1, 2**16])])
    if tensor.numel():
        tensor = tensor.clone()
        place, number = rng.randrange(tensor.numel()), rng.choice(NUMBERS)
        if not tensor.is_floating_point():
            number = rng.choice([-1, 0, 1, 100, 127])
        tensor.view(-1)[place] = number
    return tensor


# --- command lines ----------------------------------------------------------------------------------------------------


def misspelt(
    lines: Sequence[Sequence[str]], settings: Sequence[str], rng: random.Random, places: dict[str, Path]
) -> list[str]:
    """A command line with other numbers, a setting more, or words left out, written twice, put elsewhere, replaced.

    settings: flags that lines with a config take.
    """
    words = list(rng.choice(lines))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        numbers = [place for place, word in enumerate(words) if word.replace(".", "").isdigit()]
        how = rng.random()
        if how < 0.4 and numbers:
            words[rng.choice(numbers)] = rng.choice(AMOUNTS)
        elif how < 0.65 and words[:1] in (["train"], ["quickstart"]):
            words += [rng.choice(settings), rng.choice(AMOUNTS)]
        else:
            _disturb(words, rng)
    for name, path in places.items():
        words = [word.replace("{" + name + "}", str(path)) for word in words]
    return words


def _disturb(words: list[str], rng: random.Random) -> None:
    what, place = rng.randrange(6), rng.randrange(len(words)) if words else 0
    if not words or what == 0:
        words.insert(place, rng.choice(WORDS))
    elif what == 1:
        del words[place]
    elif what == 2:
        words.insert(place, words[place])
    elif what == 3:
        words.append(words.pop(place))
    else:
        words[place] = rng.choice(WORDS)
