"""One stream with labels of any kind."""

from __future__ import annotations

import copy
import enum
import itertools
import json
import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from kcciol.errors import UserError
from kcciol.files.tensors import Format, read_tensors, sealed, unsealed, write_tensors
from kcciol.learner import OnlineLearner, inputs, saving
from kcciol.learner.inputs import LONGEST
from kcciol.learner.saving import FORMAT
from kcciol.learners import LEARNERS
from kcciol.learners.base import Labels
from kcciol.learners.er import ER
from kcciol.learners.knowledge import KIND
from kcciol.learners.model import Head
from kcciol.learners.ncm import NCM, NCMSettings
from kcciol.learners.online import BLOCK
from kcciol.learners.statistics import COUNT
from kcciol.testing.case import equal
from tests.learners.battery import make, sensible

NAMES = [name for name in LEARNERS if sensible(name, "head")]
WIDTH = 5


def examples(count: int = 20) -> list[tuple[list[float], str]]:
    random = np.random.default_rng(0)
    centres = 3 * random.random((4, WIDTH))
    return [((centres[i % 4] + 0.1 * random.random(WIDTH)).tolist(), "abcd"[i % 4]) for i in range(count)]


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_it_goes_on_exactly(name: str, tmp_path: Path) -> None:
    whole, first = OnlineLearner(name, WIDTH), OnlineLearner(name, WIDTH)
    for x, label in examples():
        whole.learn_one(x, label)
    for x, label in examples()[:9]:
        first.learn_one(x, label)
    first.save(tmp_path / "a.safetensors")
    second = OnlineLearner.load(tmp_path / "a.safetensors")
    assert second.classes_ == first.classes_
    for x, label in examples()[9:]:
        second.learn_one(x, label)
    for x, _ in examples(4):
        assert second.scores_one(x) == whole.scores_one(x)
        assert second.predict_one(x) == whole.predict_one(x)
    assert second.memory_bytes() == whole.memory_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_many_are_learned_as_one_after_another(name: str) -> None:
    by_class = sorted(examples(), key=lambda pair: pair[1])
    for stream in (by_class, examples(), [*by_class, *examples(7)]):
        one, many = OnlineLearner(name, WIDTH), OnlineLearner(name, WIDTH)
        for x, label in stream:
            one.learn_one(x, label)
        assert many.learn_many([x for x, _ in stream], (label for _, label in stream)) is many
        assert many.classes_ == one.classes_
        asked = [x for x, _ in examples(8)]
        assert many.predict_many(asked) == [many.predict_one(x) for x in asked]
        for x in asked:
            assert many.scores_one(x) == pytest.approx(one.scores_one(x), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("xs", "labels", "message"),
    [
        ([[0.0] * WIDTH, [0.0] * (WIDTH - 1) + [float("nan")]], ["a", "b"], "index 1 has a value"),
        ([[0.0] * WIDTH] * 2, ["a", ["b"]], "cannot be a label"),
        ([[0.0] * WIDTH] * 2, ["a", "b", "c"], "2 examples, but 3 labels"),
        ([[0.0] * WIDTH] * 2, ["a"], "2 examples, but 1 labels"),
        ([0.0] * WIDTH, ["a"], f"rows of {WIDTH} numbers"),
        ([[0.0] * (WIDTH + 1)] * 2, ["a", "b"], f"rows of {WIDTH} numbers"),
        ([torch.zeros(WIDTH), torch.zeros(WIDTH + 1)], ["a", "b"], f"rows of {WIDTH} numbers each"),
        ([[0.0] * WIDTH, [1e7] * WIDTH], ["a", "b"], "index 1 has a value"),
        (np.ma.masked_array([[1.0] * WIDTH], mask=[[True] + [False] * (WIDTH - 1)]), ["a"], "masked"),
        ([np.ma.masked_array([1.0] * WIDTH, mask=[True] + [False] * (WIDTH - 1))], ["a"], "masked"),
        ([[0.0] * WIDTH], [np.datetime64("NaT")], "cannot be a label"),
        ([[0.0] * WIDTH], [np.datetime64("2026-01-01", "ns")], "cannot be a label"),
        ([[0.0] * WIDTH], [Decimal("NaN")], "cannot be a label"),
        (["text"], ["a"], "must be"),
        ([["1"] * WIDTH], ["a"], "text, dates"),
        ([[b"1"] * WIDTH], ["a"], "text, dates"),
        ([["1", *[2.0] * (WIDTH - 1)]], ["a"], "text, dates"),
        (np.array([["NaT"] * WIDTH], dtype="datetime64[D]"), ["a"], "text, dates"),
        (np.array([["1", *[2.0] * (WIDTH - 1)]], dtype=object), ["a"], "text, dates"),
        ([[0.0] * WIDTH] * 3, "cat", "must be a list of labels"),
        ([[0.0] * WIDTH], None, "must be a list of labels"),
    ],
)
def test_of_many_none_is_learned_if_one_is_bad(xs: Any, labels: Any, message: str) -> None:
    learner = OnlineLearner("online", WIDTH).learn_one([1.0] * WIDTH, "known")
    before = learner.learner.state_dict()
    with pytest.raises(UserError, match=message):
        learner.learn_many(xs, labels)
    assert learner.classes_ == ("known",)
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.learner.state_dict().items())


