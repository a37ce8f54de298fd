"""DER and DER++: replay examples with the logits they had (Buzzega et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.er import ReplayLearner, ReplaySettings
from kcciol.learners.learner import Card, Labels
from kcciol.learners.memory import reservoir_slots

LOGITS = "logits.kept"


@dataclass(frozen=True)
class DERSettings(ReplaySettings):
    alpha: float = 0.1
    """Weight of the squared distance to the logits that were kept, summed over classes, mean over examples."""
    beta: float = 0.0
    """Weight of the cross-entropy of a second, independent draw; 0 is DER, which keeps no labels."""
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
        first, second = self.kept.draw(self.steps, k, purpose=1), self.kept.draw(self.steps, k)
        xs = [x[:, None]] + [self.kept.read("x", s) for s in (first, second) if s is not None]
        logits, tape = self.model.forward(self.parameters, torch.cat(xs, 1))
        before = logits[:, 0, 1 : self.classes + 1].clone()
        errors = [self.cross_entropy_error(logits[:, :1], label)]
        if first is not None and second is not None:
            n = first.shape[1]
            errors.append(self._distance_error(logits[:, 1 : n + 1], first) * (self.alpha / n)[..., None])
            again = self.kept.read("y", second) if "y" in self.fields else torch.zeros_like(second)
            weight = (self.beta / n)[..., None]
            errors.append(self.cross_entropy_error(logits[:, n + 1 :], again) * weight)
            if "y" not in self.fields:
                errors[-1].zero_()
        self.descend(self.pull_back(tape, torch.cat(errors, 1)))
        self._keep(x, label[:, 0], before)

    def _distance_error(self, logits: Tensor, slots: Tensor) -> Tensor:
        """The gradient of the squared distance to the kept logits at the logits (B, k, rows)."""
        kept = self.rows[LOGITS][:, : self.classes]  # (B, classes, slots)
        kept = kept.gather(2, slots[:, None].expand(-1, self.classes, -1)).mT  # (B, k, classes)
        error = torch.zeros_like(logits)
        error[..., 1 : self.classes + 1] = 2 * (logits[..., 1 : self.classes + 1] - kept).nan_to_num_(nan=0.0)
        return error

    def _keep(self, x: Tensor, label: Tensor, logits: Tensor) -> None:
        if self.choice("logits") == "after":
            logits = self.model.logits(self.parameters, x[:, None])[:, 0, 1 : self.classes + 1]
        slots = reservoir_slots(self.keys, self.steps, self.kept.capacity)
        self.kept.put(slots, {"x": x, "y": label} if "y" in self.fields else {"x": x})
        for copy, slot in enumerate(slots):
            if slot >= 0:
                self.rows[LOGITS][copy, :, slot] = torch.nan
                self.rows[LOGITS][copy, : self.classes, slot] = logits[copy].masked_fill(
                    ~self._seen_mask()[copy], torch.nan
                )


class DERPP(DER):
    """DER that keeps labels too."""

    card = Card("DER with the labels too", "Buzzega et al. 2020 (DER++)", replay=True)
    settings_type = DERPPSettings
    fields = ("x", "y")
