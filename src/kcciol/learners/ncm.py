"""Class means: the nearest mean answers (Mensink et al. 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from kcciol.learners.base import Labels, Settings
from kcciol.learners.blocks import Bound, Derived, Form, Known, Rows, linear
from kcciol.learners.card import Card
from kcciol.learners.statistics import ClassMeans, means_of


@dataclass(frozen=True)
class NCMSettings(Settings):
    distance: Literal["euclidean", "cosine"] = "euclidean"
    """How near."""


@dataclass(frozen=True)
class NearestMean(Form):
    """score_c(z) = -|z - mu_c|^2, or the cosine of z and mu_c."""

    cosine: bool

    def prepare(self, x: Tensor) -> Tensor:
        return F.normalize(x.double(), dim=-1) if self.cosine else x.double()

    def plain(self, query: Tensor, rows: Rows) -> Tensor:
        means = means_of(rows)
        if self.cosine:
            return query @ F.normalize(means, dim=-1).mT
        # |z - mu|^2 without |z|^2, which is the same for all classes
        return 2 * (query @ means.mT) - means.square().sum(-1)[:, None]

    def derive(self, known: Known) -> tuple[Derived, Bound]:
        means = means_of(known)
        squares = (means * means).sum(-1)
        if self.cosine:
            return linear(means / np.sqrt(squares).clip(1e-12)[:, None], 0 * squares)
        return linear(2 * means, -squares)


class NCM(ClassMeans):
    """Each class is its mean."""

    card = Card(
        "the nearest class mean answers",
        "Mensink et al. 2013",
        keeps="a mean for each class",
        order_free=True,
        trains=("head",),
    )
    settings_type = NCMSettings

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        self.add_class(x, self.labels(y))

    def form(self) -> NearestMean:
        return NearestMean(self.choice("distance") == "cosine")
