"""GSS: keep the examples whose gradients point in different directions (Aljundi et al. 2019)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kcciol.learners.base import Labels
from kcciol.learners.bounds import MOST_STEPS, bounded
from kcciol.learners.card import Card
from kcciol.learners.er import ReplayLearner, ReplaySettings
from kcciol.learners.grid import RATES, Grid
from kcciol.learners.memory import PREFIX, bytes_of
from kcciol.learners.model import Model, head_logits
from kcciol.learners.subset import most_diverse
from kcciol.random import sample, uniform

_COMPARE, _CANDIDATE, _REPLACE, _RESTART = 100, 200, 201, 300  # purposes of random numbers
_FIRST = 1.1  # score of the very first example, which there is nothing to compare with: as released
RECENT = "memory.recent."


@dataclass(frozen=True)
class DiverseSettings(ReplaySettings):
    passes: int = bounded(1, low=1, high=MOST_STEPS)
    """Times that the new example is learned, each time followed by other examples from the memory."""


class DiverseMemory(ReplayLearner):
    """Two steps of SGD a pass: one on the new example, one on `replay` others, which do not repeat from pass to pass
    before all of the memory has had its turn. The weights of the two are those of `weighting`; then the new example is
    offered to the memory."""

    grid: ClassVar[Grid] = {"rate": RATES[1:], "reserve": (0, 100)}
    no_adam = "GSS takes several steps for each example, which Adam's correction does not count"

    def _learn(self, x: Tensor, y: Labels) -> None:
        label = self.labels(y)
        self._train(x[:, None], label[:, None])
        self._update_memory(x, label)

    def _train(self, x: Tensor, y: Tensor) -> None:
        passes, replay = self.choice("passes"), self.choice("replay")
        slots = self.kept.draw(self.steps, passes * replay)
        if slots is None:
            for _ in range(passes):
                self.error_step(x, y)
            return
        filled = slots.shape[1]
        count = min(replay, filled)
        new, old = self.weights(count)
        for turn in range(passes):
            self.error_step(x, y, new)
            places = slots[:, (turn * count + torch.arange(count, device=self.device)) % filled]
            self.error_step(self.kept.read("x", places), self.kept.read("y", places), old)

    @abstractmethod
    def _update_memory(self, x: Tensor, label: Tensor) -> None:
        """Decide what the memory keeps; x (B, ...), label (B,)."""

    def cosines(self, x: Tensor, y: Tensor) -> Tensor:
        """The cosines (B, m, m) between the gradients in all parameters of the losses of x (B, m, ...), y (B, m).

        The gradient of an example in the head is an outer product of its error and (z, 1), so that the inner product of
        two of them is the product of two inner products. A gradient of zero has no direction: its cosines are 0.
        """
        z = self.model.features(self.parameters, x)
        error = self.cross_entropy_error(head_logits(self.parameters, z), y)
        each = error.clone()
        count = self._offset()[1]
        each[..., 0] /= count.sqrt()  # `count` rows with the error divided by `count`, each times itself
        gram = (each @ each.mT) * (z @ z.mT + 1)
        for below in self.model.single_gradients(self.parameters, x, error @ self.parameters["weight"]):
            gram += below @ below.mT
        norm = gram.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
        scale = norm[:, :, None] * norm[:, None]
        return torch.where(scale > 0, gram / scale, 0.0).nan_to_num(0.0).clamp(-1, 1)


@dataclass(frozen=True)
class GSSSettings(DiverseSettings):
    compared: int = bounded(10, low=1)
    """Examples of the memory, drawn anew each time, whose gradients the new one is compared with."""


class GSS(DiverseMemory):
    """Greedy: the score of an example is C = 1 + max_j cos(g, g_j) over `compared` examples of the memory, as it was
    when the example came. While there is room every example enters. Then only one with C < 1 may, which points away
    from all that it was compared with: an example i is drawn from the memory with probability C_i / sum_j C_j, and
    gives way with probability C_i / (C_i + C).
    """

    card = Card(
        "keeps examples whose gradients differ, chosen one by one",
        "Aljundi et al. 2019 (GSS)",
        keeps="200 examples and a score of each",
        replay=True,
        capacity="slots",
    )
    settings_type = GSSSettings

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        return super().extra_bytes(model, settings, classes) + int(8 * settings.slots)  # scores

    def _setup(self) -> None:
        super()._setup()
        self.state["memory.score"] = self.rate.new_zeros(self.copies, self.kept.capacity)

    def _update_memory(self, x: Tensor, label: Tensor) -> None:
        score = self._score(x, label)
        self.kept.put(self._slots(score), {"x": x, "y": label, "score": score})

    def _score(self, x: Tensor, label: Tensor) -> Tensor:
        """C of a new example, (B,)."""
        slots = self.kept.draw(self.steps, self.choice("compared"), purpose=_COMPARE)
        if slots is None:
            return self.rate.new_full((self.copies,), _FIRST)
        xs = torch.cat([x[:, None], self.kept.read("x", slots)], 1)
        ys = torch.cat([label[:, None], self.kept.read("y", slots)], 1)
        return 1 + self.cosines(xs, ys)[:, 0, 1:].amax(1)

    def _slots(self, score: Tensor) -> NDArray[np.int64]:
        """Where new examples of this score go, -1 being nowhere."""
        if self.steps < self.kept.capacity:
            return np.full(self.copies, self.steps, dtype=np.int64)
        draw, decide = (
            torch.from_numpy(uniform(self.keys, self.steps, purpose, 1)).to(self.device)
            for purpose in (_CANDIDATE, _REPLACE)
        )
        weights = self.kept["score"].double()
        weights = torch.where(weights.sum(1, keepdim=True) > 0, weights, 1.0)
        below = weights.cumsum(1)
        candidate = torch.searchsorted(below, draw * below[:, -1:], right=True).clamp_max(self.kept.capacity - 1)
        held, new = self.kept["score"].gather(1, candidate).double(), score[:, None].double()
        enters = (new < 1) & (decide * (held + new) <= held)
        return torch.where(enters, candidate, -1)[:, 0].cpu().numpy()


@dataclass(frozen=True)
class GSSIQPSettings(DiverseSettings):
    recent: int = bounded(30, low=1)
    """Examples that wait, on top of `slots`, until the memory is chosen anew from them and itself."""
    restarts: int = bounded(20, low=0, high=MOST_STEPS)
    """Random starts of the search, besides the one from the memory as it is."""

    @property
    def waiting(self) -> int:
        return max(0, self.recent - 1)


class GSSIQP(DiverseMemory):
    """Integer quadratic program: when `recent` examples have come since the last time, the memory becomes the set S of
    `slots` among them and itself that minimises sum_{i, j in S} cos(g_i, g_j), by single exchanges from several starts.
    While there is room every example enters at once, since the best set is then all of them.
    """

    card = Card(
        "keeps examples whose gradients differ, chosen together",
        "Aljundi et al. 2019 (GSS-IQP)",
        keeps="200 examples, and up to 29 that wait",
        replay=True,
        capacity="slots",
    )
    settings_type = GSSIQPSettings
    class_numbers: ClassVar[Mapping[str, int]] = {PREFIX + "y": 0, RECENT + "y": 0}

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        return super().extra_bytes(model, settings, classes) + int(settings.recent * bytes_of(model))

    def _setup(self) -> None:
        super()._setup()
        self.room = self.choice("recent")
        for name in self.fields:
            like = self.kept[name]
            self.state[RECENT + name] = like.new_zeros(self.copies, self.room, *like.shape[2:])

    def _used(self) -> dict[str, Tensor]:
        waiting = max(self.steps - self.kept.capacity, 0) % self.room
        return {n: self.state[n][:, :waiting] if n.startswith(RECENT) else t for n, t in super()._used().items()}

    def _update_memory(self, x: Tensor, label: Tensor) -> None:
        values = {"x": x, "y": label}
        if self.steps < self.kept.capacity:
            self.kept.put(np.full(self.copies, self.steps), values)
            return
        place = (self.steps - self.kept.capacity) % self.room
        for name, value in values.items():
            self.state[RECENT + name][:, place] = value
        if place == self.room - 1:
            self._choose()

    def _choose(self) -> None:
        both = {name: torch.cat([self.kept[name], self.state[RECENT + name]], 1) for name in self.fields}
        cosines = self.cosines(both["x"], both["y"]).double().cpu().numpy()
        for copy, gram in enumerate(cosines):
            np.fill_diagonal(gram, 1.0)  # so that one without a gradient is not cheaper than the others
            chosen = np.zeros(len(gram), dtype=bool)
            chosen[most_diverse(gram, self._starts(copy))] = True
            slots = self.kept.capacity
            out = torch.from_numpy(np.flatnonzero(~chosen[:slots])).to(self.device)
            into = torch.from_numpy(np.flatnonzero(chosen[slots:]) + slots).to(self.device)
            for name, values in both.items():
                self.kept[name][copy, out] = values[copy, into]
        for name in self.fields:
            self.state[RECENT + name].zero_()

    def _starts(self, copy: int) -> Iterator[NDArray[np.int64]]:
        slots, key = self.kept.capacity, self.keys[copy : copy + 1]
        yield np.arange(slots)
        for restart in range(self.choice("restarts")):
            yield sample(key, self.steps, _RESTART + restart, slots, slots + self.room)[0]
