"""Files of tensors: what training and learners know.

Each is a safetensors file with a checksum and JSON in its header, which names the kind of file and the version of its
format. A file of an older version is brought up to date, step by step, as it is read. Reading runs no code and takes
memory in proportion: as much as the tensors have, and some 20 times what their names, labels and settings have.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialize
from safetensors.torch import save as serialize
from torch import Tensor

from kcciol.errors import UserError, quoted
from kcciol.files import MOST_VALUES, opened, parse_json, replacing, shortened, values_in

LARGEST_HEADER = 2**25  # of a file of tensors
MOST_TENSORS = 2**12
OPENED_BY = {  # kinds of files that users open, for who takes one for another
    "checkpoint": "kcciol.load",
    "encoder": "kcciol.open_encoder",
    "learner": "kcciol.OnlineLearner.load",
}
TYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool}

Header = dict[str, Any]
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Format:
    """A kind of file of tensors."""

    kind: str
    migrations: tuple[Callable[[Header, Tensors], tuple[Header, Tensors]], ...]
    """The first brings what a file of version 1 holds to version 2, and so on."""
    error: type[UserError] = UserError
    """What is raised where there is no such file, or it is damaged."""

    early: Callable[[Header], int | None] = lambda header: None
    """The version of a file whose header does not name its kind, as the first did not; none when it is another's."""
    sums_since: int = 1
    """The version of the first such file that has a checksum."""
    entry: str = "kcciol"
    """Where the first such files have their header."""

    @property
    def version(self) -> int:
        return len(self.migrations) + 1


def add_nothing(header: Header, tensors: Tensors) -> tuple[Header, Tensors]:
    """The migration to a version that adds what older files need not have."""
    return header, tensors


