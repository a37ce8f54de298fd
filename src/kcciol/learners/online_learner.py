"""One stream, labels of any kind: `learn_one`, `predict_one`, and a file that goes on tomorrow."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from kcciol.atomic import replacing, require_place, share
from kcciol.errors import UserError
from kcciol.learners import learner_type
from kcciol.learners.der import LOGITS
from kcciol.learners.learner import Settings
from kcciol.learners.model import Head
from kcciol.values import from_dict

_FORMAT = "kcciol learner 1"
LARGEST = 1e6  # a larger value would outweigh all others for good
NO_VALUE = f"not a finite number of at most {LARGEST:,.0f} in size, so it is refused; scale the features if need be."


class OnlineLearner:
    """A learner on feature vectors, with labels that need not be known beforehand.

    >>> learner = OnlineLearner("ncm", width=2)
    >>> learner.learn_one([0.0, 1.0], "cat").learn_one([1.0, 0.0], ("any", "hashable", "thing")).predict_one([0.1, 0.8])
    'cat'
    """

    def __init__(
        self, name: str, width: int, settings: Settings | Mapping[str, Any] | None = None, seed: int = 0
    ) -> None:
        """settings: the learner's own, or a dictionary like {"rate": 0.1}; what is not in it keeps its default."""
        if isinstance(width, np.integer):
            width = int(width)
        if type(width) is not int or not 1 <= width < 2**24:
            raise UserError(f"width is {width!r}, but must be a whole number of at least 1 (and below 2^24).")
        if isinstance(seed, np.integer):
            seed = int(seed)
        if type(seed) is not int or not 0 <= seed < 2**63:
            raise UserError(f"seed is {seed!r}, but must be a whole number of 0 or more (and below 2^63).")
        method = learner_type(name)
        self.name, self.width, self.seed = name, width, seed
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
        self.classes_: list[Hashable] = []  # in the order in which they came
        self._number: dict[Hashable, int] = {}

    def learn_one(self, x: ArrayLike | Tensor, label: Hashable) -> OnlineLearner:
        """Learn one example, of a class known or new."""
        example, label = self._example(x), _checked(label)
        number = self._number.get(label, len(self.classes_))
        self.learner.learn(example, np.array([number]))
        self._name(number, label)
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
        for label, run in itertools.groupby(checked):
            number = self._number.get(label, len(self.classes_))
            last = first + len(list(run))
            self.learner.observe_class(examples[None, first:last], np.array([number]))
            self._name(number, label)
            first = last
        return self

    def _name(self, number: int, label: Hashable) -> None:
        """The class of this number has been learned."""
        if number == len(self.classes_):
            self._number[label] = number
            self.classes_.append(label)

    def end_task(self) -> OnlineLearner:
        """Say that a task has ended, to learners that make use of it."""
        self.learner.end_task()
        return self

    def predict_one(self, x: ArrayLike | Tensor) -> Hashable:
        """The class of one example."""
        return self._answers(self.learner.scores(self._example(x)[None])[0])[0]

    def predict_many(self, xs: ArrayLike | Tensor | Sequence[Any]) -> list[Hashable]:
        """The class of each of several examples (n, width)."""
        examples = self._examples(xs)
        return self._answers(self.learner.predict(examples[None])[0]) if len(examples) else []

    def scores_one(self, x: ArrayLike | Tensor) -> dict[Hashable, float]:
        """How much speaks for each class; only their order means something."""
        scores = self.learner.scores(self._example(x)[None])[0]
        self._answers(scores)  # refuses what has diverged
        return dict(zip(self.classes_, scores[0].tolist(), strict=True))

    def memory_bytes(self) -> int:
        """What is kept between examples, besides the head's own weights."""
        return sum(self.learner.memory().values())

    def _answers(self, scores: Tensor) -> list[Hashable]:
        best, answers = scores.max(-1)
        if not bool(best.isfinite().all()):
            raise UserError("The learner has diverged, so it knows nothing any more: start anew with a lower rate.")
        return [self.classes_[answer] for answer in answers.tolist()]

    def _example(self, x: ArrayLike | Tensor) -> Tensor:
        """(1, width)"""
        found = self._numbers(x).reshape(1, -1)
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

    def save(self, path: str | Path) -> None:
        """Everything in one file, written beside and renamed: an older one is replaced or left as it was."""
        path = _path(path)
        require_place(path)
        head = {"format": _FORMAT, "name": self.name, "width": self.width, "seed": self.seed}
        head |= {"settings": dataclasses.asdict(self.settings), "classes": self.classes_}
        try:
            text = json.dumps(head)
            if json.loads(text)["classes"] != self.classes_:
                raise TypeError("it would come back as something else")
        except (TypeError, ValueError) as error:
            raise UserError(f"Only labels of text, numbers, true, false and None can be saved ({error}).") from None
        tensors = {name: t.contiguous() for name, t in self.learner.state_dict().items()}
        # (kept logits of classes that came later are NaN)
        whole = [t for name, t in tensors.items() if t.is_floating_point() and name != LOGITS]
        if not all(bool(t.isfinite().all()) for t in whole):
            raise UserError(f"The learner has diverged, so it is not saved: {path} is as it was.")
        try:
            with replacing(path) as beside:
                save_file(tensors, beside, metadata={"learner": text, "sum": _sum(text, tensors)})
                share(beside)
        except (SafetensorError, OSError, TypeError, ValueError) as error:
            raise UserError(f"The learner cannot be written to {path} ({error}).") from None

    @classmethod
    def load(cls, path: str | Path) -> OnlineLearner:
        """Go on where `save` stood, exactly."""
        path = _path(path)
        try:
            with safe_open(path, framework="pt") as file:
                meta = file.metadata() or {}
                head = json.loads(meta.get("learner", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(f"The learner {path} cannot be read ({error}).") from None
        if not isinstance(head, dict) or head.get("format") != _FORMAT:
            raise UserError(f"The file {path} is not a saved learner.")
        if meta.get("sum") != _sum(meta["learner"], tensors):
            raise UserError(f"The learner {path} is damaged: it is not as it was saved; use another copy.")
        if missing := {"name", "width", "seed", "settings", "classes"} - head.keys():
            raise UserError(f"The learner {path} is damaged: it lacks {', '.join(sorted(missing))}.")
        settings = from_dict(learner_type(head["name"]).settings_type, head["settings"], head["name"])
        learner = cls(head["name"], head["width"], settings, head["seed"])
        learner.learner.load_state_dict(tensors)
        learner.classes_ = list(head["classes"])
        learner._number = {label: number for number, label in enumerate(learner.classes_)}
        if not learner.learner.classes == len(learner.classes_) == len(learner._number):
            raise UserError(f"The learner {path} is damaged: its labels do not fit what it knows.")
        return learner


def _path(path: str | Path) -> Path:
    if not isinstance(path, (str, Path)):
        raise UserError(f"{path!r} is not the name of a file.")
    return Path(path)


def _number(value: object) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_))


def _checked(label: Hashable) -> Hashable:
    """The label, if it can be one."""
    if isinstance(label, (Tensor, np.generic, np.ndarray)):
        if label.ndim:
            raise UserError(f"The label {label!r} is several numbers, so it cannot be a label.")
        dated = isinstance(label, (np.datetime64, np.timedelta64))
        label = label.item()  # a tensor is equal to no other, however alike
        if dated and (label is None or isinstance(label, int)):
            raise UserError("A date that is none, or finer than a microsecond, cannot be a label: use text.")
    try:
        hash(label)
    except TypeError:
        raise UserError(
            f"The label {label!r} cannot be a label, because it can change: use text or a number."
        ) from None
    if isinstance(label, (float, Decimal)) and label != label:
        raise UserError("NaN is not equal to itself, so it cannot be a label.")
    return label


def _sum(text: str, tensors: dict[str, Tensor]) -> str:
    """A checksum of all that is saved."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()
