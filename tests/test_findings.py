"""The sentences of the page of results: what they compare, and when they say that something holds."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SAYS = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "omniglot_findings.py"))


def cell(*seeds: list[float], numbers: tuple[int, ...] = (0, 1, 2)) -> dict[str, Any]:
    flat = [value for part in seeds for value in part]
    return {"mean": sum(flat) / len(flat), "seeds": list(numbers[: len(seeds)]), "by_trajectory": flat, "ci95": 9.0}


def test_columns_are_compared_on_the_seeds_they_share_stream_by_stream() -> None:
    one, two = cell([50.0, 70.0, 90.0], [0.0, 0.0, 0.0]), cell([49.0, 69.0, 88.9])
    gap, half = SAYS["difference"](one, two)  # streams differ by far more than the columns do
    assert gap == pytest.approx(1.0333, abs=1e-3)
    assert half == pytest.approx(0.143, abs=1e-3)
    assert SAYS["differs"](one, two) == gap
    assert SAYS["differs"](two, two) == 0


def test_three_seeds_are_told_apart_by_the_seeds() -> None:
    one, two = cell([10.0, 10.1], [20.0, 20.1], [30.0, 30.1]), cell([9.0, 9.1], [21.0, 21.1], [27.0, 27.1])
    gap, half = SAYS["difference"](one, two)  # +1, -1, +3: every stream is sure, the seeds are not
    assert gap == pytest.approx(1.0, abs=1e-4)
    assert half == pytest.approx(4.303 * 2 / 3**0.5, abs=1e-2)
    assert SAYS["differs"](one, two) == 0


def test_against_the_paper_both_spreads_count() -> None:
    ours, paper = cell([50.0, 50.0]) | {"ci95": 3.0}, {"mean": 45.0, "std": 10.0, "n": 25}
    assert SAYS["difference"](ours, paper) == (5.0, 5.0)  # 3 of ours, 2 * 10 / 5 of theirs
    assert SAYS["differs"](ours, paper | {"std": None}) == 5.0


HIGH, LOW = cell([2.0, 2.0]), cell([1.0, 1.0])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(HIGH, LOW), (HIGH, LOW)], "Holds: above in 2 of 2 rows †"),
        ([(HIGH, LOW), (LOW, LOW)], "Holds in part: above in 1, not told apart in 1 of 2 rows †"),
        ([(HIGH, LOW), (LOW, HIGH)], "Mixed: above in 1, below in 1 of 2 rows †"),
        ([(LOW, HIGH), (LOW, LOW)], "Not seen here: not told apart in 1, below in 1 of 2 rows †"),
        ([], "Not measured"),
    ],
)
def test_verdicts(rows: list[tuple[dict[str, Any], dict[str, Any]]], said: str) -> None:
    assert SAYS["verdict"]([(str(i), a, b) for i, (a, b) in enumerate(rows)]) == said


def test_what_is_not_measured_is_not_compared() -> None:
    assert SAYS["compared"]({"10": {"a": HIGH}}, "a", "b") == "- `a` against `b` (classes): not measured."
    rows = {"10": {"a": HIGH, "b": LOW}, "50": {"a": LOW, "b": LOW}}
    assert (
        SAYS["compared"](rows, "a", "b") == "- `a` against `b` (classes): above by 1.0 at 10; not told apart at 50 †."
    )
    assert SAYS["gap"]({"a": HIGH}, "a", "b") == "not measured"


def test_what_rests_on_fewer_than_three_seeds_is_marked() -> None:
    three, two = cell([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]), cell([0.0, 1.0], [0.0, 1.0])
    paper = {"mean": 3.0}
    assert SAYS["few"]([(three, three), (three, paper)]) == ""
    assert SAYS["few"]([(three, three), (three, two)]) == " †"
    assert SAYS["gap"]({"a": three, "b": two}, "a", "b").endswith("†")


def test_the_rival_is_the_hardest_to_beat_in_each_row() -> None:
    def at(value: float) -> dict[str, Any]:
        return cell(*[[value, value + 0.2]] * 3)

    unsure = cell([0.0, 0.1], [5.0, 5.1], [8.0, 8.1])
    rows = {
        "10": {"kcciol": at(9), "kcciol-paper": at(8), "oml": at(7), "anml": at(8.5)},
        "100": {"kcciol": at(9), "kcciol-paper": at(8), "oml": at(8.5), "srnn": unsure},
        "200": {"kcciol": at(9), "kcciol-paper": at(8), "oml": at(8.2), "anml": at(7)},
    }
    for row in rows.values():
        row |= {"paper: kcciol": {"mean": 1.0}, "paper: oml": {"mean": 1.0}}
    (said,) = SAYS["claims"](rows, {}, {}, {})
    assert "Holds in part: above in 2, not told apart in 1 of 3 rows against the one that is hardest to beat" in said
    assert "(`anml` at 10, `srnn` at 100, `oml` at 200), by +0.5 to +4.7: after 200 classes 9.1" in said
    assert "(`kcciol-paper`) below in 3 of 3 rows" in said


def test_the_least_and_the_most_over_all_rows() -> None:
    rows = {str(n): {"a": cell(*[[float(n), n + 1.0]] * 3), "b": cell(*[[1.0, 2.0]] * 3)} for n in (3, 0, 2)}
    assert SAYS["over"](rows, "a", "b") == "-1.0 ± 0.0 (after 0 classes) to +2.0 ± 0.0 (after 3)"
    assert SAYS["over"](rows, "a", "c") == "not measured"


def test_pairs_that_are_not_told_apart_from_the_best_are_named() -> None:
    one, alike, worse = (cell([v, v + 1], [v + 1, v], [v + 2, v]) for v in (5.0, 5.0, 1.0))
    lines = SAYS["findings_heads"]({"200": {"a": {"ncm": one, "online-adam": worse}, "b": {"ncm": alike}}})
    assert "on 1 of 1 representations" in lines[0]
    assert "the best pair is `a` with `ncm`" in lines[0]
    assert "not told apart from `b` with `ncm` (+0.0 ± 0.0)." in lines[0]
    equal = SAYS["findings_heads"]({"200": {"a": {"ncm": one, "online-adam": alike}}})
    assert "on 0 of 1 representations" in equal[0]