def test_many_may_be_a_list_of_tensors_or_none_at_all() -> None:
    xs = torch.eye(WIDTH)
    learner = OnlineLearner("ncm", WIDTH).learn_many([], []).learn_many(list(xs), range(WIDTH))
    assert learner.predict_many(list(xs)) == learner.predict_many(xs.numpy()) == list(range(WIDTH))
    assert learner.predict_many([]) == []


def test_one_that_has_diverged_answers_none() -> None:
    learner = OnlineLearner("online", WIDTH).learn_one([1.0] * WIDTH, "a").learn_one([0.0] * WIDTH, "b")
    learner.learner.rows["parameters.weight"][:, :, 0] = torch.nan
    for xs in ([[0.0] * WIDTH, [1.0] * WIDTH], [[1.0] * WIDTH]):
        with pytest.raises(UserError, match="has diverged"):
            learner.predict_many(xs)


def test_large_values_are_learned_together_as_well_as_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LARGEST", float("inf"))
    one, many = (OnlineLearner("online", WIDTH, {"rate": 1e-38}) for _ in range(2))
    xs = 9e18 * (1 - 2 * torch.eye(WIDTH))[[0] * 6 + [1] * 6]  # whose squares add up to more than a float32 can be
    labels = ["a"] * 6 + ["b"] * 6
    for x, label in zip(xs, labels, strict=True):
        one.learn_one(x, label)
    assert many.learn_many(xs, labels).predict_many(xs) == [one.predict_one(x) for x in xs] == labels


def test_several_answers_need_rows() -> None:
    learner = OnlineLearner("ncm", WIDTH).learn_one([1.0] * WIDTH, "known")
    with pytest.raises(UserError, match=f"must be rows of {WIDTH} numbers"):
        learner.predict_many([1.0] * WIDTH)


class Colour(enum.IntEnum):
    RED = 1


class Shape(str, enum.Enum):  # noqa: UP042 (what people have)
    ROUND = "round"


