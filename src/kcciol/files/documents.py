"""Tables of JSON that are read again: each says the version of its format, and older ones are brought up to date."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcciol.errors import UserError
from kcciol.files import read_json, shortened, write_json

Table = dict[str, Any]
VERSION = "format"


@dataclass(frozen=True)
class Document:
    """A kind of JSON file."""

    kind: str
    migrations: tuple[Callable[[Table], Table], ...] = ()
    """The first brings what a file of version 1 holds to version 2, and so on."""

    @property
    def version(self) -> int:
        return len(self.migrations) + 1

    def write(self, path: Path, value: Table) -> None:
        write_json(path, {VERSION: f"{self.kind} {self.version}", **value})

    def read(self, path: Path) -> Table:
        """What `write` has written, now or at any time before."""
        try:
            return self.updated(read_json(path, self.kind))
        except ValueError as error:
            raise UserError(f"The {self.kind} {path} cannot be read: {error}.") from None

    def updated(self, value: Any) -> Table:
        """What was read, in the format of today. What is none of this kind, or newer, is a ValueError.

        >>> Document("note", (lambda old: {"text": old["line"]},)).updated({"line": "of version 1"})
        {'text': 'of version 1'}
        """
        if not isinstance(value, dict):
            raise ValueError(f"it is no {self.kind}")
        found = {key: part for key, part in value.items() if key != VERSION}
        version = self._version_of(value)
        try:
            for migrate in self.migrations[version - 1 :]:
                found = migrate(found)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not whole ({type(error).__name__}: {error})") from None
        return found

    def _version_of(self, value: Table) -> int:
        """Files that do not say it are of version 1."""
        said = value.get(VERSION, f"{self.kind} 1")
        kind, _, number = said.rpartition(" ") if isinstance(said, str) else ("", "", "")
        if kind != self.kind or not (number.isascii() and number.isdigit()) or len(number) > 9 or int(number) < 1:
            raise ValueError(f"its format is {shortened(said)}, not that of a {self.kind}")
        if int(number) > self.version:
            raise ValueError(
                f"it is of version {number} of its format, but this kcciol reads up to version {self.version}: "
                "install a newer one"
            )
        return int(number)
