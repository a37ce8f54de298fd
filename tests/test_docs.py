"""The numbers in the docs are those in results/; the examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kcciol
from kcciol.kernels import have_triton

ROOT = Path(__file__).parents[1]


def test_tables_are_up_to_date() -> None:
    words = [sys.executable, str(ROOT / "benchmarks" / "docs_tables.py"), "--check"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_links_lead_somewhere() -> None:
    for name in (
        "README.md",
        "docs/adding.md",
        "docs/encoders.md",
        "docs/training-encoders.md",
        "docs/protocol.md",
        "docs/architecture.md",
        "docs/methods.md",
        "docs/report.md",
        "docs/reproduce.md",
        "docs/results.md",
        "docs/results-omniglot.md",
        "docs/consolidation.md",
    ):
        path = ROOT / name
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (path.parent / target).exists(), f"{name}: {target}"


MODULES = [
    module.name
    for module in pkgutil.walk_packages(kcciol.__path__, "kcciol.")
    if module.name != "kcciol.__main__" and (have_triton() or "triton" not in module.name)
]
EXAMPLES = [name for name in MODULES if ">>>" in Path(importlib.import_module(name).__file__ or "").read_text()]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
