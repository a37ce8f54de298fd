"""One stream, labels that need not be known: `learn_one`, `predict_one`, and a file that goes on tomorrow."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from kcciol.encoders import Encoder
from kcciol.engine.device import machine_bytes
from kcciol.errors import UserError, lacks_memory, quoted
from kcciol.files import enough_memory, path_of
from kcciol.files.tensors import read_tensors
from kcciol.learner.inputs import example_of, examples_of, identity_of, label_of, labels_of, require_no_file, width_of
from kcciol.learner.saving import (
    FORMAT,
    MOST_EXTRA,
    bytes_allowed,
    letters_of,
    load_knowledge,
    read_settings,
    require_room_for_labels,
    write,
)
from kcciol.learners import learner_type
from kcciol.learners.base import Learner, Settings, check_settings
from kcciol.learners.model import Head
from kcciol.learners.snapshot import NO_CLASS, Snapshot
from kcciol.serialization import from_dict

DIVERGED = "The learner has diverged, so it knows nothing any more: start anew with a lower rate."

Answer = TypeVar("Answer")


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
        width = width_of(width, encoder)
        if isinstance(seed, np.integer):
            seed = int(seed)
        if type(seed) is not int or not 0 <= seed < 2**63:
            raise UserError(f"seed is {quoted(seed)}, but must be a whole number of 0 or more (and below 2^63).")
        method = learner_type(name)
        self.name, self.width, self.seed = name, width, seed
        self.encoder = identity_of(encoder, width)
        if settings is not None and not isinstance(settings, (Mapping, Settings)):
            raise UserError(f"settings is {settings!r}, but must be a dictionary like {{'rate': 0.1}}.")
        if settings is None or isinstance(settings, Mapping):
            settings = from_dict(method.settings_type, settings or {}, name)
        self.settings: Settings = settings
        if not isinstance(self.settings, method.settings_type):
            raise UserError(
                f"These are settings of another learner than {name!r}: use {method.settings_type.__name__}."
            )
        check_settings(self.settings)
        if (needed := method.extra_bytes(Head(width), self.settings, 0)) > (there := machine_bytes()):
            raise UserError(
                f"A learner {name!r} of these settings cannot be made here: it takes {needed:,} bytes, of {there:,}."
            )
        try:
            with torch.inference_mode(False):
                self.learner = method(Head(width), self.settings, (seed,))
        except (MemoryError, RuntimeError) as error:
            raise UserError(f"A learner {name!r} of {width} features cannot be made here ({error}).") from None
        self._labels: list[Hashable] = []  # in the order in which they came; nothing in it ever moves
        self._number: dict[Hashable, int] = {}
        self._letters = 0  # that the labels take in a file
        self._turn = threading.RLock()  # of whoever changes something
        self._known: Snapshot | None = None  # made when somebody first asks

    @property
    def classes_(self) -> tuple[Hashable, ...]:
        """The labels known by now, in the order in which they came."""
        return tuple(self._labels[: self.learner.classes])  # one that is being learned stands there already

    def __repr__(self) -> str:
        made = f", features of {quoted(self.encoder)}" if self.encoder else ""
        return f"<OnlineLearner {self.name!r}: {len(self.classes_)} classes, {self.width} features{made}>"

    def learn_one(self, x: ArrayLike | Tensor, label: Hashable) -> OnlineLearner:
        """Learn one example (width,) or (1, width), of a class known or new."""
        example, label = example_of(x, self.width), label_of(label)
        with self._learning():
            self._require_room([label])
            self.learner.learn(example, np.array([self._number_of(label)]))
        return self

    def learn_many(self, xs: ArrayLike | Tensor | Sequence[Any], labels: Iterable[Hashable]) -> OnlineLearner:
        """Learn examples (n, width) in their order, or none if one of them is bad. The result is that of `learn_one` on
        each, but for rounding; several of one class in a row are learned together, which is quicker with most. Where
        memory runs out, or somebody interrupts, those before stay learned."""
        examples = examples_of(xs, self.width)
        checked = labels_of(labels, len(examples))
        first = 0
        with self._learning():
            self._require_room(checked)
            for label, run in itertools.groupby(checked):
                last = first + len(list(run))
                self.learner.observe_class(examples[None, first:last], np.array([self._number_of(label)]))
                first = last
        return self

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """One at a time; then whoever asks learns of it. A class that could not be learned, for want of room or since
        the learning was interrupted, is not known. Of an example that failed half-way closed forms know nothing;
        others may have taken a part of its step."""
        with self._turn, torch.inference_mode(False):  # what is made in that mode could not be changed outside of it
            try:
                yield
            except (MemoryError, RuntimeError) as error:
                raise UserError(f"This cannot be learned here ({str(error).partition(chr(10))[0]}).") from error
            finally:
                while len(self._labels) > self.learner.classes:
                    self._letters -= letters_of(label := self._labels.pop())
                    self._number.pop(label, None)
                if self._known is not None:
                    known = None
                    try:
                        with contextlib.suppress(MemoryError, RuntimeError):  # whoever asks next tries again
                            known = self.learner.snapshot()
                    finally:  # interrupted, what was known before is no answer any more
                        self._known = known if known is not None and known.lasting else None

    def _ask(self, question: Callable[[Snapshot], Answer]) -> Answer:
        """The answer by what is known now."""
        try:
            if (known := self._known) is not None:
                return question(known)
            with self._turn, torch.inference_mode(False):
                known = self.learner.snapshot()
                if not known.lasting:
                    return question(known)
                self._known = known
            return question(known)
        except (MemoryError, RuntimeError) as error:
            if not lacks_memory(error):
                raise
            raise UserError("There is not enough memory to answer: ask about fewer examples at once.") from error

    def _number_of(self, label: Hashable) -> int:
        """The class of this label, which is named before it is learned: whatever happens, none has another's name."""
        if label not in self._number:
            self._letters += letters_of(label)
            self._labels.append(label)
            self._number[label] = len(self._labels) - 1
        return self._number[label]

    def _require_room(self, labels: Iterable[Hashable]) -> None:
        """Refuse, before anything is learned, labels that would be too many to be saved."""
        new = {label for label in labels if label not in self._number}
        if not new:
            return
        require_room_for_labels(len(self._labels) + len(new), self._letters + sum(map(letters_of, new)))

    def end_task(self) -> OnlineLearner:
        """Say that a task has ended, to learners that make use of it. It ends whole or not at all."""
        if type(self.learner).end_task is Learner.end_task:
            return self
        with self._learning():
            before = copy.deepcopy(self.learner)
            try:
                self.learner.end_task()
            except BaseException:
                self.learner = before
                raise
        return self

    def predict_one(self, x: ArrayLike | Tensor) -> Hashable:
        """The class of one example."""
        return self._answers(example_of(x, self.width))[0]

    def predict_many(self, xs: ArrayLike | Tensor | Sequence[Any]) -> list[Hashable]:
        """The class of each of several examples (n, width)."""
        examples = examples_of(xs, self.width)
        return self._answers(examples) if len(examples) else []

    def scores_one(self, x: ArrayLike | Tensor) -> dict[Hashable, float]:
        """How much speaks for each class; only their order means something."""
        example = example_of(x, self.width)
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
        with self._turn, torch.inference_mode(False):
            return copy.deepcopy({n: v for n, v in vars(self).items() if n not in ("_turn", "_known")})

    def __setstate__(self, state: dict[str, Any]) -> None:
        if torch.is_inference_mode_enabled():  # a file read in that mode gives what could not learn outside of it
            with torch.inference_mode(False):
                state = copy.deepcopy(state)
        vars(self).update(state, _turn=threading.RLock(), _known=None)

    def __deepcopy__(self, memo: dict[int, Any]) -> OnlineLearner:
        other = type(self).__new__(type(self))
        with torch.inference_mode(False):
            other.__setstate__(self.__getstate__())
        return other

    def _answers(self, examples: Tensor) -> list[Hashable]:
        answers = self._ask(lambda known: known.answers(examples))
        if NO_CLASS in answers:
            raise UserError(DIVERGED)
        return [self._labels[answer] for answer in answers]

    # --- a file -----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Everything in one file, written beside and renamed: an older one is replaced or left as it was."""
        with self._turn:
            header = {"name": self.name, "width": self.width, "seed": self.seed, "encoder": self.encoder}
            header |= {"settings": dataclasses.asdict(self.settings), "classes": self._labels}
            write(path_of(path), header, self.learner)

    @classmethod
    @torch.inference_mode(False)
    def load(
        cls, path: str | Path, encoder: Encoder | str | None = None, most_extra: int = MOST_EXTRA
    ) -> OnlineLearner:
        """Go on where `save` stood, exactly.

        encoder: what makes the features from now on, or its identity; it must be what made them before, where the file
        says what that was. most_extra: bytes that the learner may take beyond what is in the file, as room for what it
        has yet to keep.
        """
        path = path_of(path)
        require_no_file(encoder)
        header, tensors = read_tensors(path, FORMAT)
        most_extra = bytes_allowed(most_extra)
        with enough_memory(path, FORMAT.kind):
            try:
                settings = read_settings(header, tensors, most_extra)
                learner = cls(header["name"], header["width"], settings, header["seed"])
                learner.encoder = identity_of(header.get("encoder"), learner.width)  # whatever it is called
                load_knowledge(learner.learner, header, tensors, most_extra)
            except UserError as error:
                raise UserError(f"The learner {path} cannot be used: {error}") from None
        learner._labels = header["classes"]
        learner._number = {label: number for number, label in enumerate(learner._labels)}
        learner._letters = sum(map(letters_of, learner._labels))
        identity = identity_of(encoder, learner.width)
        if identity and learner.encoder and identity != learner.encoder:
            raise UserError(
                f"The learner {path} has learned features of the encoder {quoted(learner.encoder)}, not of "
                f"{quoted(identity)}: load it with the encoder that it was saved with."
            )
        learner.encoder = learner.encoder or identity
        return learner
