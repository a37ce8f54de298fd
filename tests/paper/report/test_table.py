"""What a table says beside its numbers: seeds, images learned from, columns counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.paper.report.example import cell, printed
from tests.paper.report.parsed import cells, folder_of, made


def test_a_column_with_fewer_seeds_says_so(tmp_path: Path) -> None:
    rows = {n: {"a": cell(1.0, seeds=[0, 1]), "b": cell(2.0, seeds=[0])} for n in ("5", "10")}
    rows["10"]["b"]["seeds"] = [0, 1]  # the fewest of its cells count
    section = made(folder_of(tmp_path, table1={"rows": rows, "seeds": {"a": [0, 1]}})).by_id("table1")
    assert "2 seeds, fewer where it says so" in section.all("p", "about")[0].text
    assert [th.text for th in section.all("thead")[0].all("th")] == ["row", "a", "b 1 seed"]


def test_seeds_that_lie_further_apart_than_the_interval_are_marked(tmp_path: Path) -> None:
    means: dict[str, Any] = {"far": [1.0, 9.0], "near": [4.9, 5.9], "one": [5.0], "odd": ["x", 2], "lost": [None, 9.0]}
    rows = {"5": {name: cell(5.0) | {"by_seed": by_seed} for name, by_seed in means.items()}}
    found = cells(made(folder_of(tmp_path, table1={"rows": rows})).by_id("table1"))
    assert {name for (_, name), td in found.items() if "↕" in td.text} == {"far"}


def test_accuracy_on_the_images_learned_stands_folded_below(tmp_path: Path) -> None:
    rows = {n: {"a": cell(50.0, training_images=78.42), "b": cell(50.0)} for n in ("5", "10")}
    section = made(folder_of(tmp_path, table1={"rows": rows})).by_id("table1")
    (folded,) = [d for d in section.all("details") if "learned from" in d.all("summary")[0].text]
    assert [[x.text for x in (*tr.all("th"), *tr.all("td"))] for tr in folded.all("tr")] == [
        ["column, by row", "5", "10"],
        ["a", "78.4", "78.4"],
    ]


def test_few_columns_are_counted_one_by_one(tmp_path: Path) -> None:
    rows = {
        n: {"kcciol": cell(9.0), "oml": cell(6.0), "paper: oml": printed(7.0), "paper: kcciol": printed(8.0)}
        for n in "12"
    }
    (card,) = made(folder_of(tmp_path, table1={"rows": rows})).all("div", "card")
    assert [p.text for p in card.all("p", "big")] == ["2 of 2 kcciol", "0 of 2 oml"]


def test_many_columns_are_counted_together(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    rows = {"1": {name: cell(9.0) for name in names} | {f"paper: {name}": printed(8.0) for name in names}}
    (card,) = made(folder_of(tmp_path, table1={"rows": rows})).all("div", "card")
    assert [p.text for p in card.all("p", "big")] == ["4 of 4 reached"]


def test_choices_at_the_end_of_their_grid_are_marked(tmp_path: Path) -> None:
    choices: dict[str, Any] = {"edge": [{"at_edge": False}, {"at_edge": ["rate"]}], "in": [{"at_edge": []}], "odd": 3}
    rows = {"5": {name: cell(5.0, choice=choice) for name, choice in choices.items()}}
    section = made(folder_of(tmp_path, table1={"rows": rows})).by_id("table1")
    assert {name for (_, name), td in cells(section).items() if "†" in td.text} == {"edge"}
    assert "† a setting was chosen at the end of its grid" in section.all("p", "about")[0].text
    assert "↕" not in section.text  # marks that there are none of are not explained
