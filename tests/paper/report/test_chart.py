"""Charts, however large or small what they show."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.paper.report.example import cell, printed
from tests.paper.report.parsed import folder_of, made


@pytest.mark.parametrize("value", [(0, 0), (-5, 3), (1e-7, 2e-7), (1e12, 2e12)])
def test_charts_of_any_size(value: tuple[float, float], tmp_path: Path) -> None:
    rows = {str(i): {"a": cell(v), "paper: a": printed(v)} for i, v in enumerate(value)}
    (chart,) = made(folder_of(tmp_path, table1={"rows": rows})).all("svg")
    assert 2 <= len(chart.all("line")) <= 8
    for dot in chart.all("circle"):
        assert 0 <= float(dot.attributes["cy"] or "") <= 176


def test_errors_that_lie_far_apart_are_drawn_by_powers_of_ten(tmp_path: Path) -> None:
    errors = {"1": 0.0002, "2": 0.002, "3": 0.02}
    table = {"rows": {n: {"kcciol": cell(e, 0.0), "paper: kcciol": printed(0.2)} for n, e in errors.items()}}
    charts = {}
    for lower in (True, False):
        (tmp_path / str(lower)).mkdir()
        page = made(folder_of(tmp_path / str(lower), table4=table | {"lower_is_better": lower}))
        (charts[lower],) = page.by_id("table4").all("svg")
        assert ("(vertical log scale)" in page.by_id("table4").text) == lower
    places = [float(dot.attributes["cy"] or "") for dot in charts[True].all("circle", "ours")]
    assert places[0] - places[1] == pytest.approx(places[1] - places[2], abs=0.11)  # as printed in the page
    assert [t.text for t in charts[True].all("text")][:5] == ["1e-4", "0.001", "0.01", "0.1", "1"]
    assert len(charts[False].all("text")) < 10


@pytest.mark.parametrize("least", [0.0, -1.0, 0.02])
def test_other_errors_are_drawn_as_they_are(least: float, tmp_path: Path) -> None:
    rows = {"1": {"a": cell(least, 0.0)}, "2": {"a": cell(1.0, 0.0)}}
    page = made(folder_of(tmp_path, table4={"rows": rows, "lower_is_better": True}))
    assert "log scale" not in page.text


def test_powers_of_ten_are_few_and_reach_over_all(tmp_path: Path) -> None:
    rows = {str(i): {"a": cell(10.0**-i, 2 * 10.0**-i)} for i in range(14)}  # the band reaches below zero
    (chart,) = made(folder_of(tmp_path, table4={"rows": rows, "lower_is_better": True})).all("svg")
    assert 3 <= len(chart.all("line")) <= 7
    dots = [float(dot.attributes["cy"] or "") for dot in chart.all("circle")]
    assert all(b - a == pytest.approx(dots[1] - dots[0], abs=0.11) for a, b in itertools.pairwise(dots))
    points = [float(p.split(",")[1]) for p in (chart.all("polygon")[0].attributes["points"] or "").split()]
    assert 0 <= min(points) <= max(points) <= 152  # the bottom of the chart


def test_lines_go_from_the_smallest_row_to_the_largest(tmp_path: Path) -> None:
    rows = {n: {"a": cell(float(n))} for n in ("30", "1", "600", "100")}
    (chart,) = made(folder_of(tmp_path, table1={"rows": rows})).all("svg")
    places = [float(p.split(",")[0]) for p in (chart.all("polyline")[0].attributes["points"] or "").split()]
    assert places == sorted(places)
    assert places[2] - places[1] < places[1] - places[0]  # by their logarithm


def test_rows_named_by_enormous_numbers_are_only_names(tmp_path: Path) -> None:
    page = made(folder_of(tmp_path, table1={"rows": {n: {"a": cell(1.0)} for n in ("1e308", "-1e308")}}))
    assert not page.all("svg")
