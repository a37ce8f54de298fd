"""Plain online learning: one step on each example as it comes (Algorithm 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from kcciol.learners.base import Labels, Learner, Settings
from kcciol.learners.card import Card
from kcciol.learners.gradient import PARAMETERS, GradientLearner
from kcciol.learners.head import HeadInStep
from kcciol.learners.model import Head, LowRank, Model, per_copy
from kcciol.learners.snapshot import Snapshot, require_classes

BLOCK = 64  # examples of a class that are learned together: more cost more in products than they save
FEW = 6  # fewer are quicker one after another


class HeadSnapshot(Snapshot):
    """A linear head: its weights (1 + classes, d) and biases, of which the first stand for classes to come."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias, self.classes = weight[1:], bias[1:], len(bias) - 1

    def scores(self, x: Tensor) -> Tensor:
        require_classes(self.classes)
        scores = (
            torch.addmv(self.bias, self.weight, x[0])[None]
            if len(x) == 1
            else torch.addmm(self.bias, x, self.weight.mT)
        )
        return scores.masked_fill_(scores.isnan(), -torch.inf)  # what has diverged knows nothing


class Online(GradientLearner):
    """W <- W - rate * gradient of the cross-entropy of the example."""

    card = Card("one optimiser step on each example", "Javed and White 2019 (OML)", keeps="nothing")

    @classmethod
    def in_step(cls, model: Model, settings: Settings, classes: int) -> type[Learner]:
        rows = getattr(settings, "outputs", 0)  # with a constant reserve instead, rows come with their classes
        quick = isinstance(model, Head) and rows >= classes and cls.does_the_same_as(Online)
        return HeadInStep if quick else cls

    def snapshot(self) -> Snapshot:
        linear = isinstance(self.model, Head) and self.does_the_same_as(Online)
        if not linear or self.copies > 1 or self.device.type != "cpu" or not self.seen.all():
            return super().snapshot()
        self._watched = True
        return HeadSnapshot(*(self.parameters[name][0] for name in ("weight", "bias")))

    def _before_change(self, y: Labels) -> None:
        """The snapshot keeps its memory, and W goes on in a copy."""
        *_, offset, count = self._views_of_one()
        weight, bias = (self.parameters[name].clone() for name in ("weight", "bias"))
        self.rows = self.rows | {PARAMETERS + "weight": weight, PARAMETERS + "bias": bias}
        self._views, self._one_cache, self._watched = {}, (weight[0], bias[0], offset, count), False

    def _learn(self, x: Tensor, y: Labels) -> None:
        if self.single:
            self.descend_one(self.error_of_one(x[0], int(y[0])), x[0])
            return
        self.error_step(x[:, None], self.labels(y)[:, None])

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        """For SGD on a linear head, W is read and written once for many examples.

        After the steps on the examples j before it, an example meets W - sum_j rate e_j z_j^T: its logits are those of
        the W at first, less sum_j rate e_j (<z_j, z_i> + 1), where the one is the bias's.
        """
        if self.adam or not isinstance(self.model, Head) or x.shape[1] < FEW:
            super()._learn_class(x, y)
            return
        rate = per_copy(self.rate, x)
        for z in torch.split(x, BLOCK, 1):
            errors, _ = self.model.forward(self.parameters, z)  # logits first, and row by row the gradient at them
            products = (rate * z) @ z.mT + rate
            if self.single:
                self._errors_in_sequence_of_one(errors[0], products[0], int(y[0]))
            else:
                self._errors_in_sequence(errors, products, self.labels(y)[:, None])
            LowRank(errors, z).descend_(self.parameters, self.rate)

    def _errors_in_sequence(self, errors: Tensor, products: Tensor, label: Tensor) -> None:
        """Logits (B, m, rows) of the W at first become the gradients at the logits of the W that each example meets."""
        count = self._offset()[1]
        for i in range(errors.shape[1]):
            now = errors[:, i : i + 1]
            if i:
                now.baddbmm_(products[:, i : i + 1, :i], errors[:, :i], alpha=-1)
            now.copy_(self.cross_entropy_error(now, label))
            now[..., 0] /= count

    def _errors_in_sequence_of_one(self, errors: Tensor, products: Tensor, label: int) -> None:
        """The same for one stream."""
        *_, offset, count = self._views_of_one()
        errors += offset
        columns, values = errors.mT, errors if errors.is_cuda else errors.numpy()  # whose elements are quicker to reach
        for i, (now, product) in enumerate(zip(errors, products, strict=True)):
            if i:
                now.addmv_(columns[:, :i], product[:i], alpha=-1)
            torch.softmax(now, 0, out=now)
            values[i, label + 1] -= 1
            values[i, 0] /= count


class ApproxIID(Online):
    """The same; whoever runs the stream shuffles it first. How well one pass could do if nothing came in order."""

    card = Card(
        "online on a shuffled stream: no forgetting to avoid",
        "Javed and White 2019 (OML)",
        keeps="nothing",
        shuffled=True,
    )
