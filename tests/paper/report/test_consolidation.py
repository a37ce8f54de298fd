"""Two columns on the same streams, and what consolidation adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kcciol.paper.report.consolidation import gap, streams
from tests.paper.report.example import cell, printed
from tests.paper.report.parsed import Node, cells, chips, folder_of, made


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
    assert found.half is not None
    assert found.mean > found.half
    assert found.sign == 0


def test_below_is_told_as_above() -> None:
    found = gap(measured([1.0, 1.5, 1.0]), measured([5.0, 5.0, 5.5]))
    assert found is not None
    assert found.sign == -1


def test_a_single_stream_tells_nothing() -> None:
    found = gap(measured([5.0]), measured([1.0]))
    assert found is not None
    assert (found.mean, found.half, found.sign) == (4.0, None, 0)


def test_seeds_with_other_numbers_of_streams_are_not_compared() -> None:
    ours = {"seeds": [0], "by_trajectory": [1.0, 2.0]}
    assert gap(ours, {"seeds": [0], "by_trajectory": [1.0, 2.0, 3.0]}) is None
    assert gap(ours, {"seeds": ["0"], "by_trajectory": [1.0, 1.0]}) is not None  # JSON may have made text of it


@pytest.mark.parametrize(
    "about",
    [
        {"seeds": [0, 1], "by_trajectory": [1.0, 2.0, 3.0]},
        {"seeds": "01", "by_trajectory": [1.0]},
        {"seeds": [0], "by_trajectory": ["x"]},
        {"seeds": [0], "by_trajectory": None},
        {"seeds": [0, 1], "by_trajectory": [1.0, 2.0], "diverged": 2},
        {"seeds": [], "by_trajectory": []},
        {"seeds": [0], "by_trajectory": []},
        {"seeds": [0], "by_trajectory": [10**301]},
        {"seeds": [0], "by_trajectory": [float("nan")]},
        {"seeds": [0], "by_trajectory": [float("inf")]},
    ],
)
def test_what_is_not_known_of_each_seed_is_not_compared(about: dict[str, Any]) -> None:
    assert streams(about) == {}
    assert gap(about, about) is None


def panel(tmp_path: Path, lower: bool = False, **more: Any) -> Node:
    rows = {
        n: {
            "kcciol-phase1": measured([50.0, 51.0], [50.0, 51.0], choice=[0.1, 0.1]),
            "kcciol-phase2": measured([58.0, 58.0], [58.0, 58.0]) | {"provenance": ["a script that is not kept"]},
            "kcciol": measured([60.0, 61.5], [61.0, 62.5], choice=[0.1, 0.2]),
            "control": measured([59.5, 61.5], [61.5, 62.0], choice=[{"chosen": 0.1}, {"chosen": 0.2}]),
            "kcciol + ncm": measured([60.0, 60.0], [60.0, 60.5]),
            "control + ncm": measured([70.0, 70.0], [70.0, 70.0]),
            "paper: kcciol": printed(55.0),
        }
        for n in ("5", "10")
    }
    table = {"title": "Digits, novel", "axis": "classes", "metric": "accuracy", "lower_is_better": lower, "rows": rows}
    return made(folder_of(tmp_path, table1=table | more)).by_id("what-consolidation-adds")


@pytest.mark.parametrize(("lower", "kinds"), [(False, ("reached", "missed")), (True, ("missed", "reached"))])
def test_the_method_stands_beside_its_phases_and_the_control(
    lower: bool, kinds: tuple[str, str], tmp_path: Path
) -> None:
    section = panel(tmp_path, lower)
    found = cells(section)
    assert [h.text for h in section.all("h3")] == ["Digits"]
    assert [p.text for p in section.all("p", "about")] == [
        f"accuracy{' (lower is better)' if lower else ''} · 2 seeds, ± over streams"
    ]
    shown = [found["5", name].text for name in ("phase 1", "phase 2", "phase 3", "control")]
    assert shown == ["50.5", "58.0 ‡", "61.2", "61.1"]
    assert chips(found["5", "kcciol − phase 1"]) == [("+10.8 ± 1.0", kinds[0])]  # of gaps 10, 10.5, 11, 11.5
    assert chips(found["5", "kcciol − control"]) == [("+0.1 ± 0.8", "rival")]
    assert chips(found["5", "kcciol − control, class means"]) == [("−9.9 ± 0.4", kinds[1])]
    assert found["5", "kcciol − phase 1"].text == "+10.8 ± 1.0 ≠+10.2, +11.2"  # seeds, and other rates
    assert "≠" not in found["5", "kcciol − control"].text + found["5", "kcciol − control, class means"].text
    assert not any("printed settings" in column or "phase 2" in column for _, column in found if "−" in column)
    (chart,) = section.all("svg")
    kinds_of_lines = {(line.attributes["class"] or "") for line in chart.all("polyline")}
    assert kinds_of_lines == {"one", "two", "ours", "control", "paper"} == {key_of(i) for i in section.all("i", "key")}
    assert len(chart.all("circle")) == 10


def key_of(node: Node) -> str:
    return (node.attributes["class"] or "").removeprefix("key ")


def test_small_errors_have_more_digits_and_log_scales_are_named(tmp_path: Path) -> None:
    rows = {
        n: {
            "kcciol": measured([e, 1.1 * e]),
            "control": measured([e / 2, e / 2]),
            "control-paper": measured([2.0]),
            "kcciol-paper": measured([1.0]),
        }
        for n, e in (("1", 0.0002), ("50", 0.04))
    }
    section = panel(tmp_path, rows=rows, lower=True)
    assert [p.text for p in section.all("p", "about")] == [
        "accuracy (lower is better) (vertical and horizontal log scale) · 1 seed, ± over streams"
    ]
    found = cells(section)
    assert chips(found["1", "kcciol − control"])[0][0].startswith("+0.00011 ± ")
    assert chips(found["50", "kcciol − control"])[0][0].startswith("+0.022 ± ")
    assert chips(found["50", "kcciol − control, printed settings"]) == [("−1.000", "rival")]  # one stream: no interval


@pytest.mark.parametrize(
    "rows",
    [
        {"5": {"kcciol": cell(60.0)}, "10": {"control": cell(50.0)}},  # never both
        {"a": {"kcciol": cell(60.0), "control": cell(50.0)}},  # not by numbers
        {"g": {"5": {"kcciol": cell(60.0), "control": cell(50.0)}}, "h": {"5": {"kcciol": cell(60.0)}}},  # in groups
    ],
)
def test_where_it_cannot_be_told_nothing_is_said(rows: dict[str, Any], tmp_path: Path) -> None:
    page = made(folder_of(tmp_path, table1={"rows": rows}))
    assert "consolidation adds" not in page.text


def test_one_row_is_enough(tmp_path: Path) -> None:
    rows = {"5": {"kcciol": measured([1.0, 2.0]), "control": measured([0.0, 1.5])}}
    section = panel(tmp_path, rows=rows)
    assert not section.all("svg")  # there is no line
    assert chips(cells(section)["5", "kcciol − control"])[0][0].startswith("+0.750")


def test_of_three_seeds_it_says_so_and_a_rehearsal_is_named(tmp_path: Path) -> None:
    rows = {n: {"kcciol": measured([2.0], [2.0], [2.0]), "control": measured([1.0], [1.0], [1.5])} for n in ("5", "6")}
    section = panel(tmp_path, rows=rows, title="Rehearsal, it means nothing: Digits, novel")
    assert [h.text for h in section.all("h3")] == ["Rehearsal, it means nothing: Digits"]
    assert section.all("p", "about")[0].text == "accuracy · 3 seeds, ± over seeds"
    assert [i.text for i in section.all("p", "legend")[0].all("span")] == ["phase 3", "control"]  # what is drawn
