"""Imports go downwards only, between packages and between modules, and a public type has a name of its own."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import kcciol
from kcciol import testing

ROOT = Path(kcciol.__file__).parent
# from the top down; a module may import those below its own line, and its own package
LEVELS = [
    ["__main__"],
    ["cli"],
    ["paper"],
    ["evaluation"],
    ["testing"],
    ["learner", "recipes"],
    ["encoders"],
    ["learners", "meta"],
    ["engine"],
    ["nets", "data"],
    ["optim"],
    ["kernels", "random"],
    ["config"],
    ["plugins", "serialization"],
    ["files"],
    ["errors", "numbers"],
]
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names}
FILES = {
    ".".join(("kcciol", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def names_imported(module: str) -> set[str]:
    """What a module imports, at the top, inside functions or for type checkers alone, as dotted names."""
    names = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported(module: str) -> set[str]:
    """The parts of kcciol that a module imports."""
    names = names_imported(module)
    return {name.split(".")[1] for name in names if name.startswith("kcciol.") and name != "kcciol.__version__"}


def modules_imported(module: str) -> set[str]:
    """The modules of kcciol that a module imports; a package counts where something in its own file is wanted."""
    names = names_imported(module)
    return {name if name in FILES else name.rpartition(".")[0] for name in names} & FILES.keys() - {module}


def test_every_module_has_a_level() -> None:
    parts = {
        p.stem if p.is_file() else p.name for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert parts - {"__init__"} == set(LEVEL)


def test_imports_go_downwards() -> None:
    wrong = set()
    for module, path in FILES.items():
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own != "__init__":
            names = {name for name in imported(module) if name != own and LEVEL[name] <= LEVEL[own]}
            wrong |= {f"{path.relative_to(ROOT).as_posix()} imports {name}" for name in names}
    assert not wrong


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: modules_imported(module) for module in FILES}
    graph["kcciol"] = set()  # its names are imported when they are asked for, not before
    assert circles(graph) == []


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The modules that reach each other, without those that only lead there."""
    reached = {module: reachable(graph, module) for module in graph}
    found: list[set[str]] = []
    for module in graph:
        together = {other for other in reached[module] if module in reached[other]}
        if together and together not in found:
            found.append(together)
    return found


def reachable(graph: dict[str, set[str]], module: str) -> set[str]:
    found: set[str] = set()
    waiting = set(graph[module])
    while waiting:
        found |= waiting
        waiting = set().union(*(graph[one] for one in waiting)) - found
    return found


def test_only_the_command_line_imports_the_paper() -> None:
    importers = {module.split(".")[1] for module in FILES if module != "kcciol" and "paper" in imported(module)}
    assert importers == {"cli", "paper"}


def types_of(tree: ast.Module) -> Iterator[str]:
    """Public classes, and names of types such as `Grid = Mapping[str, Sequence[Any]]`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not of_values(node.value):
            name = node.targets[0].id
        else:
            continue
        if name[0].isupper() and not name.isupper():
            yield name


def of_values(node: ast.expr) -> bool:
    return isinstance(node, (ast.Call, ast.Constant, ast.Tuple, ast.List, ast.Dict))


def test_a_public_type_has_a_name_of_its_own() -> None:
    count = Counter(name for tree in TREES.values() for name in types_of(tree))
    assert {name for name, times in count.items() if times > 1} == set()


def test_types_are_found() -> None:
    text = "class One: ...\nTwo = dict[str, int]\nThree = TypeVar('Three')\nFOUR = 4\n_Five = list[int]\n"
    assert list(types_of(ast.parse(text))) == ["One", "Two"]


def test_no_two_functions_of_the_contract_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for module, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in testing.__all__:
                homes.setdefault(node.name, []).append(module)
    assert {name for name, where in homes.items() if len(where) > 1} == set()


READERS = {"kcciol.files", "kcciol.files.tensors"}  # the only ones that may read JSON and safetensors themselves


def test_only_files_reads_json_and_tensors() -> None:
    """Elsewhere a text could be too deep or too large, and a path a pipe. A copy by way of JSON is no reading."""
    found = set()
    for module in FILES.keys() - READERS:
        if any(name.split(".")[0] == "safetensors" for name in names_imported(module)):
            found.add(f"{module} imports safetensors")
        for node in ast.walk(TREES[module]):
            call = ast.unparse(node) if isinstance(node, ast.Call) else ""
            if call.startswith(("json.load(", "json.loads(")) and not call.startswith("json.loads(json.dumps("):
                found.add(f"{module}: {call}")
    assert not found
