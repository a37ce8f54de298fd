"""Imports go downwards only."""

from __future__ import annotations

import ast
from pathlib import Path

import kcciol

ROOT = Path(kcciol.__file__).parent
# from the top down; a module may import those below its own line, and its own package
LEVELS = [
    ["__main__"],
    ["cli"],
    ["bench"],
    ["quickstart", "reproduce"],
    ["measure", "compare", "report", "members"],
    ["representation", "regression", "generation"],
    ["together"],
    ["evaluation"],
    ["learners", "meta"],
    ["engine"],
    ["problems"],
    ["nets", "data"],
    ["kernels"],
    ["representations"],
    ["config", "atomic"],
    ["values"],
    ["errors"],
]
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names}


def imported(path: Path) -> set[str]:
    """The parts of kcciol that a file imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("kcciol.") and name != "kcciol.__version__"}
    return found


def test_every_module_has_a_level() -> None:
    parts = {
        p.stem if p.is_file() else p.name for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert parts - {"__init__"} == set(LEVEL)


def test_imports_go_downwards() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own != "__init__":
            wrong += [
                f"{path.relative_to(ROOT)} imports {name}"
                for name in imported(path)
                if name != own and LEVEL[name] <= LEVEL[own]
            ]
    assert not wrong
