"""PODNet: several directions a class, and a network that is held to what it was (Douillard et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners.base import Labels
from kcciol.learners.bounds import HIGHEST_RATE, MOST_STEPS, bounded
from kcciol.learners.card import Card
from kcciol.learners.gradient import PARAMETERS
from kcciol.learners.grid import WHOLE_RATES, Grid
from kcciol.learners.memory import MemoryLearner, SlotSettings, WeightingSettings
from kcciol.learners.model import Network, Parameters, gradient_in, leaves_of, per_copy
from kcciol.random import sample, uniform

TEACHER, KNOWN = "teacher.", "teacher.known"
WEIGHT, SCALE = "weight", "scale"  # the head's parameters: proxies (B, classes, K, d) and log eta (B,)
LARGEST = 5.0  # a gradient's elements are cut to this
_IMPRINT, _TUNE = 1000, 2000  # purposes of random numbers


@dataclass(frozen=True)
class PODNetSettings(WeightingSettings, SlotSettings):
    rate: float = bounded(0.01, above=0, high=HIGHEST_RATE)
    """Rate of SGD."""
    proxies: int = bounded(10, low=1)
    """K: directions that stand for one class."""
    margin: float = bounded(0.6, low=0)
    """How far the true class's score must lead before an example costs nothing."""
    spatial: float = bounded(3.0, low=0)
    """Strength of the distillation of every convolution's output; 0 is none."""
    flat: float = bounded(1.0, low=0)
    """Strength of the distillation of the features; 0 is none."""
    first_teacher: Literal["none", "start"] = "none"
    """Who teaches in the first task: nobody, or the network that the stream begins with (for one that knows things)."""
    old_proxies: Literal["frozen", "trained"] = "frozen"
    """Whether proxies of earlier tasks' classes move too when an example arrives; tuning moves them in any case."""
    spread: float = bounded(0.1, low=0)
    """A new class's proxies start at its first example's direction, moved by noise of about this length: without it
    they would be equal, and stay so."""
    tune_passes: int = bounded(1, low=0, high=MOST_STEPS)
    """At the end of a task: passes over the memory that train the classifier alone; 0 sees each example once only."""
    tune_rate: float = bounded(0.01, above=0, high=HIGHEST_RATE)
    """Rate of SGD in these passes."""


