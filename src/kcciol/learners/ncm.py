"""Class means: the nearest mean answers (Mensink et al. 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from kcciol.learners.learner import Card, Labels, Settings
from kcciol.learners.statistics import ClassMeans


@dataclass(frozen=True)
class NCMSettings(Settings):
    distance: Literal["euclidean", "cosine"] = "euclidean"
    """How near."""


class NCM(ClassMeans):
    """score_c(z) = -|z - mu_c|^2, or the cosine of z and mu_c."""

    card = Card("the nearest class mean answers", "Mensink et al. 2013", order_free=True, trains=("head",))
    settings_type = NCMSettings

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        self.add_class(x, self.label(y))

    def _scores(self, x: Tensor) -> Tensor:
        means, z = self.means(), x.double()
        if self.choice("distance") == "cosine":
            return F.normalize(z, dim=-1) @ F.normalize(means, dim=-1).mT
        # |z - mu|^2 without |z|^2, which is the same for all classes
        return 2 * (z @ means.mT) - means.square().sum(-1)[:, None]
