"""HAL: replay, and one anchor for each class whose answer should not move (Chaudhry et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Labels
from kcciol.learners.bounds import HIGHEST_RATE, MOST_STEPS, bounded
from kcciol.learners.card import Card
from kcciol.learners.grid import RATES, Grid
from kcciol.learners.model import (
    ROWS,
    Dense,
    Gradient,
    LowRank,
    Parameters,
    gradient_in,
    head_logits,
    leaves_of,
    per_copy,
)
from kcciol.learners.ring import COUNT, KEPT, RingLearner, RingSettings
from kcciol.nets.pixels import to_unit
from kcciol.optim import adam_, corrections

_ANCHORS, _TUNE = 200, 300  # purposes of random numbers
ANCHOR, MADE = "anchors.x", "anchors.made"
MEAN, FEATURE, LABEL = "task.mean", "task.feature", "task.label"
KEEP_MEAN, KEEP_FEATURE = 0.9, 0.5  # how much of the running means stays when an example comes


@dataclass(frozen=True)
class HALSettings(RingSettings):
    strength: float = bounded(0.1, low=0)
    """lambda: weight of the anchors' squared change; 0 is replay from the ring."""
    closeness: float = bounded(0.1, low=0)
    """gamma: weight of the distance between the features of an anchor and those of its class."""
    anchors: int = bounded(10, low=0)
    """Anchors drawn at each step."""
    tune_steps: int = bounded(50, low=0, high=MOST_STEPS)
    """Steps of SGD on earlier tasks' examples that show what the task just learned would lose."""
    tune_batch: int = bounded(10, low=0)
    """Examples in each of them."""
    anchor_steps: int = bounded(100, low=0, high=MOST_STEPS)
    """Steps of Adam that an anchor is made with; with `anchor_rate` 0.001 no value of it moves by more than about 0.1,
    a tenth of the range of an image."""
    anchor_rate: float = bounded(0.001, low=0, high=HIGHEST_RATE)
    """Rate of these steps."""


