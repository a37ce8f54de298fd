"""One stream, labels that need not be known: `learn_one`, `predict_one`, and a file that goes on tomorrow."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from kcciol.encoders import Encoder
from kcciol.errors import UserError, quoted
from kcciol.files import require_place
from kcciol.files.tensors import Format, Header, Tensors, add_nothing, read_tensors, write_tensors
from kcciol.learners import learner_type
from kcciol.learners.base import Settings, check_settings
from kcciol.learners.model import Head
from kcciol.learners.snapshot import NO_CLASS, Snapshot
from kcciol.serialization import from_dict

FORMAT = Format(  # version 2 says what made the features, and the kind of learner
    "learner",
    (add_nothing,),
    early=lambda header: 1 if header.pop("format", None) == "kcciol learner 1" else None,
    entry="learner",
)
LARGEST = 1e6  # a larger value would outweigh all others for good
LONGEST = 1000  # characters of a label
MOST_EXTRA = 2**28  # bytes that a file may ask for beyond what is in it, unless whoever loads it allows more
DIVERGED = "The learner has diverged, so it knows nothing any more: start anew with a lower rate."
NO_VALUE = f"not a finite number of at most {LARGEST:,.0f} in size, so it is refused; scale the features if need be."


Answer = TypeVar("Answer")


def in_turn(save: Callable[[OnlineLearner, str | Path], None]) -> Callable[[OnlineLearner, str | Path], None]:
    """Nobody learns while it runs."""

    @functools.wraps(save)
    def run(self: OnlineLearner, path: str | Path) -> None:
        with self._turn:
            save(self, path)

    return run


class OnlineLearner:
    """A learner on feature vectors, with labels that need not be known beforehand: text, whole numbers, other finite
    numbers, True, False and None. As in a dictionary, 1, 1.0 and True are one label.

    Any number of threads may use it at once. Those that learn, end a task or save take turns. Closed-form learners and
    `online` answer from a snapshot of what is known, which no later example changes, and so wait for nobody (but the
    first question after a start); with the others, whoever asks takes a turn too.

    >>> learner = OnlineLearner("ncm", width=2)
    >>> learner.learn_one([0.0, 1.0], "cat").learn_one([1.0, 0.0], 7).predict_one([0.1, 0.8])
    'cat'
    """

    def __init__(
        self,
        name: str,
        width: int | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        seed: int = 0,
        encoder: Encoder | str | None = None,
    ) -> None:
        """settings: the learner's own, or a dictionary like {"rate": 0.1}; what is not in it keeps its default.
        encoder: what makes the features, or its identity, to be remembered with them; the width may be left out where
        an encoder says it."""
        width = _width(width, encoder)
        if isinstance(seed, np.integer):
            seed = int(seed)
        if type(seed) is not int or not 0 <= seed < 2**63:
            raise UserError(f"seed is {seed!r}, but must be a whole number of 0 or more (and below 2^63).")
        method = learner_type(name)
        self.name, self.width, self.seed = name, width, seed
        self.encoder = _identity(encoder, width)
        if settings is not None and not isinstance(settings, (Mapping, Settings)):
            raise UserError(f"settings is {settings!r}, but must be a dictionary like {{'rate': 0.1}}.")
        if settings is None or isinstance(settings, Mapping):
            settings = from_dict(method.settings_type, settings or {}, name)
        self.settings: Settings = settings
        if not isinstance(self.settings, method.settings_type):
            raise UserError(
                f"These are settings of another learner than {name!r}: use {method.settings_type.__name__}."
            )
        try:
            self.learner = method(Head(width), self.settings, (seed,))
        except (MemoryError, RuntimeError) as error:
            raise UserError(f"A learner {name!r} of {width} features cannot be made here ({error}).") from None
        self._labels: list[Hashable] = []  # in the order in which they came; nothing in it ever moves
        self._number: dict[Hashable, int] = {}
        self._turn = threading.RLock()  # of whoever changes something
        self._known: Snapshot | None = None  # made when somebody first asks

    @property
    def classes_(self) -> tuple[Hashable, ...]:
        """The labels known by now, in the order in which they came."""
        return tuple(self._labels)

    def __repr__(self) -> str:
        made = f", features of {quoted(self.encoder)}" if self.encoder else ""
        return f"<OnlineLearner {self.name!r}: {len(self._labels)} classes, {self.width} features{made}>"

    def learn_one(self, x: ArrayLike | Tensor, label: Hashable) -> OnlineLearner:
        """Learn one example (width,) or (1, width), of a class known or new."""
        example, label = self._example(x), _checked(label)
        with self._learning():
            self.learner.learn(example, np.array([self._number.get(label, len(self._labels))]))
            self._name(label)
        return self

    def learn_many(self, xs: ArrayLike | Tensor | Sequence[Any], labels: Iterable[Hashable]) -> OnlineLearner:
        """Learn examples (n, width) in their order, or none if one of them is bad. The result is that of `learn_one` on
        each, but for rounding; several of one class in a row are learned together, which is quicker with most."""
        if isinstance(labels, (Tensor, np.ndarray)):
            labels = labels.tolist()
        if isinstance(labels, (str, bytes, Set, Mapping)) or not isinstance(labels, Iterable):
            raise UserError(f"labels is {labels!r}, but must be a list of labels, one for each example.")
        checked = [_checked(label) for label in labels]
        examples = self._examples(xs)
        if len(examples) != len(checked):
            raise UserError(f"There are {len(examples)} examples, but {len(checked)} labels.")
        first = 0
        with self._learning():
            for label, run in itertools.groupby(checked):
                number = self._number.get(label, len(self._labels))
                last = first + len(list(run))
                try:
                    self.learner.observe_class(examples[None, first:last], np.array([number]))
                finally:
                    self._name(label)
                first = last
        return self

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """One at a time; then whoever asks learns of it. Classes that there is no room for are not known."""
        with self._turn:
            try:
                yield
            except (MemoryError, RuntimeError) as error:
                raise UserError(f"This cannot be learned here ({str(error).partition(chr(10))[0]}).") from error
            finally:
                if self._known is not None:
                    self._known = self.learner.snapshot()

    def _ask(self, question: Callable[[Snapshot], Answer]) -> Answer:
        """The answer by what is known now."""
        if (known := self._known) is not None:
            return question(known)
        with self._turn:
            known = self.learner.snapshot()
            if not known.lasting:
                return question(known)
            self._known = known
        return question(known)

    def _name(self, label: Hashable) -> None:
        """If a class has just been learned for the first time, this is what it is called."""
        if self.learner.classes > len(self._labels):
            self._number[label] = len(self._labels)
            self._labels.append(label)

    def end_task(self) -> OnlineLearner:
        """Say that a task has ended, to learners that make use of it."""
        with self._learning():
            self.learner.end_task()
        return self

    def predict_one(self, x: ArrayLike | Tensor) -> Hashable:
        """The class of one example."""
        return self._answers(self._example(x))[0]

    def predict_many(self, xs: ArrayLike | Tensor | Sequence[Any]) -> list[Hashable]:
        """The class of each of several examples (n, width)."""
        examples = self._examples(xs)
        return self._answers(examples) if len(examples) else []

    def scores_one(self, x: ArrayLike | Tensor) -> dict[Hashable, float]:
        """How much speaks for each class; only their order means something."""
        example = self._example(x)
        scores = self._ask(lambda known: known.scores(example))[0]
        scores = scores.masked_fill(scores.isnan(), -math.inf)
        if not math.isfinite(scores.max()):
            raise UserError(DIVERGED)
        return dict(zip(self._labels, scores.tolist(), strict=False))  # others may have come since

    def memory_bytes(self) -> int:
        """What is kept between examples, besides the head's own weights."""
        with self._turn:
            return sum(self.learner.memory().values())

    def __getstate__(self) -> dict[str, Any]:
        """For a copy, which has turns and snapshots of its own."""
        with self._turn:
            return copy.deepcopy({n: v for n, v in vars(self).items() if n not in ("_turn", "_known")})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _turn=threading.RLock(), _known=None)

    def _answers(self, examples: Tensor) -> list[Hashable]:
        answers = self._ask(lambda known: known.answers(examples))
        if NO_CLASS in answers:
            raise UserError(DIVERGED)
        return [self._labels[answer] for answer in answers]

    def _example(self, x: ArrayLike | Tensor) -> Tensor:
        """(1, width), of an example (width,) or (1, width)."""
        found = self._numbers(x)
        if found.shape not in ((self.width,), (1, self.width)):
            raise UserError(f"An example must be {self.width} numbers, not {tuple(found.shape)}.")
        found = found.reshape(1, -1)
        if found.numel() and not found.abs().max() <= LARGEST:
            raise UserError(f"An example has a value that is {NO_VALUE}")
        return found

    def _examples(self, xs: ArrayLike | Tensor | Sequence[Any]) -> Tensor:
        """(n, width), all of them good."""
        xs = list(xs) if isinstance(xs, Iterator) else xs
        if isinstance(xs, (list, tuple)):
            if not xs:
                return torch.empty(0, self.width)
            if any(isinstance(x, Tensor) for x in xs):
                rows = [self._numbers(x) for x in xs]
                if len({row.shape for row in rows}) > 1:
                    raise UserError(f"Several examples must be rows of {self.width} numbers each.")
                xs = torch.stack(rows)
        found = self._numbers(xs)
        if found.ndim != 2 or found.shape[1] != self.width:
            raise UserError(f"Several examples must be rows of {self.width} numbers, not {tuple(found.shape)}.")
        if not bool((good := (found.abs() <= LARGEST).all(1)).all()):
            raise UserError(f"The example of index {int((~good).nonzero()[0])} has a value that is {NO_VALUE}")
        return found

    def _numbers(self, xs: ArrayLike | Tensor) -> Tensor:
        try:
            if isinstance(xs, Tensor):
                if xs.is_complex():
                    raise TypeError("complex numbers have no order")
                return xs.detach().to_dense().to("cpu", torch.float32)
            if any(map(np.ma.is_masked, xs if isinstance(xs, (list, tuple)) else [xs])):
                raise TypeError("some of these are masked")
            found = np.asarray(xs)
            if found.dtype.kind not in "biufO" or (found.dtype.kind == "O" and not all(map(_number, found.flat))):
                raise TypeError("text, dates and complex numbers are refused")
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
                found = np.ascontiguousarray(found, dtype=np.float32)
            return torch.from_numpy(found if found.flags.writeable else found.copy())
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise UserError(f"An example must be {self.width} numbers ({error}).") from None

    # --- a file -----------------------------------------------------------------------------------------------------

    @in_turn
    def save(self, path: str | Path) -> None:
        """Everything in one file, written beside and renamed: an older one is replaced or left as it was."""
        path = _path(path)
        require_place(path)
        try:
            self.learner.require_sound()
        except UserError as error:
            raise UserError(f"The learner is not saved, as {str(error)[:-1]}: {path} is as it was.") from None
        header = {"name": self.name, "width": self.width, "seed": self.seed, "encoder": self.encoder}
        header |= {"settings": dataclasses.asdict(self.settings), "classes": self._labels}
        try:
            write_tensors(path, FORMAT, header, self.learner.state_dict())
        except OSError as error:
            raise UserError(f"The learner cannot be written to {path} ({error}).") from None

    @classmethod
    def load(
        cls, path: str | Path, encoder: Encoder | str | None = None, most_extra: int = MOST_EXTRA
    ) -> OnlineLearner:
        """Go on where `save` stood, exactly.

        encoder: what makes the features from now on, or its identity; it must be what made them before, where the file
        says what that was. most_extra: bytes that the learner may take beyond what is in the file, as room for what it
        has yet to keep.
        """
        path = _path(path)
        header, tensors = read_tensors(path, FORMAT)
        try:
            learner = cls._made(header, tensors, most_extra)
        except UserError as error:
            raise UserError(f"The learner {path} cannot be used: {error}") from None
        identity = _identity(encoder, learner.width)
        if identity and learner.encoder and identity != learner.encoder:
            raise UserError(
                f"The learner {path} has learned features of the encoder {quoted(learner.encoder)}, not of "
                f"{quoted(identity)}: load it with the encoder that it was saved with."
            )
        learner.encoder = learner.encoder or identity
        return learner

    @classmethod
    def _made(cls, header: Header, tensors: Tensors, most_extra: int) -> OnlineLearner:
        """What is in a file."""
        if missing := {"name", "width", "seed", "settings", "classes"} - header.keys():
            raise UserError(f"it lacks {', '.join(sorted(missing))}.")
        name, width, classes = header["name"], header["width"], header["classes"]
        method = learner_type(name)
        if not isinstance(header["settings"], dict) or not isinstance(classes, list):
            raise UserError("its settings are no table, or its labels no list.")
        settings = from_dict(method.settings_type, header["settings"], name)
        if type(width) is not int or not 1 <= width < 2**24:
            raise UserError(f"its width is {quoted(width)}.")
        check_settings(settings)
        extra = method.extra_bytes(Head(width), settings, len(classes))
        _require_room(extra, most_extra)
        learner = cls(name, width, settings, header["seed"], header.get("encoder"))
        _require_room(extra + learner.learner.bytes_to_come(len(classes)), most_extra)
        learner.learner.load_state_dict(tensors)
        for label in classes:
            _require_plain(label)
        learner._labels = list(classes)
        learner._number = {label: number for number, label in enumerate(learner._labels)}
        if not learner.learner.classes == len(learner._labels) == len(learner._number):
            raise UserError("its labels do not fit what it knows.")
        if not bool(learner.learner.seen.all()):
            raise UserError("it has labels of classes that it has not seen.")
        return learner


