"""Plain online learning: one step on each example as it comes (Algorithm 4)."""

from __future__ import annotations

from torch import Tensor

from kcciol.learners.gradient import GradientLearner
from kcciol.learners.learner import Card, Labels


class Online(GradientLearner):
    """W <- W - rate * gradient of the cross-entropy of the example."""

    card = Card("one optimiser step on each example", "Javed and White 2019 (OML)")

    def _learn(self, x: Tensor, y: Labels) -> None:
        if self.single:
            self.descend_one(self.error_of_one(x[0], int(y[0])), x[0])
            return
        self.error_step(x[:, None], self.labels(y))


class ApproxIID(Online):
    """The same; whoever runs the stream shuffles it first. How well one pass could do if nothing came in order."""

    card = Card("online on a shuffled stream: no forgetting to avoid", "Javed and White 2019 (OML)")