class PODNet(MemoryLearner):
    """The score of class c, for features h and its proxies w_c1 ... w_cK, and the loss of an example of class y:

        s_ck = -|h/|h| - w_ck/|w_ck||^2 = 2 cos(h, w_ck) - 2
        score_c = sum_k softmax_k(s_ck) s_ck
        L = max(0, -eta (score_y - margin) + log sum_{c != y} exp(eta score_c))

    With one class the sum is empty, so the loss is the cross-entropy of eta score until there are two. eta is learned
    as its logarithm: it must stay positive, since a negative one turns the order of the scores around.

    The teacher is the network at the end of the last task. With n classes in all, m of them in this task, and u_l(x)
    the squares of map l, summed over width and over height, side by side and divided by their length:

        L += sqrt(n / m) (spatial * mean_l |u_l(x) - u_l'(x)| + flat * (1 - cos(h, h')))

    as a mean over examples; m counts as 1 in a task without new classes. The memory is a reservoir, as in the other
    replay methods: equal memories compare, and a ranking by distance to the class mean (herding) would need a second
    look at a class, while in one pass the features that it ranks by are still moving.
    """

    card = Card(
        "several proxies a class, distilled maps",
        "Douillard et al. 2020",
        keeps="200 images and an earlier network",
        replay=True,
        capacity="slots",
        tasks=True,
        trains=("all",),
    )
    settings_type = PODNetSettings
    grid: ClassVar[Grid] = {"rate": WHOLE_RATES, "margin": (0.0, 0.6)}
    whole_grid = grid
    idle: ClassVar[Mapping[str, Any]] = {"replay": 0, "tune_passes": 0}

    def _setup(self) -> None:
        if not isinstance(self.model, Network):
            raise UserError(
                "PODNet trains the whole network: with a frozen one both of its distillation terms are exactly zero, "
                "so use `er` there, or train the network (kcciol evaluate --trains all)."
            )
        super()._setup()
        self.net: Network = self.model
        self.rate, self.tune_rate = self.column("rate"), self.column("tune_rate")
        self.margin, self.spatial, self.flat = (self.column(name) for name in ("margin", "spatial", "flat"))
        self.distils = bool((self.spatial + self.flat).any())
        for name, value in self.net.start(self.copies, self.device).items():
            self.state[PARAMETERS + name] = value
            self.state[TEACHER + name] = value.clone()
        self.theta_names = [n.removeprefix(TEACHER) for n in self.state if n.startswith(TEACHER)]
        self.state[PARAMETERS + SCALE] = torch.zeros(self.copies, dtype=self.dtype, device=self.device)
        self.add_rows(PARAMETERS + WEIGHT, self.choice("proxies"), self.net.width)
        self.add_rows(KNOWN, dtype=torch.bool)  # the classes of earlier tasks
        self._restored()

    def _restored(self) -> None:
        self._new = None
        self.taught = self.choice("first_teacher") == "start" or bool(self.rows[KNOWN].any())

    @property
    def parameters(self) -> Parameters:
        """All that is trained; of the proxies those of the classes so far."""
        theta = {name: self.state[PARAMETERS + name] for name in (*self.theta_names, SCALE)}
        return theta | {WEIGHT: self.rows[PARAMETERS + WEIGHT][:, : self.classes]}

    # --- an example -------------------------------------------------------------------------------------------------

    _new: tuple[Tensor, Tensor] | None = None  # from `_new_classes` to the `_learn` that follows it

    def _new_classes(self, copies: Tensor, labels: Tensor) -> None:
        self._new = copies, labels

    def _learn(self, x: Tensor, y: Labels) -> None:
        label = self.labels(y)
        self._imprint(x)
        xs, ys, weights = self.with_replay(x[:, None], label[:, None])
        with torch.enable_grad():
            leaves = leaves_of(self.parameters)
            maps = self.net.maps(leaves, xs)
            z = self.net.flat(maps[-1])
            loss = (weights * self._losses(leaves, z, ys)).sum()  # the copies share nothing, so a sum keeps them apart
            if self.taught and self.distils:
                loss = loss + self._distillation(maps, z, xs).sum()
            gradient = gradient_in(leaves, loss)
        if self.choice("old_proxies") == "frozen":
            gradient[WEIGHT] = gradient[WEIGHT].masked_fill(self.rows[KNOWN][:, : self.classes, None, None], 0)
        self._descend(gradient, self.rate)
        self.kept.add(self.steps, {"x": x, "y": label})

    def _imprint(self, x: Tensor) -> None:
        """Proxies for the classes that are new."""
        if self._new is None:
            return
        (copies, labels), self._new = self._new, None
        proxies = self.rows[PARAMETERS + WEIGHT]
        k, d = proxies.shape[2:]
        direction = F.normalize(self.net.features(self.parameters, x[:, None])[copies], dim=-1)  # (new, 1, d)
        noise = uniform(self.keys[copies.cpu().numpy()], self.steps, _IMPRINT, k * d)
        size = self.column("spread")[copies] * math.sqrt(12 / d)  # a uniform number's variance is 1/12
        moved = torch.from_numpy(noise - 0.5).to(proxies).view(-1, k, d) * size[:, None, None]
        proxies[copies, labels] = direction + moved

    def _losses(self, parameters: Parameters, z: Tensor, y: Tensor) -> Tensor:
        """(B, m)."""
        scores = class_scores(z, parameters[WEIGHT])
        return margin_loss(scores, y, parameters[SCALE].exp(), self.margin, self._seen_mask())

    def _distillation(self, maps: Sequence[Tensor], z: Tensor, x: Tensor) -> Tensor:
        """(B,)."""
        teacher = {name: self.state[TEACHER + name] for name in self.theta_names}
        with torch.no_grad():
            old = self.net.maps(teacher | {WEIGHT: self.rows[PARAMETERS + WEIGHT]}, x)
        seen = self._seen_mask()
        new = (seen & ~self.rows[KNOWN][:, : self.classes]).sum(1).clamp_min(1)
        spatial = self.spatial * pod_spatial(maps, old)
        flat = self.flat * pod_flat(z, self.net.flat(old[-1]))
        return (seen.sum(1) / new).sqrt() * (spatial + flat)

    def _descend(self, gradient: Parameters, rate: Tensor) -> None:
        for name, g in gradient.items():
            self.parameters[name].sub_(per_copy(rate, g) * g.clamp(-LARGEST, LARGEST))

    # --- a boundary -------------------------------------------------------------------------------------------------

    def end_task(self) -> None:
        """Tune the classifier; the network as it is now teaches from here on."""
        if not self.steps:
            return
        with torch.no_grad():
            self._tune()
            for name in self.theta_names:
                self.state[TEACHER + name].copy_(self.state[PARAMETERS + name])
            self.rows[KNOWN][:, : self.classes] = self._seen_mask()
        self.taught = True

    def _tune(self) -> None:
        filled, size = self.kept.filled(self.steps), 1 + self.choice("replay")
        for turn in range(self.choice("tune_passes")):
            order = torch.from_numpy(sample(self.keys, self.steps, _TUNE + turn, filled, filled)).to(self.device)
            for start in range(0, filled, size):
                slots = order[:, start : start + size]
                z = self.net.features(self.parameters, self.kept.read("x", slots))
                with torch.enable_grad():
                    leaves = leaves_of({name: self.parameters[name] for name in (WEIGHT, SCALE)})
                    loss = self._losses(leaves, z, self.kept.read("y", slots)).mean(1).sum()
                    gradient = gradient_in(leaves, loss)
                self._descend(gradient, self.tune_rate)

    def _scores(self, x: Tensor) -> Tensor:
        return class_scores(self.net.features(self.parameters, x), self.parameters[WEIGHT])