def _width(width: object, encoder: Encoder | str | None) -> int:
    """How many features an example has."""
    if width is None:
        if encoder is None or isinstance(encoder, str):
            raise UserError("width is missing: say how many features an example has, or give the encoder of them.")
        width = _made_by(encoder)
    if isinstance(width, np.integer):
        width = int(width)
    if type(width) is not int or not 1 <= width < 2**24:
        raise UserError(f"width is {quoted(width)}, but must be a whole number of at least 1 (and below 2^24).")
    return width


def _made_by(encoder: Encoder) -> int:
    """How many features an encoder makes."""
    width: int | None = getattr(encoder, "width", None)
    if width is None:
        raise UserError(f"The encoder {quoted(encoder)} does not say how many features it makes: it has no width.")
    return width


def _require_room(extra: int, most_extra: int) -> None:
    if extra > most_extra:
        raise UserError(
            f"it asks for {extra:,} bytes beyond what is in the file, and {most_extra:,} are allowed: "
            "if you trust it, allow more (most_extra)."
        )


def _identity(encoder: Encoder | str | None, width: int) -> str | None:
    """What an encoder is called, if its features fit."""
    identity = encoder if isinstance(encoder, str) or encoder is None else getattr(encoder, "identity", encoder)
    if not isinstance(identity, str) and identity is not None:
        raise UserError(f"encoder is {quoted(encoder)}, but must be an encoder or the text that identifies one.")
    if identity is not None and not 1 <= len(identity) <= LONGEST:
        raise UserError(f"The identity of an encoder must have 1 to {LONGEST} characters, not {len(identity)}.")
    if not isinstance(encoder, str) and encoder is not None and (makes := _made_by(encoder)) != width:
        raise UserError(f"The encoder makes {quoted(makes)} features, but this learner takes {width}.")
    return identity


