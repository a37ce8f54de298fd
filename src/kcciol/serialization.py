"""Settings as plain values: dictionaries and TOML files, to and from any frozen dataclass."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from kcciol.errors import UserError, quoted
from kcciol.files import DEEPEST, read_text, require_shallow

T = TypeVar("T")
LARGEST_CONFIG = 2**20  # bytes


def to_dict(config: Any) -> dict[str, Any]:
    """A config (or a part of one) as plain JSON-ready values.

    >>> from kcciol.config import MaskConfig
    >>> to_dict(MaskConfig(delta=0.25))
    {'delta': 0.25, 'scope': 'global', 'which': 'top', 'soft': False}
    """
    return cast("dict[str, Any]", json.loads(json.dumps(dataclasses.asdict(config))))


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """The inverse of `to_dict`; keys left out keep their defaults.

    >>> from kcciol.config import MaskConfig
    >>> from_dict(MaskConfig, {"delta": 1}).delta
    1.0
    >>> from_dict(MaskConfig, {"detla": 1}, "mask")
    Traceback (most recent call last):
        ...
    kcciol.errors.UserError: mask.detla is not a setting; mask has: delta, scope, which, soft.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{where or 'a config'} is {quoted(values)}, but must be a table of settings.")
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{where}.{key}" if where else key
        if key not in known:
            raise UserError(f"{quoted(name)[1:-1]} is not a setting; {where or 'a config'} has: {', '.join(known)}.")
        arguments[key] = _convert(hints[key], value, name)
    return cls(**arguments)


def _convert(hint: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_dict(cast("type[Any]", hint), value, name)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in args:
            raise UserError(f"{name} is {quoted(value)}, but must be one of: {', '.join(map(str, args))}.")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{name} is {quoted(value)}, but must be a list.")
        return tuple(_convert(args[0], v, name) for v in value)
    assert not isinstance(hint, types.UnionType)
    if hint is float and type(value) is int:
        if abs(value) >= 2**1023:
            raise UserError(f"{name} is {quoted(value, 40)}, which is too large a number.")
        return float(value)
    if type(value) is not hint:
        raise UserError(f"{name} is {quoted(value)}, but must be of type {hint.__name__}.")
    return value


def to_toml(config: Any) -> str:
    """A config as a TOML file that `read_toml` and `from_dict` turn back into the same config."""
    values = to_dict(config)
    lines = [f"{key} = {_toml(value)}" for key, value in values.items() if not isinstance(value, dict)]
    for section, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it: as JSON does, but that no character is two."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError(f"{quoted(value)} holds bytes that are no text, so no config can name it: rename it.")
    return text


_NO_BARE_KEY = re.compile(
    r"""\"{3}(?:[^\\]|\\.)*?(?:\"{3,5}|\\?\Z) | '{3}.*?(?:'{3,5}|\Z) | "(?:[^"\\\n]|\\.)*"? | '[^'\n]*'? | \#[^\n]*""",
    re.DOTALL | re.VERBOSE,
)  # texts of several lines and of one, comments; one that does not end is an error there, and nothing after it is read


def _require_short_keys(text: str) -> None:
    """Refuse, before memory is taken, a key that is a table in a table in a table without end: a.a.a.a = 1."""
    bare = _NO_BARE_KEY.sub("q", text)
    if any(word.count(".") > DEEPEST for word in re.findall(r"[\w. \t-]+", bare)):
        raise ValueError("it is nested too deeply")


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file."""
    text = read_text(path, "config file", largest=LARGEST_CONFIG)
    try:
        _require_short_keys(text)  # else each takes its length squared of memory
        values = tomllib.loads(text)
        require_shallow(values)
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise UserError(f"The config file {path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise UserError(f"The config file {path} has lists within lists without end: a setting needs none.") from None
    return values