class HAL(RingLearner):
    """With L the loss of the new and the replayed examples, f the logits of the classes seen and e the anchors:

        p' = p - rate * dL/dp (p)                                    a step that is only looked at
        p <- p - rate * d/dp [L(p) + lambda * mean_e |f_p(e) - f_p'(e)|^2]

    where p' depends on p, so that the second gradient has second derivatives of L. When a task ends, p_M are the
    parameters after some steps on examples of earlier tasks, and the anchor of a class c of this task is made from the
    running mean of its inputs by descent on

        CE(f_p(e), c) - CE(f_pM(e), c) + gamma * (1 - cos(phi_p(e), phi_c)),

    phi being what the head sees and phi_c its running mean: a point that is known now, will be lost, and looks like c.
    The first task has no earlier ones, and its anchors are the last examples of its classes. Anchors are images with
    values from 0 to 1, or features.
    """

    card = Card(
        "replay, and anchors whose logits should not move",
        "Chaudhry et al. 2021 (HAL)",
        keeps="an example and an anchor for each class",
        replay=True,
        capacity="ring",
        per_class=True,
        tasks=True,
    )
    settings_type = HALSettings
    class_numbers: ClassVar[Mapping[str, int]] = {LABEL: -1}
    growing = frozenset({MEAN, FEATURE, LABEL})  # a row of each class of the task
    no_adam = "HAL looks ahead along a step of SGD, which Adam would not take"
    grid: ClassVar[Grid] = {"rate": RATES[1:], "strength": (1e-3, 0.1, 10.0), "reserve": (0, 100)}
    idle: ClassVar[Mapping[str, Any]] = {"replay": 0, "tune_steps": 0, "anchor_steps": 0}

    def _setup(self) -> None:
        super()._setup()
        self.strength, self.closeness = self.column("strength"), self.column("closeness")
        self.look = self.choice("anchors") > 0 and bool(self.strength.any())
        self.add_rows(ANCHOR, *self.model.input_shape, dtype=self.dtype)
        self.add_rows(MADE, dtype=torch.bool)
        self._begin_task()

    def _learn(self, x: Tensor, y: Labels) -> None:
        label = self.labels(y)
        xs, ys, weights = self.with_replay(x[:, None], label[:, None])
        if self.look and self._anchored:
            self.descend(self.gradient(xs, ys, weights, *self._draw_anchors()))
        else:
            self.error_step(xs, ys, weights)
        self._gather(x, y)
        self.keep(x, label)

    # --- the update -------------------------------------------------------------------------------------------------

    _anchored = False  # whether any copy has an anchor

    def _restored(self) -> None:
        super()._restored()
        self._anchored = bool(self.rows[MADE].any())

    def _draw_anchors(self) -> tuple[Tensor, Tensor]:
        """Anchors (B, a, ...) and their parts in the mean (B, a)."""
        places, real = self.draw(self.rows[MADE][:, : self.classes], self.choice("anchors"), _ANCHORS)
        return self.rows[ANCHOR][self.each[:, None], places], self._parts(real)

    def _parts(self, real: Tensor) -> Tensor:
        """The part of each of those drawn in their mean (B, k), void ones having none."""
        return real.to(self.rate) / real.sum(1, keepdim=True).clamp_min(1)

    def gradient(self, x: Tensor, y: Tensor, weights: Tensor, anchors: Tensor, parts: Tensor) -> Gradient:
        """Of the loss of x (B, m, ...), y, weights (B, m) and of anchors (B, a, ...), parts (B, a) in each row."""
        linear = len(self.parameters) == len(ROWS)
        return (self._of_head if linear else self._of_network)(x, y, weights, anchors, parts)

    def _of_head(self, x: Tensor, y: Tensor, weights: Tensor, anchors: Tensor, parts: Tensor) -> LowRank:
        """The look-ahead moves the logits of an anchor by -rate * D_e, D_e = sum_i w_i (x_i e + 1) error_i. The
        derivative of error_i by the logits is the softmax's Jacobian, p (u - <p, u>) when applied to u. Row 0 has the
        p of all spare rows together, and its result is divided among them; being no answer, it has no part in D_e."""
        offset, count = self._offset()
        p = (self.model.logits(self.parameters, x) + offset).softmax(-1)
        error = p.scatter_add(-1, y[..., None] + 1, -torch.ones_like(p[..., :1]))
        reach = weights[..., None] * (torch.bmm(x, anchors.mT) + 1)
        moved = torch.bmm(reach.mT, error)
        moved[..., 0] = 0
        u = torch.bmm(reach, parts[..., None] * moved)
        u *= per_copy(2 * self.strength * self.rate.square(), u)
        delta = weights[..., None] * error + p * (u - (p * u).sum(-1, keepdim=True))
        delta[..., 0] /= count
        return LowRank(delta, x)

    def _of_network(self, x: Tensor, y: Tensor, weights: Tensor, anchors: Tensor, parts: Tensor) -> Dense:
        with torch.enable_grad():
            p = leaves_of(self.parameters)
            loss = (weights * self.cross_entropy(self.model.logits(p, x), y)).sum()
            first = self._gradient(loss, p, again=True)
            ahead = {name: value - per_copy(self.rate, value) * first[name] for name, value in p.items()}
            moved = (self.model.logits(p, anchors) - self.model.logits(ahead, anchors))[..., 1 : self.classes + 1]
            change = (self.strength[:, None] * parts * moved.square().sum(-1)).sum()
            second = self._gradient(change, p)
        return Dense({name: first[name].detach() + g for name, g in second.items()})

    def _gradient(self, loss: Tensor, p: Parameters, again: bool = False) -> Parameters:
        """Of a loss in p, of which row 0 stands for several rows and gets what each of them gets."""
        gradient = gradient_in(p, loss, again)
        count = self._offset()[1]
        for name in ROWS:
            g = gradient[name]
            gradient[name] = torch.cat([g[:, :1] / count.view(-1, *[1] * (g.ndim - 1)), g[:, 1:]], 1)
        return gradient

    # --- what is gathered of a task's classes -----------------------------------------------------------------------

    def _begin_task(self) -> None:
        self.state[MEAN] = self.rate.new_zeros(self.copies, 0, *self.model.input_shape)
        self.state[FEATURE] = self.rate.new_zeros(self.copies, 0, self.model.width)
        self.state[LABEL] = torch.zeros(self.copies, 0, dtype=torch.int64)  # on the host, -1 for none

    def require_sound(self) -> None:
        super().require_sound()
        if not self.state[MEAN].shape[1] == self.state[FEATURE].shape[1] == self.state[LABEL].shape[1]:
            raise UserError("what it gathered of a task does not fit together.")

    def _gather(self, x: Tensor, y: Labels) -> None:
        """Running means of the inputs and of what the head sees."""
        known = self.state[LABEL].numpy()
        fits = (known == y[:, None]) | (known < 0)
        if not fits.any(1).all():  # a class more than any copy has had in this task
            for name, blank in ((MEAN, 0), (FEATURE, 0), (LABEL, -1)):
                t = self.state[name]
                self.state[name] = torch.cat([t, t.new_full((self.copies, 1, *t.shape[2:]), blank)], 1)
            self._gather(x, y)
            return
        place = fits.argmax(1)
        old = torch.from_numpy(known[self.everyone, place] >= 0).to(self.device)
        known[self.everyone, place] = y
        places = torch.from_numpy(place).to(self.device)
        phi = self.model.features(self.parameters, x[:, None])[:, 0]
        for name, value, stays in ((MEAN, to_unit(x, self.rate.dtype), KEEP_MEAN), (FEATURE, phi, KEEP_FEATURE)):
            mean = self.state[name][self.each, places]
            self.state[name][self.each, places] = torch.where(per_copy(old, value), mean.lerp(value, 1 - stays), value)

    # --- anchors ----------------------------------------------------------------------------------------------------

    def end_task(self) -> None:
        """Make the anchors of the classes of this task."""
        labels = self.state[LABEL].to(self.device)
        if labels.shape[1] == 0:
            return
        with torch.no_grad():
            anchors = self._make_anchors(labels)
        copies, places = (labels >= 0).nonzero(as_tuple=True)
        classes = labels[copies, places]
        self.rows[ANCHOR][copies, classes] = anchors[copies, places]
        self.rows[MADE][copies, classes] = True
        self._anchored = True
        self._begin_task()

    def _make_anchors(self, labels: Tensor) -> Tensor:
        """(B, k), -1 for none -> (B, k, ...)."""
        everyone, wanted = self.each[:, None], labels.clamp_min(0)
        newest = (self.rows[COUNT][everyone, wanted] - 1) % self.ring
        last = to_unit(self.rows[KEPT][everyone, wanted, newest], self.rate.dtype)
        now = (labels[..., None] == torch.arange(self.classes, device=self.device)).any(1)
        earlier = self._seen_mask() & ~now
        some = earlier.any(1)
        if not bool(some.any()):
            return last
        made = self._descend_anchors(self.state[MEAN], self._fine_tuned(earlier), wanted)
        return torch.where(per_copy(some, made), made, last)

    def _fine_tuned(self, classes: Tensor) -> Parameters:
        """p_M: the parameters after some steps on what is kept of these classes (B, classes)."""
        before = {name: p.clone() for name, p in self.parameters.items()}
        for step in range(self.choice("tune_steps") if self.choice("tune_batch") else 0):
            x, y, real = self.draw_kept(classes, self.choice("tune_batch"), _TUNE + step)
            self.error_step(x, y, self._parts(real))
        after = {name: p.clone() for name, p in self.parameters.items()}
        for name, p in self.parameters.items():
            p.copy_(before[name])
        return after

    def anchor_loss(self, e: Tensor, tuned: Parameters, labels: Tensor) -> Tensor:
        """What an anchor descends on, (B, k)."""
        phi = self.model.features(self.parameters, e)
        now = head_logits(self.parameters, phi)
        known = self.cross_entropy(now, labels) - self.cross_entropy(self.model.logits(tuned, e), labels)
        return known + self.closeness[:, None] * (1 - F.cosine_similarity(phi, self.state[FEATURE], dim=-1))

    def _descend_anchors(self, start: Tensor, tuned: Parameters, labels: Tensor) -> Tensor:
        """Adam from start (B, k, ...)."""
        e, mean, square = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
        rate = per_copy(self.column("anchor_rate"), e)
        for t in range(1, self.choice("anchor_steps") + 1):
            with torch.enable_grad():
                leaf = e.detach().requires_grad_()
                loss = self.anchor_loss(leaf, tuned, labels).sum()
            (g,) = torch.autograd.grad(loss, leaf)
            adam_(e, g, mean, square, *corrections(rate, t))
        if self.model.input_dtype == torch.uint8:
            e = e.clamp(0, 1)
        good = e.isfinite().flatten(2).all(-1)  # where the loss has no slope, the mean is the anchor
        return torch.where(good.view(*good.shape, *[1] * (e.ndim - 2)), e, start)