def class_scores(z: Tensor, proxies: Tensor) -> Tensor:
    """(B, m, classes) of features (B, m, d) and proxies (B, classes, K, d)."""
    cosine = F.normalize(z, dim=-1) @ F.normalize(proxies, dim=-1).flatten(1, 2).mT
    s = (2 * cosine - 2).view(*z.shape[:2], *proxies.shape[1:3])
    return (s.softmax(-1) * s).sum(-1)


def margin_loss(scores: Tensor, y: Tensor, scale: Tensor, margin: Tensor, seen: Tensor) -> Tensor:
    """(B, m) of scores (B, m, classes) and y (B, m), with scale and margin (B,) and seen (B, classes)."""
    scaled = (scores * scale[:, None, None]).masked_fill(~seen[:, None], -torch.inf)
    true = scaled.gather(-1, y[..., None])[..., 0] - (scale * margin)[:, None]
    others = scaled.scatter(-1, y[..., None], -torch.inf).logsumexp(-1)
    cross_entropy = -scaled.log_softmax(-1).gather(-1, y[..., None])[..., 0]
    return torch.where((seen.sum(1) > 1)[:, None], F.relu(others - true), cross_entropy)


def pod_spatial(maps: Sequence[Tensor], old: Sequence[Tensor]) -> Tensor:
    """How far maps (B, m, channels, h, w) have moved, the mean over layers and examples: (B,)."""
    lengths = [
        torch.linalg.vector_norm(_pooled(a) - _pooled(b), dim=-1).mean(1) for a, b in zip(maps, old, strict=True)
    ]
    return torch.stack(lengths).mean(0)


def _pooled(a: Tensor) -> Tensor:
    """(B, m, channels, h, w) -> (B, m, channels (h + w)), of length 1."""
    square = a.square()
    return F.normalize(torch.cat([square.sum(-1).flatten(2), square.sum(-2).flatten(2)], -1), dim=-1)


def pod_flat(z: Tensor, old: Tensor) -> Tensor:
    """1 - cos of features (B, m, d), the mean over examples: (B,)."""
    return (1 - F.cosine_similarity(z, old, dim=-1)).mean(1)