def _path(path: str | Path) -> Path:
    if not isinstance(path, (str, Path)):
        raise UserError(f"{path!r} is not the name of a file.")
    return Path(path)


def _number(value: object) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_))


def _checked(label: Hashable) -> Hashable:
    """The label, if it is one that comes back from a file as it is."""
    if isinstance(label, (Tensor, np.generic, np.ndarray)) and not isinstance(label, (np.datetime64, np.timedelta64)):
        if label.ndim:
            raise UserError(f"The label {quoted(label)} is several numbers, so it cannot be a label.")
        label = label.item()  # a tensor is equal to no other, however alike
    _require_plain(label)
    if isinstance(label, float) and math.isinf(label):
        raise UserError(f"A number must be finite to be a label, and {label} is not.")
    return label


def _require_plain(label: Hashable) -> None:
    """Refuse what no file has as a label."""
    if label is not None and type(label) not in (str, int, float, bool):
        raise UserError(
            f"{quoted(label)} cannot be a label, as it could not be saved: use text, a number, True, False or None."
        )
    if label != label:
        raise UserError("NaN is not equal to itself, so it cannot be a label.")
    if isinstance(label, str) and len(label) > LONGEST:
        raise UserError(f"A label may have {LONGEST:,} characters, but {quoted(label, 40)} has {len(label):,}.")
    if isinstance(label, int) and abs(label) >= 2**63:
        raise UserError(f"A whole number must be below 2^63 to be a label, and {quoted(label, 40)} is not.")
