"""What can be asked for by name: ours, in one table a kind, and what other packages bring by entry points.

A package brings a learner by two lines of its pyproject.toml, and nothing of ours is touched:

    [project.entry-points."kcciol.learners"]
    nearest = "their_package.nearest:Nearest"

Nothing is imported before it is used, so that a list of what there is need not wait for torch.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Generic, TypeVar, cast

from kcciol.errors import UserError, quoted

T = TypeVar("T")
Looked = TypeVar("Looked")
Definition = ast.ClassDef | ast.FunctionDef


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by name, ours first, each imported when it is asked for.

    >>> numbers = Registry("example.numbers", "number", {"pi": "math:pi"})
    >>> list(numbers), round(numbers["pi"], 2)
    (['pi'], 3.14)
    >>> numbers.find("tau")
    Traceback (most recent call last):
    kcciol.errors.UserError: There is no number 'tau'; there are: pi.
    """

    def __init__(
        self, group: str, noun: str, ours: Mapping[str, str], require: Callable[[object], None] | None = None
    ) -> None:
        """group: of the entry points; noun: what one of these is called in a sentence; ours: "module" or
        "module:attribute" by name; require raises TypeError, with the reason, for what is no such thing."""
        self.group, self.noun, self.ours, self._require = group, noun, dict(ours), require

    def find(self, name: str) -> T:
        """The thing of this name, or a sentence that says why there is none."""
        if name not in self:
            raise UserError(f"There is no {self.noun} {name!r}; there are: {', '.join(self)}.")
        return self[name]

    def __getitem__(self, name: str) -> T:
        entry = self.entry(name)
        if name in self.ours:
            return cast(T, entry.load())
        try:
            found = entry.load()
            if self._require is not None:
                self._require(found)
        except (Exception, SystemExit) as error:  # whatever another package does wrong
            raise UserError(
                f"The {self.noun} {name!r} of the package {_package(entry)} cannot be used "
                f"({type(error).__name__}: {error}): mend or uninstall that package."
            ) from error
        return cast(T, found)

    def entry(self, name: str) -> EntryPoint:
        """Where the thing of this name is, unimported."""
        if name in self.ours:
            return EntryPoint(name, self.ours[name], self.group)
        entries = self._theirs()[name]
        if len(entries) > 1:
            packages = " and ".join(map(_package, entries))
            raise UserError(f"The packages {packages} each bring a {self.noun} {name!r}: uninstall one of them.")
        if not EntryPoint.pattern.match(entries[0].value):
            raise UserError(
                f"The {self.noun} {name!r} of the package {_package(entries[0])} is {quoted(entries[0].value)}, but "
                "must be 'module:name': mend or uninstall that package."
            )
        return entries[0]

    def definition(self, name: str) -> Definition | None:
        """The source of the thing, read without importing anything; none where it is not written out in its file."""
        entry = self.entry(name)
        path = _source(entry.module)
        if path is None:
            return None
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return None
        found = [node for node in tree.body if isinstance(node, Definition) and node.name == entry.attr]
        return found[-1] if found else None

    def describe(self, name: str) -> str:
        """The first line of the thing's docstring; it is imported only if it is not written out in its file."""
        definition = self.definition(name)
        said = ast.get_docstring(definition) if definition is not None else self.find(name).__doc__
        return (said or "").partition("\n")[0]

    def package(self, name: str) -> str:
        """The package that brings it; empty for ours."""
        return "" if name in self.ours else _package(self.entry(name))

    def survey(self, look: Callable[[str], Looked]) -> tuple[dict[str, Looked], list[str]]:
        """What `look` finds for each name, and a sentence for each that cannot be used."""
        found: dict[str, Looked] = {}
        wrong = [
            f"The package {_package(entry)} brings a {self.noun} {entry.name!r}, but that is one of ours: ours is used."
            for entry in entry_points(group=self.group)
            if entry.name in self.ours
        ]
        for name in self:
            try:
                found[name] = look(name)
            except UserError as error:
                wrong.append(str(error))
        return found, wrong

    def _theirs(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in sorted(entry_points(group=self.group), key=lambda e: (e.name, _package(e))):
            if entry.name not in self.ours:
                found.setdefault(entry.name, []).append(entry)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.ours or name in self._theirs())

    def __iter__(self) -> Iterator[str]:
        return iter([*self.ours, *self._theirs()])

    def __len__(self) -> int:
        return len(list(iter(self)))


def written_out(source: ast.AST | None, kind: type[T]) -> T | None:
    """The card of this kind that is written out in a class, `card = Card(...)` of plain values; none where it is not.
    So it is known before anything is imported."""
    calls = [
        node.value
        for node in (source.body if isinstance(source, ast.ClassDef) else [])
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "card" for t in node.targets)
    ]
    if not calls or not isinstance(call := calls[-1], ast.Call) or ast.unparse(call.func) != kind.__name__:
        return None
    try:
        values = [ast.literal_eval(value) for value in call.args]
        return kind(*values, **{str(pair.arg): ast.literal_eval(pair.value) for pair in call.keywords})
    except (ValueError, TypeError):  # not plain, or no such field
        return None


def _package(entry: EntryPoint) -> str:
    name = entry.dist.name if entry.dist is not None else None
    return name or re.split(r"[.:]", entry.value)[0]  # a damaged package has no name


def _source(module: str) -> Path | None:
    """`importlib.util.find_spec` would import the packages around the module; this does not."""
    path, spec, parts = None, None, module.split(".")
    for last in range(1, len(parts) + 1):
        name = ".".join(parts[:last])
        spec = next((s for finder in sys.meta_path if (s := finder.find_spec(name, path)) is not None), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    found = Path(spec.origin) if spec is not None and spec.origin is not None else None
    return found if found is not None and found.suffix == ".py" else None