def write_tensors(path: Path, form: Format, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Tensors and what belongs to them as one file."""
    text = json.dumps({"kind": form.kind, "version": form.version, **header})
    if len(text) > LARGEST_HEADER // 2:
        raise UserError(f"The names in {path} are {len(text):,} letters in all, which is too much: use shorter ones.")
    if (values := values_in(text.encode())) > MOST_VALUES // 2:
        raise UserError(f"{path} would hold {values:,} names and settings, and {MOST_VALUES // 2:,} are the most.")
    if len(tensors) > MOST_TENSORS:
        raise UserError(f"{path} would hold {len(tensors):,} tensors, and {MOST_TENSORS:,} are the most.")
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    data = serialize(whole, sealed(text, whole))
    with replacing(path) as part:  # into this very file, which is locked: `save_file` would put another in its place
        part.write_bytes(data)


def require_own(path: Path, form: Format) -> None:
    """Refuse to write over what its header does not call a file of this kind; an empty one may go."""
    if not os.path.isfile(path) or not os.path.getsize(path):  # noqa: PTH113, PTH202  (they raise nothing)
        return
    try:
        with opened(path, form.kind, form.error, largest=2**62) as (file, size):
            header = parse_json(unsealed(_metadata(file, size, path, form), form.entry)[0] or "null")
            kind = (_identified(header, form) or (None,))[0]
    except (ValueError, TypeError, LookupError, AttributeError, form.error):
        kind = None
    if kind != form.kind:
        raise form.error(
            f"{path} is there already, and is no saved {form.kind} that is whole: choose another name, or remove it."
        )


def kind_of(path: Path, wanted: str) -> str | None:
    """What a file of tensors says that it is; none where it does not say it, as the first did not. wanted: what is
    looked for, in messages."""
    form = Format(wanted, ())
    try:
        with opened(path, form.kind) as (file, size):
            header = parse_json(unsealed(_metadata(file, size, path, form))[0] or "null")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"The {wanted} {path} is damaged or truncated ({shortened(error)}): use another one.") from None
    found = header.get("kind") if isinstance(header, dict) else None
    return found if isinstance(found, str) else None


def read_tensors(path: Path, form: Format) -> tuple[Header, Tensors]:
    """What `write_tensors` has written, now or at any time before."""
    what = f"The {form.kind} {path}"
    try:
        with opened(path, form.kind, form.error) as (file, size):
            text, found_sum = unsealed(_metadata(file, size, path, form), form.entry)
            header = None if text is None else parse_json(text)
            named = isinstance(header, dict) and "kind" in header
            kind, version, header = _identified(header, form) or (None, None, {})
            if kind != form.kind:  # whatever it is, no more of it is read
                but = "" if kind is None else f", but a saved {shortened(kind)}"
                how = f": {OPENED_BY[kind]} opens it" if isinstance(kind, str) and kind in OPENED_BY else ""
                raise form.error(f"The file {path} is not a saved {form.kind}{but}{how}.")
            file.seek(0)
            tensors: Tensors = deserialize(file.read(size))
    except (SafetensorError, ValueError, TypeError, LookupError, RuntimeError, AttributeError) as error:
        raise form.error(f"{what} is damaged or truncated ({shortened(error)}): use another one.") from None
    if type(version) is not int or version < 1:
        raise form.error(f"{what} is damaged: its version is {shortened(version)}.")
    if version > form.version:
        raise form.error(
            f"{what} is of version {version} of its format, but this kcciol reads up to version {form.version}: "
            "install a newer one."
        )
    summed = named or version >= form.sums_since
    if summed and found_sum != checksum(text or "", tensors, shapes=named or version > 1):
        raise form.error(f"{what} is damaged: it is not as it was saved; use another copy.")
    if odd := [name for name, tensor in tensors.items() if tensor.dtype not in TYPES]:
        raise form.error(f"{what} is damaged: {quoted(odd[0])} is of {tensors[odd[0]].dtype}, which none of ours is.")
    for migrate in form.migrations[version - 1 :]:
        header, tensors = migrate(header, tensors)
    return header, tensors


def _metadata(file: IO[bytes], size: int, path: Path, form: Format) -> dict[str, str]:
    """What a file of tensors says of itself, if it can be such a file: as long as its tensors are."""
    start = file.read(9)
    if len(start) == 9 and start[8:] != b"{":
        raise form.error(f"The file {path} is not a saved {form.kind}.")
    length = int.from_bytes(start[:8], "little")
    if length > LARGEST_HEADER:
        raise ValueError("its header is too long")
    text = (start[8:] + file.read(max(0, length - 1)))[:length]
    if values_in(text) > 16 * MOST_TENSORS:  # each has a type, a shape of some numbers, and a place
        raise ValueError("it speaks of too many tensors")
    entries: dict[str, Any] = parse_json(text.decode())
    metadata: dict[str, str] = entries.pop("__metadata__", None) or {}
    end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    if size != 8 + length + end:
        raise ValueError(f"it has {size} bytes, but speaks of {8 + length + end}")
    return metadata


def _identified(header: Any, form: Format) -> tuple[Any, Any, Header] | None:
    """Kind and version of a file with this header, and what else is in it; none when it is not ours."""
    if not isinstance(header, dict):
        return None
    if "kind" in header:
        return header.pop("kind"), header.pop("version", None), header
    version = form.early(header)
    return None if version is None else (form.kind, version, header)


def sealed(text: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """A header's text with its checksum before it: safetensors writes several entries in any order."""
    return {"kcciol": f"{checksum(text, tensors)} {text}"}


def unsealed(metadata: Mapping[str, str], entry: str = "kcciol") -> tuple[str | None, str | None]:
    """Text and checksum, of the first versions too, which had them apart."""
    if "kcciol" not in metadata:
        return metadata.get(entry), metadata.get("sum")
    text = metadata["kcciol"]
    return (text[65:], text[:64]) if text[64:65] == " " and text[0] != "{" else (text, None)


def checksum(text: str, tensors: Mapping[str, Tensor], shapes: bool = True) -> str:
    """Of all that is saved; that of the first version says nothing of shapes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() if shapes else name.encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
