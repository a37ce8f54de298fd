"""A learner in a file: how it is written, and what is asked of one that others may have written."""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path

import numpy as np

from kcciol.errors import UserError, quoted
from kcciol.files import MOST_VALUES, require_place
from kcciol.files.tensors import LARGEST_HEADER, Format, Header, Tensors, require_own, write_tensors
from kcciol.learner.inputs import require_plain
from kcciol.learners import learner_type
from kcciol.learners.base import Learner, Settings, check_settings
from kcciol.learners.knowledge import KIND
from kcciol.learners.model import Head
from kcciol.serialization import from_dict


def _with_kind(header: Header, tensors: Tensors) -> tuple[Header, Tensors]:
    """Version 2 says the kind of learner, and what made the features, which nobody knows of older files."""
    if "name" not in header:
        raise UserError("it does not say which learner it is.")
    return header, {KIND: learner_type(header["name"]).kind(), **tensors}


FORMAT = Format(
    "learner",
    (_with_kind,),
    early=lambda header: 1 if header.pop("format", None) == "kcciol learner 1" else None,
    entry="learner",
)
FIELDS = {"name", "width", "seed", "encoder", "settings", "classes"}  # of the header
MOST_LABELS = MOST_VALUES // 2 - 2**16  # what is left has room for the settings
MOST_LETTERS = LARGEST_HEADER // 2 - 2**20
MOST_EXTRA = 2**28  # bytes that a file may ask for beyond what is in it, unless whoever loads it allows more


def letters_of(label: Hashable) -> int:
    """How many letters a label takes in a file."""
    return len(json.dumps(label)) + 2


def require_room_for_labels(count: int, letters: int) -> None:
    """Refuse so many labels, of so many letters in all, as no file could hold."""
    if count > MOST_LABELS:
        raise UserError(f"A learner may know {MOST_LABELS:,} classes, and this would be one of {count:,}.")
    if letters > MOST_LETTERS:
        raise UserError(
            f"The labels would be {letters:,} letters in all, as a file has them, and {MOST_LETTERS:,} are the most: "
            "use shorter ones."
        )


def bytes_allowed(most_extra: object) -> int:
    """What whoever loads a file allows it to ask for."""
    if isinstance(most_extra, bool) or not isinstance(most_extra, (int, np.integer)) or most_extra < 0:
        raise UserError(f"most_extra is {quoted(most_extra)}, but must be a number of bytes, such as {MOST_EXTRA}.")
    return int(most_extra)


def write(path: Path, header: Header, learner: Learner) -> None:
    """All of it, or nothing where it cannot be gone on from; never over somebody's file of another kind."""
    require_place(path)
    require_own(path, FORMAT)
    try:
        learner.require_sound()
    except UserError as error:
        raise UserError(f"The learner is not saved, as {str(error)[:-1]}: {path} is as it was.") from None
    try:
        write_tensors(path, FORMAT, header, learner.state_dict())
    except OSError as error:
        raise UserError(f"The learner cannot be written to {path} ({error}).") from None


def read_settings(header: Header, tensors: Tensors, most_extra: int) -> Settings:
    """The settings in a file, if a learner may be made of its header."""
    if missing := FIELDS - {"encoder"} - header.keys():
        raise UserError(f"it lacks {', '.join(sorted(missing))}.")
    if other := header.keys() - FIELDS:
        raise UserError(f"it holds {quoted(min(other))}, which no learner of ours has.")
    method, width = learner_type(header["name"]), header["width"]
    if not isinstance(header["settings"], dict) or not isinstance(header["classes"], list):
        raise UserError("its settings are no table, or its labels no list.")
    settings = from_dict(method.settings_type, header["settings"], header["name"])
    if type(width) is not int or not 1 <= width < 2**24:
        raise UserError(f"its width is {quoted(width)}.")
    check_settings(settings)
    _require_room(method.extra_bytes(Head(width), settings, len(header["classes"])) - bytes_of(tensors), most_extra)
    return settings


def load_knowledge(learner: Learner, header: Header, tensors: Tensors, most_extra: int) -> None:
    """Bring a learner that was made of this header to where the saved one stood."""
    labels = header["classes"]
    extra = learner.extra_bytes(learner.model, learner.settings[0], len(labels)) - bytes_of(tensors)
    _require_room(max(0, extra) + learner.bytes_to_come(len(labels)), most_extra)
    learner.load_state_dict(tensors)
    for label in labels:
        require_plain(label)
    if not learner.classes == len(labels) == len(set(labels)):
        raise UserError("its labels do not fit what it knows.")
    if not bool(learner.seen.all()):
        raise UserError("it has labels of classes that it has not seen.")


def bytes_of(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def _require_room(extra: int, most_extra: int) -> None:
    if extra > most_extra:
        raise UserError(
            f"it asks for {extra:,} bytes beyond what is in the file, and {most_extra:,} are allowed: "
            "if you trust it, allow more (most_extra)."
        )
