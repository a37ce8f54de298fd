"""Names that other packages bring: found without being imported, never a traceback."""

from __future__ import annotations

import ast
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcciol.cli import COMMANDS
from kcciol.encoders import ENCODERS
from kcciol.errors import UserError
from kcciol.learners import LEARNERS
from kcciol.learners.card import card_in
from kcciol.paper.report.facts import explained
from kcciol.plugins import Registry

GROUP = "kcciol.test-things"


def package(folder: Path, name: str, code: str, group: str = GROUP, **things: str) -> None:
    """An installed package of one module that brings these things."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{thing} = {where}" for thing, where in things.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def things() -> Registry[object]:
    def require(found: object) -> None:
        if not isinstance(found, int):
            raise TypeError("it is no number")

    return Registry(GROUP, "thing", {"ours": "math:pi"}, require)


def test_a_package_brings_a_thing_which_is_imported_when_it_is_used(folder: Path) -> None:
    package(folder, "one_thing", "value = 7", theirs="one_thing:value")
    found = things()
    assert list(found) == ["ours", "theirs"]
    assert len(found) == 2
    assert [found.package(name) for name in found] == ["", "one_thing"]
    assert "one_thing" not in sys.modules
    assert found.find("theirs") == found["theirs"] == 7
    assert found.survey(found.find) == ({"ours": math.pi, "theirs": 7}, [])
    with pytest.raises(UserError, match="There is no thing 'none'; there are: ours, theirs"):
        found.find("none")


def test_a_source_is_read_without_importing_the_packages_around_it(folder: Path) -> None:
    (folder / "outer_package").mkdir()
    (folder / "outer_package" / "__init__.py").write_text("raise RuntimeError")
    (folder / "outer_package" / "inner.py").write_text("class Value: 'What it is.'\nother = 3")
    (folder / "outer_package" / "wrong.py").write_text("class Value:")
    inner = "outer_package.inner:"
    package(folder, "nested", "", theirs=inner + "Value", plain=inner + "other", wrong="outer_package.wrong:Value")
    package(folder, "absent", "", gone="outer_package.none:Value", c="math:pi")
    definition = things().definition("theirs")
    assert definition is not None
    assert ast.get_docstring(definition) == "What it is."
    assert [things().definition(name) for name in ("plain", "wrong", "gone", "c")] == [None] * 4


def test_a_name_of_ours_is_ours(folder: Path) -> None:
    package(folder, "greedy", "value = 7", ours="greedy:value")
    says = "The package greedy brings a thing 'ours', but that is one of ours: ours is used."
    assert things().survey(things().find) == ({"ours": math.pi}, [says])


def test_two_packages_with_one_name_are_both_refused(folder: Path) -> None:
    package(folder, "first", "value = 1", theirs="first:value")
    package(folder, "second", "value = 2", theirs="second:value")
    with pytest.raises(UserError, match="The packages first and second each bring a thing 'theirs': uninstall one"):
        things().find("theirs")
    found, wrong = things().survey(things().find)
    assert list(found) == ["ours"]
    assert len(wrong) == 1


@pytest.mark.parametrize(
    ("code", "where", "reason"),
    [
        ("raise OSError('no such disk')", "broken:value", "OSError: no such disk"),
        ("import not_there", "broken:value", "No module named 'not_there'"),
        ("", "broken:value", "AttributeError"),
        ("value = 'text'", "broken:value", "it is no number"),
        ("value = 7", "elsewhere:value", "No module named 'elsewhere'"),
    ],
)
def test_a_broken_package_is_one_sentence(folder: Path, code: str, where: str, reason: str) -> None:
    package(folder, "broken", code, theirs=where)
    with pytest.raises(UserError, match="of the package broken cannot be used") as caught:
        things().find("theirs")
    assert reason in str(caught.value)


def test_learners_are_listed_without_importing_torch() -> None:
    wide = {**os.environ, "COLUMNS": "200"}
    code = "import sys; from kcciol import cli; cli.main(['list', sys.argv[1]]); sys.exit('torch' in sys.modules)"
    for what, said in (
        ("learners", "a mean for each class"),
        ("encoders", "representation from a file"),
        ("data", "alphabets"),
    ):
        found = subprocess.run([sys.executable, "-c", code, what], capture_output=True, text=True, env=wide)
        assert found.returncode == 0, found.stderr
        assert said in found.stdout


def test_what_is_read_from_a_source_is_what_is_imported() -> None:
    for name, learner in LEARNERS.items():
        assert card_in(LEARNERS.definition(name)) == learner.card
        held = learner.settings_type.__dataclass_fields__.get(learner.card.capacity)
        assert held is None or learner.card.per_class or f"{held.default} " in learner.card.keeps
    for registry in (ENCODERS, COMMANDS):
        for name, function in registry.items():
            assert registry.describe(name) == (function.__doc__ or "").splitlines()[0] != ""


@pytest.mark.parametrize(
    "body", ["pass", "card = 3", "card = Card(WHAT, 'x', keeps='y')", "card = Card('a')", "card = Card(**{})"]
)
def test_a_card_that_is_not_written_out_is_not_read(body: str) -> None:
    assert card_in(ast.parse(f"class A:\n    {body}").body[0]) is None


def test_a_broken_package_does_not_stop_a_report(folder: Path) -> None:
    package(folder, "broken_learner", "raise ImportError", "kcciol.learners", worse="broken_learner:Worse")
    assert "worse" in LEARNERS
    assert set(explained(["ncm", "worse"])) == {"ncm"}


def test_what_cannot_be_a_place_is_named(folder: Path) -> None:
    package(folder, "badly_written", "", theirs="their package!!")
    (folder / "badly_written-1.0.dist-info" / "METADATA").unlink()  # nor does it say what it is called
    found, wrong = things().survey(things().describe)
    assert list(found) == ["ours"]
    assert wrong == [
        "The thing 'theirs' of the package their package!! is 'their package!!', but must be 'module:name': mend or "
        "uninstall that package."
    ]


def test_a_package_that_ends_the_process_is_a_sentence(folder: Path) -> None:
    package(folder, "leaver", "raise SystemExit(3)", theirs="leaver:value")
    with pytest.raises(UserError, match="of the package leaver cannot be used"):
        things().find("theirs")
