"""What every learner and every encoder must do, as checks that other packages can run on theirs, without pytest.

    from kcciol.testing import check_encoder, check_learner

    check_learner("their-learner")                          # by the name of its entry point
    check_learner(TheirLearner, settings={"epochs": 1})     # or the class; settings that make it quick
    check_encoder(their_encoder, images)                    # what makes features for learners

They return when all is well, and raise AssertionError with a sentence at the first thing that is not. Each of `CHECKS`
is one promise, said in its docstring; a test runner may run them one by one on a `case_of` a learner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kcciol.encoders import Encoder
from kcciol.learners import learner_type
from kcciol.learners.base import Learner, Settings
from kcciol.testing.case import Case, case_of, near
from kcciol.testing.checks import CHECKS

__all__ = ["CHECKS", "Case", "case_of", "check_encoder", "check_learner"]


def check_learner(learner: str | type[Learner], settings: Settings | Mapping[str, Any] | None = None) -> None:
    """Run every check on a learner, for each of the models that its card says it trains.

    learner: its name, or the class. A file of a learner names it, so only what has a name is saved and loaded.
    settings: its own or a dictionary; without them the defaults, which may be slow.
    """
    for trains in (learner_type(learner) if isinstance(learner, str) else learner).card.trains:
        case = case_of(learner, trains, settings)
        for check in CHECKS:
            check(case)


def check_encoder(encoder: Encoder, images: Tensor) -> None:
    """Features of images (n, c, h, w) uint8, n at least 2, are (n, width) float32, finite, the same each time, and each
    image's are its own, whatever others are there; the identity is a text that stays the same."""
    identity, found = encoder.identity, encoder.features(images)
    wanted = (*images.shape[:-3], encoder.width)
    alone = torch.stack([encoder.features(image) for image in images])
    for holds, sentence in (
        (found.shape == wanted, f"the features are {tuple(found.shape)}, but must be {wanted}."),
        (found.dtype == torch.float32, f"the features are {found.dtype}, but must be torch.float32."),
        (bool(found.isfinite().all()), "a feature is not a finite number."),
        (not found.requires_grad, "the features ask for gradients."),
        (torch.equal(found, encoder.features(images)), "the same images have other features the second time."),
        (near(found, alone), "an image has other features alone than among others."),
        (isinstance(identity, str) and bool(identity), f"the identity is {identity!r}, but must be a text."),
        (encoder.identity == identity, "the identity has changed."),
    ):
        if not holds:
            raise AssertionError(f"The encoder {type(encoder).__name__}: {sentence}")