def test_labels_come_back_as_what_they_are_or_are_refused(tmp_path: Path) -> None:
    learner = OnlineLearner("ncm", 1)
    labels = ["text", 7, 2.5, None, True, "a\ud800\n\x1b", 1e308, 2**63 - 1, "x" * LONGEST]
    for number, label in enumerate(labels):
        learner.learn_one([float(number)], label)
        assert learner.predict_one([float(number)]) == label
    learner.learn_one([4.0], 1).learn_one([4.0], 1.0)  # are True
    learner.save(tmp_path / "a")
    again = OnlineLearner.load(tmp_path / "a").classes_
    assert [(type(label), label) for label in again] == [(type(label), label) for label in labels]
    wrong: Any
    for wrong in (["a", "list"], {"a": 1}, ("a", 1), frozenset({3}), Colour.RED, Shape.ROUND, Decimal(1), b"a", 1j):
        with pytest.raises(UserError, match="cannot be a label"):
            learner.learn_one([0.0], wrong)
    refused = (
        (float("nan"), "NaN"),
        (-math.inf, "finite"),
        ("x" * 10**7, "10,000,000"),
        (2**63, "than 2.63"),
        (-(2**63), "than 2.63"),
    )
    for wrong, says in (*refused, (10**5000, "bits")):
        with pytest.raises(UserError, match=says) as raised:
            learner.learn_one([0.0], wrong)
        assert len(str(raised.value)) < 300
    assert list(learner.classes_) == labels


def test_labels_from_tensors_and_arrays_are_the_numbers_they_hold(tmp_path: Path) -> None:
    learner = OnlineLearner("ncm", 1)
    for i, label in enumerate(torch.tensor([4, 4, 9, 9])):
        learner.learn_one([float(i)], label)
    for i, number in enumerate(np.array([4, 9, 9])):
        learner.learn_one([float(i)], number)
    assert learner.classes_ == (4, 9)
    learner.save(tmp_path / "a")
    assert OnlineLearner.load(tmp_path / "a").classes_ == (4, 9)
    several: Any
    for several in (np.array([1, 2]), torch.tensor([1])):
        with pytest.raises(UserError, match="is an array, not one number"):
            learner.learn_one([0.0], several)
    with pytest.raises(UserError, match="NaN"):
        learner.learn_one([0.0], np.float32("nan"))


@pytest.mark.parametrize("x", [[1.0], [1.0] * 6, "text", [1.0, 2.0, float("inf"), 0.0, 0.0], [[1.0], [1.0, 2.0]], None])
def test_a_bad_example_teaches_nothing(x: Any) -> None:
    learner = OnlineLearner("er", WIDTH)
    learner.learn_one([1.0] * WIDTH, "a")
    with pytest.raises(UserError):
        learner.learn_one(x, "b")
    with pytest.raises(UserError):
        learner.predict_one(x)
    assert learner.classes_ == ("a",)
    assert learner.learner.steps == 1


def test_nothing_can_be_predicted_before_something_is_learned() -> None:
    with pytest.raises(UserError, match="Nothing has been learned"):
        OnlineLearner("slda", WIDTH).predict_one([0.0] * WIDTH)


