"""The report: every number is there, the differences are right, and no file can break it."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from kcciol.cli import main
from kcciol.errors import UserError
from kcciol.meta.methods import REPRESENTATIONS
from kcciol.paper.report import write
from kcciol.paper.report.read import TableCell, read, verdict
from kcciol.paper.report.view import tally
from tests.paper.report.example import NASTY, RECORD, heads, results_folder, table1
from tests.paper.report.parsed import Node, cells, chips, folder_of, made, parse


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_folder(tmp_path_factory.mktemp("example") / "results")


@pytest.fixture(scope="module")
def page(example: Path) -> Node:
    return made(example)


def test_every_cell_is_there_beside_the_papers(page: Node) -> None:
    found = cells(page.by_id("table1"))
    value, ours = table1(), {}
    for row, columns in value["rows"].items():
        for column, content in columns.items():
            if content is not None:
                name = column.removeprefix("paper: ")
                ours[row, name if name != "oml" else "omlnote 1"] = content  # which has a note
                expected = str(content["mean"]) if column.startswith("paper") else f"{content['mean']:.1f}"
                assert expected in found[row, name if name != "oml" else "omlnote 1"].text
    assert {key for key, td in found.items() if td.text} == set(ours)
    assert found["10", "kcciol"].text == "96.5 ± 0.5paper 95.4 ✓ +1.1"
    assert found["10", "scratch"].text == "not measuredpaper 15.9"
    assert found["200", "omlnote 1"].text == "50.0paper 59.3 ✗ −9.3"  # without an interval
    assert found["10", "control"].text == "96.2 ± 0.5"


def test_differences_have_a_sign_a_mark_and_a_colour(page: Node) -> None:
    found = cells(page.by_id("table1"))
    assert chips(found["10", "kcciol"]) == [("✓ +1.1", "reached")]
    assert chips(found["10", "omlnote 1"]) == [("≈ −0.4", "within")]
    assert chips(found["200", "omlnote 1"]) == [("✗ −9.3", "missed")]
    assert chips(found["10", "scratch"]) == chips(found["600", "omlnote 1"]) == chips(found["10", "control"]) == []


def test_lower_may_be_better(page: Node) -> None:
    found = cells(page.by_id("table4"))
    assert chips(found["1", "kcciol"]) == [("✓ −0.030", "reached")]
    assert chips(found["2", "kcciol"]) == [("≈ +0.005", "within")]
    assert chips(found["3", "kcciol"]) == [("✗ +0.410", "missed")]
    assert "at or below the paper" in page.by_id("table4").text


def test_a_level_deeper(page: Node) -> None:
    section = page.by_id("heads")
    assert [h.text for h in section.all("h3")] == ["classes: 2", "classes: 6"]
    tables = section.all("table", "cells")
    assert [t.all("th")[0].text for t in tables] == ["representation"] * 2
    for group, table in zip("26", tables, strict=True):
        for line in table.all("tbody")[0].all("tr"):
            expected = heads()["rows"][group][line.all("th")[0].text]
            assert [td.text for td in line.all("td")] == [f"{expected[h]['mean']:.1f} ± 0.5" for h in ("ncm", "ridge")]


def test_a_cell_tells_all_in_its_box_and_in_the_list(page: Node) -> None:
    section = page.by_id("table1")
    button = cells(section)["10", "kcciol"].all("button")[0]
    box = page.by_id(button.attributes["popovertarget"] or "")
    assert "popover" in box.attributes
    known = dict(zip((n.text for n in box.all("dt")), (n.text for n in box.all("dd")), strict=True))
    assert known["seeds"] == "0, 1"
    assert known["mean of each seed"] == "96.12, 96.92"
    assert known["memory"] == "940.4 kB (adam)"
    assert known["time"] == "12.5 s"
    assert known["paper"] == "95.4 (std 3.4)"
    assert known["difference"] == "+1.1, at or above the paper"
    listed = {tr.all("th")[0].text: tr for tr in section.all("table", "every")[0].all("tr")}
    assert len(listed) == 1 + 6
    assert "chosen: 0.00032" in listed["10, oml"].text
    assert "training of each seed: 1.7 min, 1.8 min" in listed["10, oml"].text
    assert "All of them: n: 50; std: 2" in section.text
    assert "92.0, 92.0" not in section.text  # not every stream


def test_settings_that_differ_stand_apart(page: Node) -> None:
    blocks = page.by_id("table1").all("pre")
    assert [b.text for b in blocks] == ["seed = 0", "net.channels = 8", "net.channels = 9"]


def test_notes_are_linked(page: Node) -> None:
    (link,) = page.by_id("table1").all("sup")[0].all("a")
    note = page.by_id((link.attributes["href"] or "").removeprefix("#"))
    assert note.text == "oml: Two readings of the reset were tried, draw and zero."
    assert [name.text for name in note.all("code")] == ["draw", "zero"]


def test_an_error_that_is_not_finite_is_no_small_error(tmp_path: Path) -> None:
    cells = {"mean": None, "n": 50, "diverged": 3, "by_seed": [0.1, None]}
    rows: dict[str, Any] = {"1": {"kcciol": {"mean": 0.1, "ci95": 0.01}, "mrcl": {"mean": 0.2}}}
    rows |= {"2": {"kcciol": cells, "mrcl": {"mean": 0.3}}, "3": {"kcciol": cells, "mrcl": cells}}
    for cells in rows.values():
        cells["paper: kcciol"] = {"mean": 0.2}
    table = {"title": "Sine", "axis": "functions", "lower_is_better": True, "rows": rows}
    (tmp_path / "table4.json").write_text(json.dumps(table))
    page = made(tmp_path)
    assert "∞" in page.by_id("table4").text
    assert "diverged" in page.by_id("table4").text
    assert tally(read(tmp_path).tables[0]) == {"reached": 1, "missed": 2}
    assert "inf" not in "".join(str(c.attributes) for c in page.all("circle"))


def test_the_method_itself_comes_first_and_names_are_explained(tmp_path: Path) -> None:
    (tmp_path / "table1.json").write_text(json.dumps(table1() | {"ours": ["kcciol"]}))
    page = made(tmp_path)
    heads_ = [th.text for th in page.by_id("table1").all("table", "cells")[0].all("thead")[0].all("th")]
    assert [h.removesuffix("note 1") for h in heads_] == ["classes", "kcciol", "scratch", "oml"]
    text = page.by_id("table1").text
    assert REPRESENTATIONS["control"].what in text
    assert "2 seeds" in text
    assert "not measured here: 2, 3, 4, 5, 6, 7." in page.text


def test_charts_where_rows_are_numbers(page: Node) -> None:
    panels = page.by_id("table1").all("figure", "panel")
    assert [p.all("figcaption")[0].text for p in panels] == ["scratch", "oml", "kcciol"]
    oml = panels[1]
    assert len(oml.all("circle", "ours")) == 3
    assert len(oml.all("circle", "paper")) == 2
    assert oml.all("polygon", "band")
    assert oml.all("polyline", "paper")
    heights = [float(c.attributes["cy"] or "") for c in oml.all("circle", "ours")]
    assert heights == sorted(heights)  # lower accuracy lies lower, further down
    assert not page.by_id("heads").all("svg")


def test_summary_and_header(page: Node, example: Path) -> None:
    cards = [card.text for card in page.all("div", "card")]
    assert all(part in cards[0] for part in ("1 of 1 kcciol", "0 of 1 scratch", "0 of 2 oml"))
    assert "1 of 3 reached" in cards[1]
    assert "48 cells" in cards[-1]
    assert "How many of the numbers that the paper prints for its method are reached:" in page.text
    assert "10.0 min, --jobs 2; 60 s, --jobs 1" in page.by_id("table4").text
    tables = read(example).tables
    assert [t.name for t in tables] == ["table1", "table4", "table10", "heads"]
    assert tally(tables[0]) == {"reached": 1, "within": 1, "missed": 1, "unmeasured": 1}
    header = page.all("header")[0].text
    assert all(word in header for word in ("2026-01-02", "A GPU", "2.9.0", "abc1234"))


def test_only_the_papers_own_method_is_to_reach_its_numbers(tmp_path: Path) -> None:
    table = table1() | {"ours": ["kcciol", "control"], "compared": {"control": "kcciol"}}
    (tmp_path / "table1.json").write_text(json.dumps(table))
    (found,) = read(tmp_path).tables
    assert tally(found) == {"reached": 2}  # control is held against the printed kcciol; oml and scratch are rivals
    section = made(tmp_path).by_id("table1")
    assert [chip.text for chip in section.all("span", "rival")] == ["+1", "−0.4", "−9.3"]
    assert sum("no number to reach" in box.text for box in section.all("div", "box")) == 2


def test_contents_lead_somewhere(page: Node) -> None:
    ids = {n.attributes.get("id") for tag in ("section", "div", "li") for n in page.all(tag)}
    links = [a.attributes["href"] or "" for a in page.all("a")]
    assert len(page.all("nav")[0].all("a")) == 8
    assert all(link.removeprefix("#") in ids for link in links if link.startswith("#"))


def test_nothing_is_fetched(example: Path, page: Node) -> None:
    for tag in ("link", "iframe", "base", "object"):
        assert not page.all(tag)
    (script,) = page.all("script")
    assert script.attributes == {}
    assert "url(" not in page.all("style")[0].text
    assert "@import" not in page.all("style")[0].text
    assert [(i.attributes["src"] or "")[:15] for i in page.all("img")] == ["data:image/png;", "data:image/svg+"]


def test_nasty_names_are_only_text(page: Node) -> None:
    section = page.by_id("table10")
    assert NASTY in section.all("h2")[0].text
    assert not section.all("script")
    assert any(NASTY in th.text for th in section.all("th"))
    assert NASTY in page.by_id("figure-one").text


def test_broken_files_are_named(example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(example), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "table9.json is left out" in said.err
    assert "report.html" in said.out
    (box,) = parse(out.read_text(encoding="utf-8")).all("aside", "warning")
    assert "table9.json is left out: it is not whole JSON" in box.text
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "not whole JSON"),
        ("[1]", "it is no table"),
        ("{}", "rows is not an object"),
        ('{"rows": {}}', "has no cell"),
        ('{"rows": {"1": {"a": null}}}', "has no cell"),
        ('{"rows": {"1": 3}}', "row '1' is not an object"),
        ('{"rows": {"1": {"a": 3}}}', "column 'a' is not an object"),
        ('{"rows": {"1": {"a": {"mean": "x"}}}}', "the mean of row '1', column 'a' is 'x', not a number"),
        ('{"rows": {"1": {"a": {"mean": -1e300}}}}', "is '-1e+300', too large a number"),
        ('{"rows": {"1": {"a": {"mean": NaN}}}}', "not a number"),
        ('{"rows": {"1": {"a": {"mean": 1, "ci95": true}}}}', "not a number"),
        ('{"rows": {"1": {"a": {"mean": 1' + "0" * 400 + "}}}}", "a number in it has 401 digits"),
        ('{"rows": {"1": {"a": {"mean": 1, "bytes": 1' + "0" * 9000 + "}}}}", "a number in it has 9001 digits"),
        ('{"rows": {"1": {"a": {"mean": 1, "ci95": -0.5}}}}', "'-0.5', not a number of 0 or more"),
        ('{"rows": {"1": {"a": {"mean": 1}}}, "notes": [1]}', "notes is not an object"),
        ("[" * 100_000, "not whole JSON"),
        ("[" * 100 + "]" * 100, "nested too deeply"),
        ("\udcff", "not whole JSON"),
    ],
)
def test_what_is_no_table_is_left_out(value: str, says: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, table2=table1())
    (folder / "table1.json").write_bytes(value.encode(errors="surrogateescape"))
    found = read(folder)
    assert [t.name for t in found.tables] == ["table2"]
    assert len(found.warnings) == 1
    assert says in found.warnings[0]


@pytest.mark.parametrize(
    "extra",
    [
        {"columns": 3, "seeds": "x", "settings": [1], "record": 5, "training_seconds": 7, "seconds": None},
        {"title": {"a": 1}, "axis": 4, "metric": [2], "device_seconds": [3, {"seconds": "x"}], "notes": "one text"},
        {"columns": [{"a": 1}, ["b"], 7], "seeds": {"a": 3}, "compared": {"a": [1]}},
        {"settings": {"a": 1}, "record": {"time": "2026", "hardware": 3, "versions": 4}, "seconds": {"a": {"b": "c"}}},
        {"seeds": [0, 1], "training_seconds": {"a": "long"}, "lower_is_better": 3, "columns": ["z", 4, "a"]},
    ],
)
def test_a_table_needs_no_more_than_its_means(extra: dict[str, Any], tmp_path: Path) -> None:
    rows = {"x": {"a": {"mean": 1.5}, "b": {"mean": 2, "odd": {"k": [None, True, 1e-9]}, "seconds": "?", "bytes": "?"}}}
    page = made(folder_of(tmp_path, table1={"rows": rows} | extra))
    found = cells(page.by_id("table1"))
    assert found["x", "a"].text == "1.500"
    assert found["x", "b"].text == "2.000"


def test_figures(page: Node) -> None:
    section = page.by_id("figure-one")
    assert section.all("h2")[0].text == "A figure"
    assert [tr.text for tr in section.all("tr")] == ["x1.5"]


@pytest.mark.parametrize("image", ["../secret.png", "none.png", "page.html", "false.png", "", "/etc/passwd.png"])
def test_only_images_beside_a_figure_are_shown(image: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, table1=table1())
    (folder / "figures").mkdir()
    for name in ("page.html", "false.png", "../secret.png"):
        (folder / "figures" / name).write_text("secret")
    (folder / "figures" / "a.json").write_text(json.dumps({"title": "A", "image": image}))
    page = made(folder)
    assert page.by_id("figure-a")
    assert not page.all("img")
    assert bool(page.all("aside", "warning")) == bool(image)


def test_other_files_are_listed_closed(page: Node, example: Path) -> None:
    (other,) = page.by_id("others").all("details")
    assert "open" not in other.attributes
    assert other.all("summary")[0].text == "bench-step.json"
    assert all(text in other.text for text in ("phase1_ms = 0.8", "net.channels = 8", "commit = abc1234"))
    assert (other.all("a")[0].attributes["href"] or "").startswith("data:application/json;base64,")


def test_other_files_may_hold_anything(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path, a=[1, 2], b=7, c="null", d={"config": 3, "record": [1], "title": 4}, e={"record": RECORD}
    )
    assert [d.all("summary")[0].text for d in made(folder).by_id("others").all("details")] == [
        f"{n}.json" for n in "abcde"
    ]


def test_half_a_character_is_no_harm(tmp_path: Path) -> None:
    rows = {"\ud800 row": {"a": {"mean": 1.5}}}
    found = cells(made(folder_of(tmp_path, table1={"rows": rows, "title": "\x00"})).by_id("table1"))
    assert found["? row", "a"].text == "1.500"


def test_the_results_of_this_project_are_readable() -> None:
    folder = Path(__file__).parents[3] / "results"
    assert read(folder).warnings == []


def test_the_same_results_give_the_same_bytes(example: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(example, copy)
    for folder, name in ((example, "a"), (copy, "b")):
        write(folder, tmp_path / f"{name}.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_page_stays_small(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, table1=table1(), big={"values": ["x" * 100] * 40_000})
    (folder / "figures").mkdir()
    for name in "abc":
        (folder / "figures" / f"{name}.json").write_text(json.dumps({"title": name, "image": f"{name}.svg"}))
        (folder / "figures" / f"{name}.svg").write_text("<svg>" + " " * (1 << 20) + "</svg>")
    page = made(folder)
    assert (tmp_path / "report.html").stat().st_size < 5 * 2**20
    assert len(page.all("img")) == 2
    warning = page.all("aside", "warning")[0].text
    assert "figures/c.json is too large" in warning
    assert "big.json is too large" in warning
    assert len(write(folder, tmp_path / "report.html")) == 2


@pytest.mark.parametrize(
    ("ours", "ci95", "paper", "lower", "found"),
    [
        (95.4, None, 95.4, False, "reached"),
        (95.4 - 1e-12, None, 95.4, False, "reached"),  # the sum of floats
        (95.0, 0.4, 95.4, False, "missed"),
        (95.0, 0.5, 95.4, False, "within"),
        (95.0, None, 95.4, False, "missed"),
        (95.0, 0.1, 95.4, True, "reached"),
        (95.4, 0.5, 95.0, True, "within"),
        (96.0, 0.5, 95.0, True, "missed"),
    ],
)
def test_verdict(ours: float, ci95: float | None, paper: float, lower: bool, found: str) -> None:
    assert verdict(TableCell(ours, ci95, None, {}), TableCell(paper, None, None, {}), lower) == found


def test_a_folder_without_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = folder_of(tmp_path)
    for words, says in (
        ([str(empty)], "holds no result"),
        ([str(tmp_path / "none")], "There is no folder"),
        ([str(empty), "--out", str(tmp_path / "x.json")], "ends in .html"),
        ([str(empty), "--out", str(tmp_path / "none" / "x.html")], "there is no folder"),
    ):
        out = [] if "--out" in words else ["--out", str(tmp_path / "report.html")]
        assert main(["report", *words, *out]) == 2
        error = capsys.readouterr().err.strip()
        assert says in error
        assert error.count("\n") == 0
    (empty / "table1.json").write_text("{")
    with pytest.raises(UserError, match=r"no result that can be read \(table1.json is left out"):
        read(empty)
    assert [p.name for p in tmp_path.iterdir()] == ["results"]


def test_a_folder_that_is_named_like_a_result_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, table1=table1())
    (folder / "table6.json").mkdir()
    (box,) = made(folder).all("aside", "warning")
    assert "table6.json is left out: it is no file" in box.text


@pytest.mark.skipif(os.name == "nt", reason="there are no such files")
def test_what_is_no_file_is_named_and_waits_for_nobody(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, table1=table1())
    (folder / "table4.json").symlink_to(folder / "gone")
    (folder / "table5.json").symlink_to(folder / "table5.json")
    os.mkfifo(folder / "table6.json")
    (folder / "figures").write_text("")
    found = read(folder).warnings
    for name in ("figures", "table4.json", "table5.json", "table6.json"):
        assert any(warning.startswith(f"{name} is left out: ") for warning in found), name


@pytest.mark.skipif(os.name == "nt", reason="there are no such files")
@pytest.mark.parametrize("what", ["pipe", "large"])
def test_an_image_that_is_no_file_or_too_large_is_left_out(what: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, table1=table1())
    (folder / "figures").mkdir()
    (folder / "figures" / "a.json").write_text('{"title": "a", "image": "a.png"}')
    if what == "pipe":
        os.mkfifo(folder / "figures" / "a.png")
    else:
        with (folder / "figures" / "a.png").open("wb") as file:
            file.truncate(2**40)
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(read(folder).warnings), daemon=True)
    thread.start()
    thread.join(10)
    assert found, "it waits, or fails"
    says = "is a named pipe" if what == "pipe" else "has 1099511627776 bytes, but may have 67108864 at most"
    assert says in found[0][0]


def test_commits_are_short_and_named_once(tmp_path: Path) -> None:
    commits = "c7f6b6a9042a007c3e8739a771ce631c8c64f7b5", "c7f6b6a9042a", "0123456789ab+changes"
    tables = {f"table{i}": table1() | {"record": RECORD | {"commit": c}} for i, c in enumerate(commits, 1)}
    header = made(folder_of(tmp_path, **tables)).all("header")[0].text
    assert header.count("c7f6b6a") == 1
    assert "c7f6b6a9" not in header
    assert "0123456+changes" in header
