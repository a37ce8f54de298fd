"""Two columns on the same streams, and what consolidation adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kcciol.report.pairs import gap, streams
from tests.report.example import cell, printed
from tests.report.parsed import Node, cells, chips, folder_of, made


def measured(*by_seed: list[float], **more: Any) -> dict[str, Any]:
    flat = [value for part in by_seed for value in part]
    return cell(sum(flat) / len(flat), seeds=list(range(len(by_seed))), by_trajectory=flat, **more)


def test_a_gap_is_of_the_seeds_that_both_have() -> None:
    found = gap(measured([3.0, 5.0], [100.0, 100.0]), measured([1.0, 2.0]))
    assert found is not None
    assert (found.mean, found.by_seed) == (2.5, [2.5])
    assert found.half == pytest.approx(12.706 * 0.5, rel=1e-3)  # of two streams, gaps 2 and 3: t times their error
    assert found.sign == 0


def test_of_three_seeds_the_interval_is_over_seeds() -> None:
    found = gap(measured([1.0, 9.0], [2.0, 8.0], [3.0, 7.0]), measured([0.0, 0.0], [1.0, 0.0], [0.0, 0.0]))
    assert found is not None
    assert found.by_seed == [5.0, 4.5, 5.0]
    assert found.half == pytest.approx(4.303 / 6, rel=1e-3)
    assert found.sign == 1


def test_seeds_that_disagree_say_nothing() -> None:
    ours, theirs = measured([9.0] * 50, [0.9, 1.0] * 25), measured([0.0] * 50, [1.0] * 50)
    found = gap(ours, theirs)
    assert found is not None
    assert found.mean > found.half
    assert found.sign == 0


@pytest.mark.parametrize(
    "about",
    [
        {"seeds": [0, 1], "by_trajectory": [1.0, 2.0, 3.0]},
        {"seeds": "01", "by_trajectory": [1.0]},
        {"seeds": [0], "by_trajectory": ["x"]},
        {"seeds": [0], "by_trajectory": None},
        {"seeds": [0, 1], "by_trajectory": [1.0, 2.0], "diverged": 2},
        {"seeds": [], "by_trajectory": []},
    ],
)
def test_what_is_not_known_of_each_seed_is_not_compared(about: dict[str, Any]) -> None:
    assert streams(about) == {}
    assert gap(about, about) is None


def panel(tmp_path: Path, lower: bool) -> Node:
    rows = {
        n: {
            "kcciol-phase1": measured([50.0, 51.0], [50.0, 51.0]),
            "kcciol": measured([60.0, 61.5], [61.0, 62.5]),
            "control": measured([59.5, 61.5], [61.5, 62.0]),
            "paper: kcciol": printed(55.0),
        }
        for n in ("5", "10")
    }
    table = {"title": "Digits, novel", "axis": "classes", "metric": "accuracy", "lower_is_better": lower, "rows": rows}
    return made(folder_of(tmp_path, table1=table)).by_id("what-consolidation-adds")


@pytest.mark.parametrize(("lower", "kind"), [(False, "reached"), (True, "missed")])
def test_the_method_stands_beside_its_phases_and_the_control(lower: bool, kind: str, tmp_path: Path) -> None:
    section = panel(tmp_path, lower)
    found = cells(section)
    assert [h.text for h in section.all("h3")] == ["Digits"]
    assert [found["5", name].text for name in ("phase 1", "phase 3", "control")] == ["50.5", "61.2", "61.1"]
    assert chips(found["5", "kcciol − phase 1"]) == [("+10.8 ± 1.0", kind)]  # of gaps 10, 10.5, 11, 11.5
    assert chips(found["5", "kcciol − control"]) == [("+0.1 ± 0.8", "rival")]
    assert ("5", "phase 2") not in found  # not measured
    (chart,) = section.all("svg")
    assert {(line.attributes["class"] or "") for line in chart.all("polyline")} == {"one", "ours", "control", "paper"}


def test_without_a_control_nothing_is_said(tmp_path: Path) -> None:
    rows = {"5": {"kcciol": cell(60.0)}, "10": {"control": cell(50.0)}}
    page = made(folder_of(tmp_path, table1={"rows": rows}))
    assert "consolidation adds" not in page.text