def test_wrong_files_and_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(UserError, match="There is no learner"):
        OnlineLearner.load(path)
    OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a").save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="is damaged or truncated"):
        OnlineLearner.load(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(UserError, match="not a saved learner"):
        OnlineLearner.load(path)
    with pytest.raises(UserError, match="another learner"):
        OnlineLearner("online", 2, NCMSettings())
    with pytest.raises(UserError, match="width is 0"):
        OnlineLearner("ncm", 0)
    with pytest.raises(UserError, match="There is no learner"):
        OnlineLearner("magic", 2)
    width: Any = 2.0
    with pytest.raises(UserError, match=r"width is 2\.0"):
        OnlineLearner("ncm", width)
    with pytest.raises(UserError, match="seed is"):
        OnlineLearner("ncm", 2, seed=2**64)
    for bad in (tmp_path, Path()):
        with pytest.raises(UserError):
            OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a").save(bad)
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a").save(link)
    assert link.is_symlink()
    assert OnlineLearner.load(target).classes_ == ("a",)
    flipped = bytearray(target.read_bytes())
    flipped[-3] ^= 1  # in a tensor
    target.write_bytes(flipped)
    with pytest.raises(UserError, match="is damaged"):
        OnlineLearner.load(target)
    with pytest.raises(UserError, match="cannot be written"):
        OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a").save(tmp_path / "no" / "folder")
    big: Any
    for big in ([10**400, 0], [1j, 0.0]):
        with pytest.raises(UserError, match="must be 2 numbers"):
            OnlineLearner("ncm", 2).learn_one(big, "a")


def test_a_stream_from_numpy_or_torch_is_the_same() -> None:
    one, two = OnlineLearner("er", WIDTH), OnlineLearner("er", WIDTH)
    for x, label in examples():
        one.learn_one(np.array(x), label)
        two.learn_one(torch.tensor(x, requires_grad=True), label).end_task()
    assert one.scores_one(examples()[0][0]) == two.scores_one(examples()[0][0])
    assert isinstance(one.learner, ER)
    assert one.memory_bytes() > 0


@pytest.mark.parametrize("keys", [(3,), (3, 8)])
@pytest.mark.parametrize("name", ["online", "ewc", "gaussian", "slda", "ridge"])
def test_a_long_run_of_a_class_is_learned_in_parts(name: str, keys: tuple[int, ...]) -> None:
    n, random = len(keys), torch.Generator().manual_seed(0)
    one, many = make(name, Head(WIDTH), keys), make(name, Head(WIDTH), keys)
    for label, count in enumerate((3, 3 * BLOCK + 8, BLOCK + 1, 2 * BLOCK)):
        xs = torch.rand(n, count, WIDTH, generator=random)
        for i in range(count):
            one.learn(xs[:, i], np.full(n, label))
        many.learn_class(xs, np.full(n, label))
    states = one.state_dict(), many.state_dict()
    for part, tensor in states[0].items():
        torch.testing.assert_close(states[1][part], tensor, rtol=1e-4, atol=1e-5)


class Frame:
    """What is not an array but can be one, as a table of pandas."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.rows, dtype=dtype)


def test_examples_may_be_of_any_kind_that_holds_numbers() -> None:
    xs = 3 * np.eye(WIDTH)
    expected = list(range(WIDTH))
    kinds: list[Any] = [xs, xs[::-1][::-1], xs.astype(">f4"), xs.astype(np.longdouble), Frame(xs), iter(xs), list(xs)]
    kinds += [torch.tensor(xs), torch.tensor(xs).to_sparse(), [torch.tensor(x) for x in xs], xs.tolist()]
    fixed = xs.copy()
    fixed.flags.writeable = False
    for kind in [*kinds, fixed]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert OnlineLearner("ncm", WIDTH).learn_many(kind, expected).predict_many(xs) == expected
    assert OnlineLearner("ncm", WIDTH).learn_one(Frame(xs[0]), "a").predict_one(torch.tensor(xs[0]).to_sparse()) == "a"


@pytest.mark.parametrize("labels", [{"a", "b"}, {"a": 1, "b": 2}, 7, torch.tensor(3)])
def test_labels_without_an_order_are_refused(labels: Any) -> None:
    with pytest.raises(UserError, match="must be a list of labels"):
        OnlineLearner("ncm", WIDTH).learn_many(np.eye(WIDTH)[:2], labels)


def test_one_that_has_diverged_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.safetensors"
    learner = OnlineLearner("er", WIDTH).learn_one([1.0] * WIDTH, "a").learn_one([0.0] * WIDTH, "b")
    learner.save(path)
    good = path.read_bytes()
    learner.learner.rows["parameters.bias"][:, 0] = torch.nan
    with pytest.raises(UserError, match="has diverged"):
        learner.save(path)
    learner.learner.rows["parameters.weight"][:] = torch.nan
    monkeypatch.setattr(inputs, "LARGEST", float("inf"))
    other = OnlineLearner("slda", WIDTH).learn_many(1e25 * torch.rand(64, WIDTH), ["a"] * 64)
    with pytest.raises(UserError, match="has diverged"):
        other.save(path)
    with pytest.raises(UserError, match="has diverged"):
        learner.scores_one([1.0] * WIDTH)
    assert path.read_bytes() == good


def test_a_saved_learner_can_be_read_by_whoever_may_read_new_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    OnlineLearner("ncm", WIDTH).learn_one([1.0] * WIDTH, "a").save(tmp_path / "mine")
    assert (tmp_path / "mine").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_is_no_name_or_setting_is_refused(tmp_path: Path) -> None:
    wrong: Any
    for wrong in (None, 3, b"mine"):
        with pytest.raises(UserError, match="not the name of a file"):
            OnlineLearner.load(wrong)
        with pytest.raises(UserError, match="not the name of a file"):
            OnlineLearner("ncm", WIDTH).learn_one([1.0] * WIDTH, "a").save(wrong)
    with pytest.raises(UserError, match="no folder"):
        OnlineLearner("ncm", WIDTH).learn_one([1.0] * WIDTH, "a").save(tmp_path / "there" / "is" / "none")
    with pytest.raises(UserError, match="cannot be made here"):
        OnlineLearner("ridge", 2**23, {"units": 2**31 - 1})
    wrong = ["ncm"]
    with pytest.raises(UserError, match="no learner"):
        OnlineLearner(wrong, WIDTH)
    wrong = []
    with pytest.raises(UserError, match="dictionary"):
        OnlineLearner("ncm", WIDTH, wrong)
    with pytest.raises(UserError, match="seed"):
        OnlineLearner("ncm", WIDTH, seed=True)
    assert OnlineLearner("ncm", WIDTH, seed=np.int64(3)).seed == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda head: [], "not a saved learner"),
        (lambda head: {name: value for name, value in head.items() if name != "width"}, "lacks width"),
        (lambda head: head | {"classes": ["a"]}, "labels do not fit"),
        (lambda head: head | {"classes": ["a", "a"]}, "labels do not fit"),
    ],
)
def test_a_file_of_another_make_is_refused(change: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    learner = OnlineLearner("ncm", WIDTH).learn_one([1.0] * WIDTH, "a").learn_one([0.0] * WIDTH, "b")
    learner.save(tmp_path / "a")
    with safe_open(tmp_path / "a", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = json.dumps(change(json.loads(unsealed(file.metadata())[0] or "")))
    save_file(tensors, tmp_path / "b", metadata=sealed(text, tensors))
    with pytest.raises(UserError, match=message):
        OnlineLearner.load(tmp_path / "b")


def test_ewc_with_its_defaults_learns_class_after_class() -> None:
    centres = 5 * torch.eye(8)[:4]
    learner = OnlineLearner("ewc", 8)
    for label in range(4):
        learner.learn_many(centres[label].expand(10, 8), [label] * 10).end_task()
    assert learner.predict_many(centres) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["ewc", "ridge", "online", "gaussian", "slda", "ncm"])
def test_no_example_outweighs_all_others_for_good(name: str) -> None:
    xs, labels = torch.eye(WIDTH).repeat(5, 1), [*range(WIDTH)] * 5
    learner = OnlineLearner(name, WIDTH).learn_many(xs, labels)
    before = learner.predict_many(xs)
    for value in (1e20, 1e300, float("nan"), float("inf")):
        with pytest.raises(UserError, match="not a finite number of at most 1,000,000"):
            learner.learn_one([value] * WIDTH, 0)
    assert learner.predict_many(xs) == before


class Encodes:
    """What an encoder says of itself."""

    identity = "sha256 of an encoder"

    def __init__(self, width: int | None) -> None:
        if width is not None:
            self.width = width


def test_the_width_is_the_encoders() -> None:
    encoder: Any = Encodes(3)
    assert OnlineLearner("ncm", encoder=encoder).width == OnlineLearner("ncm", 3, encoder=encoder).width == 3
    with pytest.raises(UserError, match="makes 3 features, but this learner takes 4"):
        OnlineLearner("ncm", 4, encoder=encoder)
    without: Any
    for without in (None, "sha256 of an encoder"):
        with pytest.raises(UserError, match="width is missing"):
            OnlineLearner("ncm", encoder=without)
    without = Encodes(None)
    for width in (4, None):
        with pytest.raises(UserError, match="has no width"):
            OnlineLearner("ncm", width, encoder=without)


def test_the_list_of_classes_is_a_copy() -> None:
    learner = OnlineLearner("ncm", 1).learn_one([0.0], "a")
    before = learner.classes_
    learner.learn_one([1.0], "b")
    assert (before, learner.classes_) == (("a",), ("a", "b"))


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ("x" * (LONGEST + 1), "may have 1,000 characters"),
        (2**63, "than 2.63"),
        (float("inf"), "must be finite"),
        (float("nan"), "not equal to itself"),
        (["a"], "cannot be a label"),
    ],
)
def test_a_file_has_no_labels_that_could_not_be_learned(label: Any, says: str, tmp_path: Path) -> None:
    learner = OnlineLearner("ncm", 1).learn_one([0.0], "a")
    learner._labels = [label]
    learner.save(tmp_path / "a")
    with pytest.raises(UserError, match=says):
        OnlineLearner.load(tmp_path / "a")


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.array(["2020", "2021"], dtype="datetime64[ns]"), "dates"),
        (np.array([1, 2], dtype="timedelta64[ns]"), "dates"),
        (np.ma.array(["a", "b"], mask=[False, True]), "masked"),
        (bytearray(b"ab"), "must be a list of labels"),
        (memoryview(b"ab"), "must be a list of labels"),
        (torch.zeros(2, device="meta"), "cannot be a label"),
        (itertools.repeat("a"), "There are 2 examples, but more than 2 labels"),
        (iter(["a"]), "There are 2 examples, but 1 labels"),
        (["a"] * 5, "There are 2 examples, but 5 labels"),
        (10**5000, "must be a list of labels"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_labels_that_are_none_are_refused(labels: Any, says: str) -> None:
    learner = OnlineLearner("ncm", 1)
    with pytest.raises(UserError, match=says) as refused:
        learner.learn_many([[0.0], [1.0]], labels)
    assert len(str(refused.value)) < 300
    assert learner.classes_ == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [("mean.count", 0.0), ("mean.count", -1.0), ("mean.count", 1.5), ("mean.count", 1e300), ("mean.sum", 1e308)],
)
@pytest.mark.parametrize("kind", ["ncm", "gaussian", "slda", "ridge"])
def test_a_file_says_what_examples_could_have_taught(kind: str, name: str, value: float, tmp_path: Path) -> None:
    path = tmp_path / "a"
    OnlineLearner(kind, 3).learn_many(torch.eye(3), list("abc")).save(path)
    header, tensors = read_tensors(path, FORMAT)
    tensors[name][0, 1] = value
    write_tensors(path, FORMAT, header, tensors)
    with pytest.raises(UserError, match=name):
        OnlineLearner.load(path)


class Weighed(NCM):
    """Examples that count as half."""

    counts_examples = False

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        super()._learn_class(x, y)
        self.rows[COUNT][0, int(y[0])] *= 0.5


def test_a_method_that_weighs_examples_may_have_counts_that_are_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("kcciol.learner", "kcciol.learner.saving"):
        monkeypatch.setattr(f"{place}.learner_type", {"weighed": Weighed}.__getitem__)
    learner = OnlineLearner("weighed", 3).learn_one([0, 1, 2], "a").learn_one([0, 1, 2], "a")
    learner.save(tmp_path / "a")
    assert OnlineLearner.load(tmp_path / "a").scores_one([1, 1, 1]) == learner.scores_one([1, 1, 1])
    learner.learner.rows[COUNT][0, 0] = 0
    with pytest.raises(UserError, match="no number of examples"):
        learner.save(tmp_path / "a")


@pytest.mark.parametrize("label", ["," * 990, '[{"\\", ' * 100, 'a\\" ,[{' * 100])
def test_labels_may_hold_what_lists_are_written_with(label: str, tmp_path: Path) -> None:
    learner = OnlineLearner("ncm", 1)
    for number in range(1200):  # of commas alone there are more than a file may hold values
        learner.learn_one([float(number)], f"{number}{label}")
    learner.save(tmp_path / "a")
    assert OnlineLearner.load(tmp_path / "a").classes_ == learner.classes_


def test_a_file_of_more_names_than_can_be_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="names and settings, and 1,048,576 are the most"):
        write_tensors(tmp_path / "a", FORMAT, {"classes": [0] * (2**20 + 1)}, {})
    assert not list(tmp_path.iterdir())


def test_a_file_holds_what_a_learner_has_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    OnlineLearner("ncm", 3).learn_one([0, 1, 2], "a").save(path)
    header, tensors = read_tensors(path, FORMAT)
    write_tensors(path, FORMAT, header | {"more": []}, tensors)
    with pytest.raises(UserError, match="holds 'more'"):
        OnlineLearner.load(path)
    for kind in (None, tensors[KIND].float()):
        write_tensors(path, FORMAT, header, {k: v for k, v in (tensors | {KIND: kind}).items() if v is not None})
        with pytest.raises(UserError, match="of another kind"):
            OnlineLearner.load(path)


@pytest.mark.parametrize("name", NAMES)
def test_another_default_type_changes_no_file(name: str, tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        OnlineLearner(name, 3).learn_one([0, 1, 2], "a").learn_one([2, 1, 0], "b").save(tmp_path / "a")
    finally:
        torch.set_default_dtype(torch.float32)
    assert OnlineLearner.load(tmp_path / "a").classes_ == ("a", "b")


def test_a_name_that_no_file_can_have_is_refused() -> None:
    learner = OnlineLearner("ncm", 1).learn_one([0.0], "a")
    for name in ("a\0b", b"a", 3, "\ud800.safetensors"):
        with pytest.raises(UserError, match="is not the name of a file"):
            learner.save(name)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="cannot be"):
        OnlineLearner.load("x" * 5000)
    with pytest.raises(UserError, match="cannot be written"):
        learner.save("x" * 5000)


@pytest.mark.parametrize(("kind", "name"), [("hal", "task.label"), ("hal", "task.mean"), ("merlin", "prior.mean")])
def test_what_grows_has_a_number_of_rows(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    OnlineLearner(kind, 3).learn_many(torch.eye(3), list("abc")).save(path)
    header, tensors = read_tensors(path, FORMAT)
    for shape in ((1,), ()):
        write_tensors(path, FORMAT, header, tensors | {name: tensors[name].new_zeros(shape)})
        with pytest.raises(UserError, match="does not fit"):
            OnlineLearner.load(path)


@pytest.mark.parametrize("limit", ["MOST_LABELS", "MOST_LETTERS"])
def test_labels_that_could_not_be_saved_in_all_are_refused_when_they_are_learned(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = OnlineLearner("ncm", 1).learn_many([[0.0], [1.0]], ["a", "b"])
    monkeypatch.setattr(saving, limit, {"MOST_LABELS": 4, "MOST_LETTERS": 20}[limit])  # a letter is 5 in a file
    learner.learn_many([[2.0], [3.0], [2.5], [3.0]], ["c", "d", "c", "a"])
    learner.save(tmp_path / "a.safetensors")
    for known in (learner, OnlineLearner.load(tmp_path / "a.safetensors"), copy.deepcopy(learner)):
        before = known.learner.state_dict()
        with pytest.raises(UserError, match="would be"):
            known.learn_one([4.0], "e")
        with pytest.raises(UserError, match="would be"):
            known.learn_many([[0.0], [4.0]], ["a", "e"])
        assert known.classes_ == ("a", "b", "c", "d")
        assert equal(before, known.learner.state_dict())
        known.learn_one([4.0], "d")


@pytest.mark.parametrize("letter", ['"', "\U0001f600", "\n", "x"])
def test_labels_of_the_most_letters_can_be_saved(letter: str, tmp_path: Path) -> None:
    labels = [f"{number:06} {letter * 990}" for number in range(100_000)]
    labels = labels[: saving.MOST_LETTERS // saving.letters_of(labels[0])]
    saving.require_room_for_labels(len(labels), sum(map(saving.letters_of, labels)))
    write_tensors(tmp_path / "a", FORMAT, {"classes": labels}, {KIND: NCM.kind()})
    header, _ = read_tensors(tmp_path / "a", FORMAT)
    assert header == {"classes": labels}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_no_example() -> None:
    learner = OnlineLearner("ncm", 3)
    nested: Any = torch.nested.nested_tensor([torch.ones(3)])
    calls: list[Callable[[], object]] = [lambda: learner.learn_one(nested, 1), lambda: learner.learn_many(nested, [1])]
    for call in calls:
        with pytest.raises(UserError, match="nested"):
            call()
    assert learner.classes_ == ()


@pytest.mark.parametrize("there", [b"precious", b"{}", b"\x10\0\0\0\0\0\0\0{" + b"x" * 99, None])
def test_no_file_of_another_kind_is_written_over(there: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    if there is None:
        write_tensors(path, Format("thing", ()), {}, {"x": torch.ones(2)})
    else:
        path.write_bytes(there)
    before = path.read_bytes()
    learner = OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a")
    with pytest.raises(UserError, match="is there already, and is no saved learner that is whole"):
        learner.save(path)
    assert path.read_bytes() == before
    path.write_bytes(b"")
    learner.save(path)
    learner.learn_one([1.0, 0.0], "b").save(path)
    assert OnlineLearner.load(path).classes_ == ("a", "b")


def test_a_large_file_of_ours_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a")
    learner.save(tmp_path / "a.safetensors")
    monkeypatch.setenv("KCCIOL_LARGEST_FILE", "10")
    learner.learn_one([1.0, 1.0], "b").save(tmp_path / "a.safetensors")
    monkeypatch.delenv("KCCIOL_LARGEST_FILE")
    assert OnlineLearner.load(tmp_path / "a.safetensors").classes_ == ("a", "b")


def test_a_learner_whose_encoder_is_called_like_a_file_is_loaded(tmp_path: Path) -> None:
    learner = OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a")
    learner.encoder = "phase3.safetensors"  # as earlier versions took it
    learner.save(tmp_path / "a.safetensors")
    assert OnlineLearner.load(tmp_path / "a.safetensors").encoder == "phase3.safetensors"


def test_one_that_is_full_learns_more_of_the_classes_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a")
    monkeypatch.setattr(saving, "MOST_LETTERS", 1)
    learner.learn_one([0.0, 2.0], "a")
    with pytest.raises(UserError, match="use shorter ones"):
        learner.learn_one([0.0, 2.0], "b")
    assert learner.learner.steps == 2


def test_a_path_is_no_encoder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the name of a file: open it with kcciol\.open_encoder"):
        OnlineLearner("ncm", encoder="runs/mine/phase3.safetensors")
    OnlineLearner("ncm", 2).learn_one([0.0, 1.0], "a").save(tmp_path / "a.safetensors")
    with pytest.raises(UserError, match=r"the name of a file: open it with kcciol\.open_encoder"):
        OnlineLearner.load(tmp_path / "a.safetensors", encoder="runs/mine/phase3.safetensors")
