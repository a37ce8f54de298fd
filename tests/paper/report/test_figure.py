"""The numbers of a figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kcciol.paper.report.figure import numbers, two_sides
from tests.paper.report.parsed import folder_of, made, parse


def test_numbers_of_a_figure_lie_side_by_side(tmp_path: Path) -> None:
    names = [f"{name}, {n} classes" for n in (50, 200, 10) for name in ("ours", "theirs")]
    folder = folder_of(tmp_path, bench={"a": 1})
    (folder / "figures").mkdir()
    figure = {"title": "f", "numbers": {"alone": 7.5} | {name: float(i) for i, name in enumerate(names)}}
    (folder / "figures" / "f.json").write_text(json.dumps(figure))
    alone, table = made(folder).by_id("figure-f").all("table", "numbers")
    assert alone.text == "alone7.5"
    lines = [[td.text for td in (*tr.all("th"), *tr.all("td"))] for tr in table.all("tr")]
    assert lines == [
        ["", "ours", "theirs"],
        ["10 classes", "4", "5"],
        ["50 classes", "0", "1"],
        ["200 classes", "2", "3"],
    ]


def test_numbers_of_one_kind_have_the_same_decimals() -> None:
    few, many = {"a: x": 1.25, "a: y": 7.0, "b: x": 2.0, "b: y": 8.0}, {"a: z": 0.5, "b: z": 3.0}
    assert [[td.text for td in tr.all("td")] for tr in parse(numbers(few)).all("tr")] == [
        [],
        ["1.25", "7"],
        ["2.00", "8"],
    ]
    by_row = [[td.text for td in tr.all("td")] for tr in parse(numbers(few | many)).all("tr")]
    assert by_row == [[], ["1.25", "2.00"], ["7", "8"], ["0.5", "3.0"]]


@pytest.mark.parametrize(
    "names",
    [
        ["a: x", "a: y", "b: x"],  # not every pair
        ["a: x", "a: y", "a: z"],  # one side only
        ["x", "y"],
        [],
    ],
)
def test_numbers_without_two_sides_lie_below_each_other(names: list[str]) -> None:
    assert two_sides(dict.fromkeys(names, 1.0)) is None


def test_a_colon_comes_before_a_comma() -> None:
    sides = two_sides({f"{a}: {b}, {n}": n for a in ("p", "q") for b in ("x", "y") for n in (1, 2)})
    assert sides is not None
    assert (sides.columns, sides.rows) == (["p", "q"], ["x, 1", "x, 2", "y, 1", "y, 2"])
    assert sides.values["y, 2", "p"] == 2


def test_the_last_comma_parts_a_name() -> None:
    sides = two_sides({f"ours, {a}, {n} classes": n for a in ("all", "half") for n in (10, 5)})
    assert sides is not None
    assert (sides.rows, sides.columns) == (["ours, all", "ours, half"], ["5 classes", "10 classes"])


def test_the_first_colon_parts_a_name() -> None:
    sides = two_sides({f"{a}: x: {b}": 1 for a in ("p", "q") for b in ("r", "s")})
    assert sides is not None
    assert (sides.rows, sides.columns) == (["p", "q"], ["x: r", "x: s"])  # as many: the first parts go down


def test_numbers_in_names_are_put_in_order_as_numbers() -> None:
    sides = two_sides({f"delta {d}: {n}": d for d in (0.5, 1, 0, 0.25, 10) for n in ("a", "b")})
    assert sides is not None
    assert sides.rows == ["delta 0", "delta 0.25", "delta 0.5", "delta 1", "delta 10"]
    assert sides.columns == ["a", "b"]


def test_without_numbers_there_is_no_table(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, bench={"a": 1})
    (folder / "figures").mkdir()
    (folder / "figures" / "f.json").write_text(json.dumps({"title": "f", "numbers": {}}))
    assert not made(folder).by_id("figure-f").all("table")
