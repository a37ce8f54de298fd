"""A learner under test: small models, streams that are easy to learn, and how a broken promise is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.config import NetConfig
from kcciol.errors import UserError
from kcciol.learners import LEARNERS, learner_type
from kcciol.learners.base import Learner, Settings
from kcciol.learners.model import Head, Model, Network
from kcciol.nets.encoder import ConvEncoder
from kcciol.random import seeded
from kcciol.serialization import from_dict

WIDTH = 10  # features of a small head
NET, IMAGE = NetConfig(channels=4, strides=(2, 1)), (1, 10, 10)  # a small network
CLOSE = 2e-4  # how near numbers come that are computed in another order


@dataclass(frozen=True)
class Case:
    """A learner with settings, on a small model."""

    name: str  # empty for a class that no entry point names
    method: type[Learner]
    settings: Settings
    model: Model

    def make(self, keys: Sequence[int] = (3,)) -> Learner:
        """One that knows nothing, with a copy for each key."""
        return self.method(self.model, self.settings, keys)

    def require(self, holds: bool, sentence: str) -> None:
        if not holds:
            raise AssertionError(f"The learner {self.name or self.method.__name__}: {sentence}")

    def require_refusal(self, call: Callable[[], object], what: str, learner: Learner | None = None) -> None:
        """`call` raises a UserError; and the learner, if one is given, knows what it knew."""
        before = learner.state_dict() if learner is not None else {}
        try:
            call()
        except UserError:
            if learner is not None:
                after = learner.state_dict()
                self.require(equal(before, after), f"{what} is refused, but has changed what it knows.")
            return
        except Exception as error:
            raise AssertionError(
                f"The learner {self.name or self.method.__name__}: {what} must raise a UserError, not {error!r}."
            ) from error
        self.require(False, f"{what} must be refused by a UserError.")


def case_of(
    learner: str | type[Learner], trains: str = "head", settings: Settings | Mapping[str, Any] | None = None
) -> Case:
    """A learner on a head ("head") or on a whole network ("all")."""
    method = learner_type(learner) if isinstance(learner, str) else learner
    names = [name for name, found in LEARNERS.survey(LEARNERS.find)[0].items() if found is method]
    name = learner if isinstance(learner, str) else (*names, "")[0]
    if not isinstance(settings, Settings):
        settings = from_dict(method.settings_type, settings or {}, method.__name__)
    return Case(name, method, settings, Head(WIDTH) if trains == "head" else network())


def network(seed: int = 0) -> Network:
    """A whole network of two convolutions."""
    return Network(NET, IMAGE, ConvEncoder(NET, IMAGE).init(seeded(seed)))


def examples(model: Model, count: int, seed: int = 0, classes: int = 4) -> tuple[Tensor, NDArray[np.int64]]:
    """(count, *input_shape) and labels (count,): class after class, each around its own centre."""
    generator = seeded(seed)
    labels = np.arange(count) * classes // count
    if model.input_dtype == torch.uint8:
        centres = torch.randint(0, 256, (classes, *model.input_shape), generator=generator)
        noise = torch.randint(-20, 21, (count, *model.input_shape), generator=generator)
        return (centres[labels] + noise).clamp(0, 255).to(torch.uint8), labels
    centres = 2 * torch.randn(classes, *model.input_shape, generator=generator)
    return (centres[labels] + 0.3 * torch.randn(count, *model.input_shape, generator=generator)).relu(), labels


def feed(learner: Learner, x: Tensor, y: NDArray[np.int64], tasks: bool = True) -> None:
    """A stream (m, ...) to all copies, or one to each (B, m, ...), with the labels (m,); a task ends where the label
    changes."""
    if x.ndim == 1 + len(learner.model.input_shape):
        x = x.expand(learner.copies, *x.shape)
    for i, label in enumerate(y):
        if tasks and i and label != y[i - 1]:
            learner.end_task()
        learner.learn(x[:, i].to(learner.device), np.full(learner.copies, label))


def answers(learner: Learner, x: Tensor) -> Tensor:
    """The classes (B, m) that are answered for x (m, ...)."""
    return learner.scores(x.expand(learner.copies, *x.shape)).argmax(-1)


def same(a: Learner, b: Learner) -> bool:
    """Whether two learners know exactly the same."""
    return equal(a.state_dict(), b.state_dict())


def equal(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> bool:
    """Whether two states are the same bit for bit."""
    return one.keys() == two.keys() and all(
        one[n].dtype == two[n].dtype and torch.equal(_bits(one[n]), _bits(two[n])) for n in one
    )


def _bits(t: Tensor) -> Tensor:
    return t.nan_to_num(nan=12345.0) if t.is_floating_point() else t


def near(one: Tensor, two: Tensor, tolerance: float = CLOSE) -> bool:
    """Whether two tensors differ by rounding only."""
    return one.shape == two.shape and torch.allclose(one, two, rtol=tolerance, atol=tolerance, equal_nan=True)
