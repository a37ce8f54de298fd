"""DER and DER++: replay examples with the logits they had (Buzzega et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Labels
from kcciol.learners.bounds import bounded
from kcciol.learners.card import Card
from kcciol.learners.er import MemorySettings, ReplayLearner
from kcciol.learners.grid import RATES, Grid
from kcciol.learners.memory import Weighting, reservoir_slots, shares
from kcciol.learners.model import Model

LOGITS = "logits.kept"


@dataclass(frozen=True)
class DERSettings(MemorySettings):
    alpha: float = bounded(0.1, low=0)
    """Weight of the squared distance to the logits that were kept, summed over classes."""
    beta: float = bounded(0.0, low=0)
    """Weight of the cross-entropy of a second, independent draw; 0 is DER, which keeps no labels."""
    weighting: Weighting = "additive"
    """additive: the new example, plus alpha and beta times means over the replayed ones, as published. joint: alpha and
    beta are weights of single examples, and the whole is divided by 1 + their number: with beta 1 it is ER's mean."""
    logits: Literal["before", "after"] = "before"
    """Keep the logits from before the step on the example (as published), or from after it."""


@dataclass(frozen=True)
class DERPPSettings(DERSettings):
    beta: float = 0.5


class DER(ReplayLearner):
    """L = CE(new) + alpha * mean |l(x') - l'|^2 + beta * mean CE(x'', y''), x' and x'' drawn independently.

    Logits are compared in the classes that had been seen when they were kept. alpha = 0 is ER with additive weighting,
    replay_weight beta.
    """

    card = Card(
        "replays examples with the logits they had",
        "Buzzega et al. 2020 (DER)",
        keeps="200 examples and their logits",
        replay=True,
        capacity="slots",
    )
    settings_type = DERSettings
    grid: ClassVar[Grid] = {
        "rate": RATES,
        "alpha": (1e-3, 0.01, 0.1, 1.0),
        "weighting": ("joint", "additive"),
        "reserve": (0, 100),
    }
    fields: tuple[str, ...] = ("x",)
    unknown: ClassVar[frozenset[str]] = frozenset({LOGITS})

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        return super().extra_bytes(model, settings, classes) + int(2 * 4 * classes * settings.slots)

    def _setup(self) -> None:
        super()._setup()
        self.alpha, self.beta = (self.column(name)[:, None] for name in ("alpha", "beta"))
        if "y" not in self.fields and bool(self.beta.any()):
            raise UserError("DER keeps no labels, so beta must be 0: use der++.")
        self.add_rows(LOGITS, self.kept.capacity, dtype=self.dtype)  # (B, classes, slots): NaN where none was seen

    def _known(self) -> dict[str, Tensor]:
        known = super()._known()
        return known | {LOGITS: known[LOGITS][:, :, : self.kept.filled(self.steps)]}

    def _unused_rows(self, name: str, saved: Tensor) -> Tensor:
        fits = saved.ndim == 3 and saved.shape[2] <= self.kept.capacity and saved.is_floating_point()
        if name != LOGITS or not fits:
            return super()._unused_rows(name, saved)
        wide = saved.new_full((*saved.shape[:2], self.kept.capacity), torch.nan)
        wide[:, :, : saved.shape[2]] = saved
        return wide

    def _learn(self, x: Tensor, y: Labels) -> None:
        label, k = self.labels(y), self.choice("replay")
        first = self.kept.draw(self.steps, k, purpose=1)
        second = self.kept.draw(self.steps, k) if "y" in self.fields else None
        xs = [x[:, None]] + [self.kept.read("x", s) for s in (first, second) if s is not None]
        logits, tape = self.model.forward(self.parameters, torch.cat(xs, 1))
        before = logits[:, 0, 1:].clone()
        n = 0 if first is None else first.shape[1]
        new, each = shares(self.choice("weighting"), n, 1.0)
        errors = [self.cross_entropy_error(logits[:, :1], label[:, None]) * new]
        if first is not None:
            errors.append(self._distance_error(logits[:, 1 : n + 1], first) * (self.alpha * each)[..., None])
        if second is not None:
            again = self.cross_entropy_error(logits[:, n + 1 :], self.kept.read("y", second))
            errors.append(again * (self.beta * each)[..., None])
        self.descend(self.pull_back(tape, torch.cat(errors, 1)))
        self._keep(x, label, before)

    def _distance_error(self, logits: Tensor, slots: Tensor) -> Tensor:
        """The gradient of the squared distance to the kept logits at the logits (B, k, rows)."""
        kept = self.rows[LOGITS][:, : self.classes]  # (B, classes, slots)
        kept = kept.gather(2, slots[:, None].expand(-1, self.classes, -1)).mT  # (B, k, classes)
        error = torch.zeros_like(logits)
        gap = 2 * (logits[..., 1 : self.classes + 1] - kept)
        error[..., 1 : self.classes + 1] = gap.masked_fill_(kept.isnan(), 0.0)  # of classes that came later
        return error

    def _keep(self, x: Tensor, label: Tensor, logits: Tensor) -> None:
        if self.choice("logits") == "after":
            logits = self.model.logits(self.parameters, x[:, None])[:, 0, 1 : self.classes + 1]
        slots = reservoir_slots(self.keys, self.steps, self.kept.capacity)
        self.kept.put(slots, {"x": x, "y": label} if "y" in self.fields else {"x": x})
        copies = np.flatnonzero(slots >= 0)
        if len(copies):
            here, where = (torch.from_numpy(v).to(self.device) for v in (copies, slots[copies]))
            kept = torch.full_like(self.rows[LOGITS][: len(copies), :, 0], torch.nan)
            kept[:, : self.classes] = logits.masked_fill(~self._seen_mask(), torch.nan)[here]
            self.rows[LOGITS][here, :, where] = kept


class DERPP(DER):
    """DER that keeps labels too."""

    card = Card(
        "DER with the labels too",
        "Buzzega et al. 2020 (DER++)",
        keeps="200 examples, their labels and logits",
        replay=True,
        capacity="slots",
    )
    settings_type = DERPPSettings
    grid: ClassVar[Grid] = {"rate": RATES, "alpha": (0.01, 0.1), "beta": (1.0, 10.0), "reserve": (0, 100)}
    fields = ("x", "y")
