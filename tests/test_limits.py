"""What files may take of memory and time, and what they may ask for."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from kcciol.cli import main
from kcciol.encoders import run as encoders
from kcciol.errors import UserError
from kcciol.files import MOST_VALUES, read_json, values_in
from kcciol.files.tensors import MOST_TENSORS, Format, read_tensors, write_tensors
from kcciol.learner import OnlineLearner
from kcciol.learners.knowledge import SEEN
from kcciol.serialization import LARGEST_CONFIG
from tests.saved import WIDTH, kept, rewritten

SECONDS = 10.0  # a busy machine is no failure
LONG = ".".join("a" * 9_000)  # a key that would be as many tables


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5000 + "]" * 5000,
        "seed = " + "9" * 5000,
        "seed = 0x" + "f" * 5000,
        ".".join("a" * 100_000) + " = 1",
        f"x = {{ {' . '.join('a' * 100_000)} = 1 }}",
        "[" + ".".join(["'=#'"] * 50_000) + "]",
        f'"\\"".{LONG}."\\"" = 1',
        f'a = {{ b = """\n""", {LONG} = "x" }}',
        f'a = """b"""""\n{LONG} = 1',
        f"a = '''\n\"'''\n{LONG} = 1",
        f"a = 1 # it's\n{LONG} = 'x'",
        f'a = """b \\\n c"""\n{LONG} = 1',
        'a = """' + '\\"""\n' * 20_000 + "\\",
        "#" * (LARGEST_CONFIG + 1),
    ],
    ids=[
        *("lists", "digits", "hexadecimal digits", "key", "key in a table", "name of a table"),
        *("key among texts", "key after lines", "key after quotes", "key after a quote", "key after a comment"),
        *("key after a line that goes on", "quotes", "large"),
    ],
)
def test_odd_toml_is_a_sentence(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.toml").write_text(text)
    began = time.perf_counter()
    tracemalloc.start()
    try:
        assert main(["train", str(tmp_path / "odd.toml"), "--out", str(tmp_path / "x")]) == 2
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - began < SECONDS
    said = capsys.readouterr().err
    assert LONG not in text or "nested too deeply" in said
    assert len(text) <= LARGEST_CONFIG or "may have 1048576 at most" in said
    assert said.startswith("kcciol: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("load", [OnlineLearner.load, encoders.load])
@pytest.mark.parametrize("start", ["nothing", "a learner", "another's"])
def test_what_is_not_ours_is_refused_before_memory_is_taken(
    load: Callable[[Path], object], start: str, tmp_path: Path
) -> None:
    path = kept(tmp_path)
    if start == "nothing":
        path.write_bytes(b"")
    elif start == "another's":
        save_file({"x": torch.ones(3)}, path)
    os.truncate(path, 2**31)  # which takes no room on a disk
    tracemalloc.start()
    try:
        with pytest.raises(UserError):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "header",
    [
        b"{" + rb"\"" * 1_000_000,
        b'{"' + rb"\"" * 1_000_000,
        b'{"__metadata__": {"kcciol": "' + b"[1, " * 2**20 + b'"}}',
        b"{" + b'"a": [1, {}], ' * 2**18 + b"}",
    ],
    ids=["quotes", "a text without end", "a text of many values", "many entries"],
)
@pytest.mark.parametrize("load", [OnlineLearner.load, encoders.load])
def test_a_header_that_would_take_long_is_refused_at_once(
    load: Callable[[Path], object], header: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "long.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    began = time.perf_counter()
    with pytest.raises(UserError, match="damaged or truncated"):
        load(path)
    assert time.perf_counter() - began < SECONDS


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('["' + "," * 200_000 + '", 1, {}]', 4),
        ('["' + "," * 2**16 + '", "' + "[" * 2**16 + '"]', 2),
        (r'["\\", ",,,", [1]]', 4),
        (r'["\"", ",,,", "\\\"", ["]"]]', 5),
        ('["' + r"\\" * 2**16 + '", 1, 2]', 3),
        ("[[[[", 4),
        ("", 0),
    ],
)
def test_values_are_counted_outside_of_texts(text: str, count: int) -> None:
    assert values_in(text.encode()) == count


def test_a_file_of_more_tensors_than_can_be_read_is_not_written(tmp_path: Path) -> None:
    path, form = tmp_path / "many.safetensors", Format("thing", ())
    most = {f"t{i}": torch.zeros(1, 1, 1, 1, 1) for i in range(MOST_TENSORS)}
    write_tensors(path, form, {}, most)
    assert len(read_tensors(path, form)[1]) == MOST_TENSORS
    with pytest.raises(UserError, match=r"would hold 4,097 tensors, and 4,096 are the most"):
        write_tensors(path, form, {}, most | {"more": torch.zeros(1)})
    assert len(read_tensors(path, form)[1]) == MOST_TENSORS
    save_file({f"t{i}": torch.zeros(1) for i in range(16 * MOST_TENSORS)}, path)
    with pytest.raises(UserError, match="speaks of too many tensors"):
        read_tensors(path, form)


def test_json_of_too_many_values_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text("[" + "[]," * MOST_VALUES + "0]")
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"holds [\d,]+ values"):
            read_json(path)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: you tried to allocate 9 bytes")])
@pytest.mark.parametrize("where", ["kcciol.files.tensors.deserialize", "kcciol.learner.load_knowledge"])
def test_too_little_memory_for_a_learner_is_a_sentence(
    where: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise error

    path = kept(tmp_path)
    monkeypatch.setattr(where, none)
    with pytest.raises(UserError, match="not enough memory for the learner"):
        OnlineLearner.load(path)


def test_a_file_that_names_classes_nobody_has_seen_is_refused(tmp_path: Path) -> None:
    def unsee(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        tensors[SEEN][0, 1] = False

    path = kept(tmp_path, "online")
    rewritten(path, unsee)
    with pytest.raises(UserError, match="labels of classes that it has not seen"):
        OnlineLearner.load(path)


def test_a_learner_that_this_machine_has_no_memory_for_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcciol.learner.machine_bytes", lambda: 1000)
    with pytest.raises(UserError, match=r"cannot be made here: it takes [\d,]+ bytes, of 1,000"):
        OnlineLearner("ridge", WIDTH)


BUSY = [("mer", "batches"), ("gss", "passes"), ("merlin", "updates"), ("hal", "anchor_steps")]


@pytest.mark.parametrize(("name", "setting"), BUSY)
def test_a_file_that_would_keep_one_busy_is_refused(name: str, setting: str, tmp_path: Path) -> None:
    def more(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        metadata["settings"][setting] = 2**31 - 1

    path = kept(tmp_path, name)
    rewritten(path, more)
    with pytest.raises(UserError, match=r"but must be .* at most 10000"):
        OnlineLearner.load(path)


@pytest.mark.parametrize("most", [-1, "x", True, None, 1.5])
def test_what_a_file_may_ask_for_is_a_number(most: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be a number of bytes"):
        OnlineLearner.load(kept(tmp_path), most_extra=most)
