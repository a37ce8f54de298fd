"""DER and DER++: replay examples with the logits they had (Buzzega et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.er import MemorySettings, ReplayLearner
from kcciol.learners.learner import Card, Labels
from kcciol.learners.memory import reservoir_slots

LOGITS = "logits.kept"


@dataclass(frozen=True)
class DERSettings(MemorySettings):
    alpha: float = 0.1
    """Weight of the squared distance to the logits that were kept, summed over classes."""
    beta: float = 0.0
    """Weight of the cross-entropy of a second, independent draw; 0 is DER, which keeps no labels."""
    weighting: Literal["joint", "additive"] = "additive"
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

    card = Card("replays examples with the logits they had", "Buzzega et al. 2020 (DER)", replay=True)
    settings_type = DERSettings
    fields: tuple[str, ...] = ("x",)

    def _setup(self) -> None:
        super()._setup()
        self.alpha, self.beta = (self.column(name).to(self.rate)[:, None] for name in ("alpha", "beta"))
        if bool((self.alpha < 0).any() or (self.beta < 0).any()):
            raise UserError("alpha and beta must be 0 or more.")
        if "y" not in self.fields and bool(self.beta.any()):
            raise UserError("DER keeps no labels, so beta must be 0: use der++.")
        self.add_rows(LOGITS, self.kept.capacity, dtype=self.rate.dtype)  # (B, classes, slots): NaN where none was seen

    def _grow(self, classes: int) -> None:
        before = self.rows[LOGITS].shape[1] if LOGITS in self.rows else 0
        super()._grow(classes)
        if LOGITS in self.rows:
            self.rows[LOGITS][:, before:] = torch.nan

    def _known(self) -> dict[str, Tensor]:
        known = super()._known()
        return known | {LOGITS: known[LOGITS][:, :, : self.kept.filled(self.steps)]}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:  # type: ignore[override]
        kept = state.get(LOGITS)
        if kept is not None:
            wide = kept.new_full((*kept.shape[:2], self.kept.capacity), torch.nan)
            wide[:, :, : kept.shape[2]] = kept
            state = {**state, LOGITS: wide}
        super().load_state_dict(state)

    def _learn(self, x: Tensor, y: Labels) -> None:
        label, k = self.labels(y), self.choice("replay")
        first = self.kept.draw(self.steps, k, purpose=1)
        second = self.kept.draw(self.steps, k) if "y" in self.fields else None
        xs = [x[:, None]] + [self.kept.read("x", s) for s in (first, second) if s is not None]
        logits, tape = self.model.forward(self.parameters, torch.cat(xs, 1))
        before = logits[:, 0, 1:].clone()
        joint = self.choice("weighting") == "joint"
        n = 0 if first is None else first.shape[1]
        new, each = (1 / (1 + n), 1 / (1 + n)) if joint else (1.0, 1 / max(n, 1))
        errors = [self.cross_entropy_error(logits[:, :1], label) * new]
        if first is not None:
            errors.append(self._distance_error(logits[:, 1 : n + 1], first) * (self.alpha * each)[..., None])
        if second is not None:
            again = self.cross_entropy_error(logits[:, n + 1 :], self.kept.read("y", second))
            errors.append(again * (self.beta * each)[..., None])
        self.descend(self.pull_back(tape, torch.cat(errors, 1)))
        self._keep(x, label[:, 0], before)

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

    card = Card("DER with the labels too", "Buzzega et al. 2020 (DER++)", replay=True)
    settings_type = DERPPSettings
    fields = ("x", "y")
