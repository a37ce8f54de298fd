"""The sentences of the docs are written by hand, and their numbers are those in results/."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.claims import CLAIM, mistakes

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("docs/results.md", 50),
        ("docs/results-omniglot.md", 20),
        ("docs/protocol.md", 2),
        ("docs/consolidation.md", 0),
        ("README.md", 0),
    ],
)
def test_numbers_in_prose_are_those_in_results(name: str, claims: int) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert mistakes(text) == []
    assert len(CLAIM.findall(text)) >= claims  # the README quotes none but in its table


def test_nobody_is_promised_that_nothing_is_forgotten() -> None:
    places = [ROOT / "pyproject.toml", ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    assert [path.name for path in places if "without forgetting" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("84.0 ± 0.2<!-- table1/200/kcciol -->, 84<!-- table1/200/kcciol --> %", []),
        ("84.1<!-- table1/200/kcciol -->", ["84.1 of table1/200/kcciol is 84.0"]),
        ("84.0 ± 0.3<!-- table1/200/kcciol -->", ["84.0 ± 0.3 of table1/200/kcciol is 84.0 ± 0.2"]),
        ("+5.3 ± 2.0<!-- table1/200/kcciol - anml -->", []),
        ("-5.3<!-- table1/200/kcciol - anml -->", ["-5.3 of table1/200/kcciol - anml is 5.3"]),
        ("−1.4<!-- table1/100/kcciol - oml-same -->", []),
        ("91.5<!-- masking/delta 0.5: 50 classes -->", []),
        ("8.4<!-- table1/200/nothing -->", ["8.4: there is no table1/200/nothing ('nothing')"]),
        ("after 200 classes 84.0", ["84.0 is read from nowhere"]),
        ("`rate 0.1`, [a](b-1.5.md)", []),
        ("a trial<!-- not in results --> had 0.1<!-- not in results -->, 0.2", ["0.2 is read from nowhere"]),
        ("in every row<!-- all: table1/*/oml-same > table1/*/anml -->", []),
        ("<!-- all: table2/*/kcciol - kcciol-o-plain in 10..14 -->", []),
        ("<!-- all but 150: table1/*/kcciol - kcciol-o in -0.5..0.5 -->", []),
        (
            "<!-- all but 50, 100: table1/*/kcciol - kcciol-o in -0.5..0.5 -->",
            [
                "table1/*/kcciol - kcciol-o in -0.5..0.5 is True of 50",
                "table1/*/kcciol - kcciol-o in -0.5..0.5 is True of 100",
                "table1/*/kcciol - kcciol-o in -0.5..0.5 is False of 150",
            ],
        ),
        ("<!-- all: table1/*/kcciol < table1/*/anml -->", ["a comparison cannot be read"]),
        ("<!-- all: table1/10/kcciol > table1/10/anml -->", ["table1/10/kcciol > table1/10/anml is said of nothing"]),
        ("the highest<!-- highest: table3/*/srnn of mrcl, oml -->", []),
        (
            "<!-- highest: table2/*/srnn of oml, mrcl -->",
            [f"table2/*/srnn > table2/*/mrcl is False of {n}" for n in range(6, 22, 2)],
        ),
        ("<!-- highest of mrcl: table3/*/srnn -->", ["a comparison cannot be read"]),
        ("<!-- table1 -->\n| 84.0 |\n<!-- end -->", []),
    ],
)
def test_what_is_wrong_is_found(text: str, wrong: list[str]) -> None:
    assert mistakes(text) == wrong
