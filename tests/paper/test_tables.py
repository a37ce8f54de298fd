"""Intervals on their way from cells to a table, and from a table to the page."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kcciol.evaluation.metrics import summarize, wilson_reach
from kcciol.paper import tables
from kcciol.paper.report.facts import facts
from kcciol.paper.report.formatting import marks_of, number, spoken, used_marks
from kcciol.paper.report.read import read


def cell(values: list[float], seed: int = 0, **more: Any) -> dict[str, Any]:
    """A result of one seed after five classes."""
    measured = {**summarize(torch.tensor(values)).to_dict(), "by_trajectory": values, "seconds": 1.0, **more}
    choice = {"settings": {}, "scores": [], "rule": "", "at_edge": [], "classes": 5, "trajectories": 2}
    names = {"row": "ncm", "trains": "head", "optimizer": "sgd"}
    about = {"choice": choice, "chosen_on": "", "bytes": {}, "replay": False, "cell": names, "spec": {}}
    return {"config": {"seed": seed}, "classes": {"5": measured}, **about}


def test_of_equal_means_no_interval_is_known() -> None:
    assert tables.ci95_of([50.0, 50.0]) is None
    assert tables.ci95_of([50.0]) is None
    assert tables.ci95_of([50.0, 52.0]) == pytest.approx(12.7062)


def test_a_pooled_number_has_the_interval_of_its_images() -> None:
    equal = tables.pooled([cell([30.0, 30.0], seed, ci95_of_images=20) for seed in (0, 1)], "5")
    assert equal["ci95"] == pytest.approx(100 * wilson_reach(0.3, 20))
    assert equal["ci95_of_images"] == 20
    assert equal["ci95_seeds"] is None
    apart = tables.pooled([cell([30.0, 90.0]), cell([10.0, 50.0], 1, ci95_of_images=20)], "5")
    assert apart["ci95"] == pytest.approx(summarize(torch.tensor([30.0, 90.0, 10.0, 50.0])).ci95)  # which is longer
    assert "ci95_of_images" not in apart
    assert tables.pooled([cell([30.0, 30.0])], "5")["ci95"] is None


def test_a_learners_number_keeps_the_mark_of_its_interval() -> None:
    rows = tables.learners({"kcciol": {"sgd": [cell([30.0, 30.0], ci95=18.4, ci95_of_images=20)]}})
    assert rows["ncm"]["kcciol"]["ci95_of_images"] == 20
    assert "ci95_of_images" not in tables.learners({"kcciol": {"sgd": [cell([30.0, 40.0])]}})["ncm"]["kcciol"]


def test_the_page_marks_an_interval_of_images_and_leaves_out_one_of_zero(tmp_path: Any) -> None:
    (tmp_path / "table1.json").write_text(
        '{"rows": {"5": {"a": {"mean": 30.0, "ci95": 18.4, "ci95_of_images": 20},'
        ' "b": {"mean": 30.0, "ci95": 0.0, "ci95_seeds": 0.0}}}}'
    )
    (table,) = read(tmp_path).tables
    a, b = (table.grids[0].rows["5"][column] for column in "ab")
    assert [mark for mark, _ in marks_of(a)] == ["*"]
    assert number(b, 1) == "30.0"
    assert "no spread" in facts(table, "b", b)["ci95 seeds"]
    assert "* all streams ask the same images, so the interval is over these images" in used_marks(table)
    assert spoken({"mean": 2.0, "ci95": 0.0}) == "2"
