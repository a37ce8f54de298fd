"""Modules, functions and settings that the docs name are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kcciol
from tests.test_imports import LEVELS

ROOT = Path(__file__).parents[1]
SOURCE = Path(kcciol.__file__).parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
CODE = [*sorted(SOURCE.rglob("*.py")), *sorted((ROOT / "benchmarks").glob("*.py"))]
TESTED = [*PAGES, ROOT / "README.md", *sorted((ROOT / "tests").rglob("*.md"))]  # pages that may name tests
MADE = {"src/kcciol/cli/hello.py"}  # by the steps of a page
GONE = {"mini.py", "heads.py", "sup.py"}  # scripts that records of results/ name
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def quoted(text: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def found(path: str) -> Path | None:
    """The file or folder of ours that is meant."""
    return next((place for base in (SOURCE, ROOT, ROOT / "docs") if (place := base / path).exists()), None)


def words_of(path: Path) -> Iterator[str]:
    """Every name in a module, and every word in its texts that are no sentences."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for field in ("name", "id", "attr", "arg", "asname"):
            if isinstance(name := getattr(node, field, None), str):
                yield from name.split(".")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield from re.split(r"[\W]+", node.value)


def defined(path: Path) -> set[str]:
    """The names that a module makes, those in its classes as `Class.name`."""
    names: set[str] = set()

    def take(body: list[ast.stmt], prefix: str = "") -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                take(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    take(ast.parse(path.read_text(encoding="utf-8")).body)
    return names


KNOWN = {word for path in CODE for word in words_of(path)}
KNOWN |= {word for path in SOURCE.rglob("*.toml") for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
KNOWN |= {path.stem for path in CODE} | {path.name for path in SOURCE.rglob("*") if path.is_dir()}


def wrong_paths(text: str) -> list[str]:
    """Modules and results that are not there."""
    paths = [path for path in quoted(text) if re.fullmatch(r"[\w/.-]+\.py|results/[\w/.-]+", path)]
    return [path for path in paths if found(path) is None and path not in MADE | GONE]


def wrong_names(text: str) -> list[str]:
    """Names that stand nowhere in the code."""
    names = [name for name in quoted(text) if NAME.fullmatch(name) and found(name) is None]
    return [name for name in names if not {*name.split(".")} <= KNOWN]


def wrong_tests(text: str) -> list[str]:
    """Files of tests, or tests in them, that are not there."""
    wrong = []
    for place, name in re.findall(r"(?<![\w./])(tests/[\w/.-]+)(?:::(\w+))?", text):
        path = ROOT / (place := place.rstrip("."))
        if not path.exists() or (name and name not in defined(path)):
            wrong.append(f"{place}::{name}" if name else place)
    return wrong


def wrong_rows(text: str) -> list[str]:
    """Functions in a table of modules and functions that are not in the module of their row."""
    wrong = []
    for table in re.findall(r"^\| module \| function \|.*\n\|.*\n((?:\|.*\n)+)", text, re.M):
        for row in table.splitlines():
            modules, functions = (quoted(cell) for cell in row.split("|")[1:3])
            there = set[str]().union(*(defined(found(path) or SOURCE / path) for path in modules))
            wrong += [f"{name} in {' or '.join(modules)}" for name in functions if name not in there]
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = prose(page)
    assert wrong_paths(text) == []
    assert wrong_names(text) == []
    assert wrong_rows(text) == []


@pytest.mark.parametrize("page", TESTED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tests_that_a_page_names_are_there(page: Path) -> None:
    assert wrong_tests(page.read_text(encoding="utf-8")) == []


def test_what_is_not_there_is_found() -> None:
    tests = "`tests/test_optim.py::test_the_definition_is_torchs_adam` tests/test_optim.py::test_it, tests/gone/a.py."
    assert wrong_tests(tests) == ["tests/test_optim.py::test_it", "tests/gone/a.py"]
    table = "| module | function | does |\n| --- | --- | --- |\n| `meta/mask.py`, `optim.py` | `{}`, `Adam.new` | . |\n"
    assert wrong_paths("`meta/masks.py`, `meta/mask.py`, `results/cells`") == ["meta/masks.py"]
    assert wrong_names("`get_musk`, `get_mask`, `OnlineLearner.learn_won`") == ["get_musk", "OnlineLearner.learn_won"]
    assert wrong_rows(table.format("get_mask")) == []
    assert wrong_rows(table.format("meta_gradient")) == ["meta_gradient in meta/mask.py or optim.py"]


def test_the_tree_is_that_of_the_imports() -> None:
    text = prose(ROOT / "docs" / "architecture.md")
    (tree,) = re.findall(r"^\| package \|.*\n\|.*\n((?:\|.*\n)+)", text, re.M)
    assert [quoted(row.split("|")[1]) for row in tree.splitlines()] == LEVELS[1:]
