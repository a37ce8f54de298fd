"""MERLIN: a generator of classifiers, which are tuned before they answer (Joseph & Balasubramanian 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.errors import UserError
from kcciol.learners import weightvae as vae
from kcciol.learners.base import Labels
from kcciol.learners.bounds import HIGHEST_RATE, MOST_STEPS, bounded
from kcciol.learners.card import Card
from kcciol.learners.gradient import PARAMETERS
from kcciol.learners.grid import Grid
from kcciol.learners.memory import MemoryLearner, SlotSettings
from kcciol.learners.model import Head, Model, per_copy
from kcciol.random import sample, seeded, uniform

MODEL = PARAMETERS + "weight"  # (B, classes, d + 1): the model of the task that runs, bias last
GENERATOR, CLASS = "generator.", "generator.class"
MEAN, LOGVAR, SIZE, TASK = "prior.mean", "prior.logvar", "prior.size", "prior.task"
EXAMPLES = "task.examples"
_START, _CLASS, _FIT, _REPLAY, _MEMBERS, _TUNE = range(3000, 3006)  # purposes of random numbers


@dataclass(frozen=True)
class MERLINSettings(SlotSettings):
    generator: Literal["vae", "none"] = "vae"
    """Where the ensemble comes from: the autoencoder, or random weights (a control: the same tuning on the same memory
    without anything that was learned of weights)."""
    rate: float = bounded(0.01, above=0, high=HIGHEST_RATE)
    """Rate of SGD for the model of the task that runs."""
    updates: int = bounded(1, low=0, high=MOST_STEPS)
    """Steps of that model on each example."""
    chunk: int = bounded(300, low=1)
    """Weights that the autoencoder reads at a time."""
    hidden: int = bounded(50, low=1)
    """Width of its two hidden layers."""
    latent: int = bounded(2, low=1)
    """Numbers in its code."""
    place: int = bounded(8, low=1)
    """Numbers that tell its decoder the class and the piece."""
    epochs: int = bounded(25, low=0, high=MOST_STEPS)
    """Steps of Adam that it takes at the end of a task, each on all chunks."""
    generator_rate: float = bounded(0.01, above=0, high=HIGHEST_RATE)
    """Rate of these steps."""
    replayed: int = bounded(10, low=0, high=MOST_STEPS)
    """Earlier tasks whose weights are decoded and learned again with a new task's, drawn at random."""
    draws: int = bounded(10, low=1, high=MOST_STEPS)
    """Weights decoded for each of them, of which the best on the memory is learned again."""
    members: int = bounded(10, low=1, high=MOST_STEPS)
    """Models in the ensemble that answers."""
    tune_steps: int = bounded(200, low=0, high=MOST_STEPS)
    """Steps of Adam that each of them takes on the memory before it answers; 0 is the bare generator (a control)."""
    tune_rate: float = bounded(0.001, above=0, high=HIGHEST_RATE)
    """Rate of these steps."""
    tune_batch: int = bounded(10, low=1)
    """Kept examples in each of these steps."""


class MERLIN(MemoryLearner):
    """A linear head psi_t is trained on each task t alone, from zero. A variational autoencoder, one for the whole
    stream, learns the heads c = psi_t / rms(psi_t) in chunks, with a prior N(mu_t, v_t) for each task, learned too:

        L = mean over chunks of 1/2 |c - decode(z)|^2 + KL(q(z | c) || N(mu_t, v_t)),  z ~ q(z | c)

    It would forget earlier tasks, so it also learns heads that it decoded itself from earlier priors, each under its
    own prior; they are decoded before it learns the new task, as afterwards it may not know them any more. Of several
    draws the one is taken that is right most often on the memory.

    To answer, heads are decoded from the mean prior (mean of mu_t, of v_t and of the sizes rms), each is tuned on the
    memory, and their logits are summed: for linear heads that is one head with summed weights, which is remembered
    until something is learned. Rows of classes that came after the last boundary are those of the model in training,
    and before the first boundary that model alone is tuned and answers; the memory has examples of the running task
    in either case. Tuning starts from the same random numbers as long as nothing is learned.

    A class's row, d weights and a bias, is filled up with zeros to whole chunks; see `weightvae`. Differences from what
    was published: one model a task, trained in one pass; earlier tasks are drawn rather than all replayed, which would
    cost tasks x classes at each boundary; all of the stream's classes compete in one head.
    """

    card = Card(
        "tunes heads from a generator of weights on its memory",
        "Joseph & Balasubramanian 2020",
        keeps="200 examples and a generator of weights",
        replay=True,
        capacity="slots",
        tasks=True,
        sequential=True,
        trains=("head",),
        solves=True,
    )
    settings_type = MERLINSettings
    growing = frozenset({MEAN, LOGVAR, SIZE})  # a row of each task

    @classmethod
    def extra_bytes(cls, model: Model, settings: Any, classes: int) -> int:
        pieces = math.ceil((math.prod(model.input_shape) + 1) / settings.chunk)
        units = settings.hidden * (2 * settings.chunk + 3 * settings.latent + settings.place)
        return super().extra_bytes(model, settings, classes) + int(3 * 4 * (units + pieces * settings.place))

    grid: ClassVar[Grid] = {"rate": (0.1, 0.01), "tune_rate": (0.01, 0.001)}
    idle: ClassVar[Mapping[str, Any]] = {"epochs": 0, "tune_steps": 0}

    def _setup(self) -> None:
        if not isinstance(self.model, Head):
            raise UserError("MERLIN generates heads for a frozen network: give it the features, or use `er` to train.")
        super()._setup()
        self.width = self.model.width + 1
        names = ("chunk", "hidden", "latent", "place")
        self.shape = vae.Shape(self.width, *(self.choice(name) for name in names))
        self.generates = self.choice("generator") == "vae"
        if not self.generates:
            return
        self.rate = self.column("rate")
        starts = [self.shape.start(self._generator(copy, _START, time=0)) for copy in range(self.copies)]
        for name in starts[0]:
            self.state[GENERATOR + name] = torch.stack([s[name] for s in starts]).to(self.device, self.dtype)
        self.vae_names = list(starts[0])
        for name, shape in ((MEAN, (self.shape.latent,)), (LOGVAR, (self.shape.latent,)), (SIZE, ())):
            self.state[name] = torch.zeros(self.copies, 0, *shape, dtype=self.dtype, device=self.device)
        self.state[EXAMPLES] = torch.zeros(self.copies, dtype=torch.int64, device=self.device)
        self.add_rows(MODEL, self.width, dtype=self.dtype)
        self.add_rows(CLASS, self.shape.place, dtype=self.dtype)
        self.add_rows(TASK, dtype=torch.int64)  # when a class came

    def require_sound(self) -> None:
        super().require_sound()
        if self.generates:
            tasks = {self.state[name].shape[1] for name in (MEAN, LOGVAR, SIZE)}
            if len(tasks) > 1 or bool((self.rows[TASK] > self.tasks).any()):
                raise UserError("what it knows of its tasks does not fit together.")

    def _restored(self) -> None:
        self._ensemble = None

    def _generator(self, copy: int, purpose: int, time: int | None = None) -> torch.Generator:
        """Random numbers of a copy at this time (or at one given) for this purpose."""
        number = uniform(self.keys[copy : copy + 1], self.steps if time is None else time, purpose, 1)[0, 0]
        return seeded(int(number * 2**53))

    def _normal(self, generator: torch.Generator, *shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(self.device, self.dtype)

    @property
    def tasks(self) -> int:
        """Tasks that have ended."""
        return self.state[MEAN].shape[1] if self.generates else 0

    # --- an example -------------------------------------------------------------------------------------------------

    def _new_classes(self, copies: Tensor, labels: Tensor) -> None:
        if not self.generates:
            return
        self.rows[TASK][copies, labels] = self.tasks
        for copy, label in zip(copies.tolist(), labels.tolist(), strict=True):
            self.rows[CLASS][copy, label] = self._normal(self._generator(copy, _CLASS), self.shape.place)

    def _learn(self, x: Tensor, y: Labels) -> None:
        self._ensemble = None
        label = self.labels(y)
        if self.generates:
            weight, wide = self.rows[MODEL][:, : self.classes], with_one(x)
            unseen, target = ~self._seen_mask(), F.one_hot(label, self.classes)
            for _ in range(self.choice("updates")):
                logits = (weight @ wide[..., None])[..., 0].masked_fill(unseen, -torch.inf)
                error = (logits.softmax(-1) - target)[..., None] * wide[:, None]
                weight.sub_(per_copy(self.rate, error) * error)
            self.state[EXAMPLES] += 1
        self.kept.add(self.steps, {"x": x, "y": label})

    # --- a boundary -------------------------------------------------------------------------------------------------

    def end_task(self) -> None:
        """The autoencoder learns the model of the task, which then starts anew."""
        if not self.generates or not bool(self.state[EXAMPLES].any()):
            return
        self._ensemble = None
        with torch.no_grad():
            lessons = [self._lessons(copy) for copy in range(self.copies)]
            for name in (MEAN, LOGVAR, SIZE):
                old = self.state[name]
                self.state[name] = torch.cat([old, old.new_zeros(len(old), 1, *old.shape[2:])], 1)
            for copy, (chunks, labels, tasks, size) in enumerate(lessons):
                self.state[SIZE][copy, -1] = size
                self._fit(copy, chunks, labels, tasks)
            self.rows[MODEL].zero_()
            self.state[EXAMPLES].zero_()

    def _lessons(self, copy: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What to learn: chunks (N, pieces, size) of rows, their classes and tasks (N,), and the new head's rms."""
        labels = self._labels(copy)
        rows = self.rows[MODEL][copy, labels]
        size = rows.square().mean().sqrt()
        parts = [(vae.to_chunks(rows / torch.where(size > 0, size, 1), self.shape.chunk), labels, self.tasks)]
        generator = self._generator(copy, _REPLAY)
        for task in sample(self.keys[copy : copy + 1], self.steps, _REPLAY, self.choice("replayed"), self.tasks)[0]:
            parts.append((*self._recall(copy, int(task), generator), int(task)))
        chunks, classes, tasks = zip(*parts, strict=True)
        counts = torch.tensor([len(c) for c in classes], device=self.device)
        number = torch.tensor(tasks, device=self.device).repeat_interleave(counts)
        return torch.cat(chunks), torch.cat(classes), number, size

    def _recall(self, copy: int, task: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A head of an earlier task in chunks, the best of some draws, and the classes that were known then."""
        labels = self._labels(copy)
        labels = labels[self.rows[TASK][copy, labels] <= task]
        mean, logvar = self.state[MEAN][copy, task], self.state[LOGVAR][copy, task]
        chunks = self._decode(copy, mean, logvar.exp(), labels, self.choice("draws"), generator)
        x, y = self._examples(copy)
        answers = labels[(x @ vae.from_chunks(chunks, self.width).mT).argmax(-1)]  # a head's size changes no answer
        best = (answers == y).sum(-1).argmax()
        return chunks[best], labels

    def _fit(self, copy: int, chunks: Tensor, labels: Tensor, tasks: Tensor) -> None:
        places = {GENERATOR + name: self.state[GENERATOR + name][copy] for name in self.vae_names}
        places |= {CLASS: self.rows[CLASS][copy], MEAN: self.state[MEAN][copy], LOGVAR: self.state[LOGVAR][copy]}
        leaves = {name: p.clone().requires_grad_() for name, p in places.items()}
        weights = {name: leaves[GENERATOR + name] for name in self.vae_names}
        optimizer = torch.optim.Adam(leaves.values(), lr=float(self.column("generator_rate")[copy]))
        generator = self._generator(copy, _FIT)
        for _ in range(self.choice("epochs")):
            noise = self._normal(generator, *chunks.shape[:-1], self.shape.latent)
            with torch.enable_grad():
                mean, logvar = vae.encode(weights, chunks)
                again = vae.decode(weights, mean + (0.5 * logvar).exp() * noise, leaves[CLASS][labels])
                kl = vae.divergence(mean, logvar, leaves[MEAN][tasks][:, None], leaves[LOGVAR][tasks][:, None])
                loss = (0.5 * (again - chunks).square().sum(-1) + kl).mean()
                gradients = torch.autograd.grad(loss, list(leaves.values()))
            for leaf, gradient in zip(leaves.values(), gradients, strict=True):
                leaf.grad = gradient
            optimizer.step()
        for name, p in places.items():
            p.copy_(leaves[name].detach())

    # --- an answer --------------------------------------------------------------------------------------------------

    _ensemble: Tensor | None = None  # (B, classes, d + 1): follows from the state, so it is not a part of it

    def _scores(self, x: Tensor) -> Tensor:
        if self._ensemble is None:
            heads = torch.zeros(self.copies, self.classes, self.width, dtype=self.dtype, device=self.device)
            for copy in range(self.copies):
                heads[copy, self._labels(copy)] = self.tuned(copy, self.heads(copy)).sum(0)
            self._ensemble = heads
        return with_one(x) @ self._ensemble.mT

    def heads(self, copy: int) -> Tensor:
        """The ensemble (members, seen classes, d + 1) before it is tuned."""
        labels, members, generator = self._labels(copy), self.choice("members"), self._generator(copy, _MEMBERS)
        if not self.generates:
            return self._normal(generator, members, len(labels), self.width) / math.sqrt(self.width)
        model = self.rows[MODEL][copy, labels]
        if self.tasks == 0:
            return model[None]
        mean, variance = self.state[MEAN][copy].mean(0), self.state[LOGVAR][copy].exp().mean(0)
        chunks = self._decode(copy, mean, variance, labels, members, generator)
        heads = vae.from_chunks(chunks, self.width) * self.state[SIZE][copy].mean()
        return torch.where((self.rows[TASK][copy, labels] == self.tasks)[:, None], model, heads)

    def tuned(self, copy: int, heads: Tensor) -> Tensor:
        """Heads (members, seen classes, d + 1) after their steps on the memory."""
        steps, labels = self.choice("tune_steps"), self._labels(copy)
        if steps == 0:
            return heads
        x, y = self._examples(copy)
        target = (y[:, None] == labels).to(self.dtype)
        heads, generator = heads.clone(), self._generator(copy, _TUNE)
        optimizer = torch.optim.Adam([heads], lr=float(self.column("tune_rate")[copy]))
        for _ in range(steps):
            batch = torch.randint(len(x), (self.choice("tune_batch"),), generator=generator).to(self.device)
            error = (x[batch] @ heads.mT).softmax(-1) - target[batch]  # (members, batch, classes)
            heads.grad = error.mT @ x[batch] / len(batch)
            optimizer.step()
        return heads

    def _decode(
        self, copy: int, mean: Tensor, variance: Tensor, labels: Tensor, count: int, generator: torch.Generator
    ) -> Tensor:
        """Chunks (count, len(labels), pieces, size), of a code of its own each."""
        weights = {name: self.state[GENERATOR + name][copy] for name in self.vae_names}
        noise = self._normal(generator, count, len(labels), self.shape.pieces, self.shape.latent)
        return vae.decode(weights, mean + variance.sqrt() * noise, self.rows[CLASS][copy, labels])

    def _labels(self, copy: int) -> Tensor:
        """The classes that a copy has seen."""
        return torch.from_numpy(np.flatnonzero(self.seen[copy])).to(self.device)

    def _examples(self, copy: int) -> tuple[Tensor, Tensor]:
        """The memory of a copy."""
        filled = self.kept.filled(self.steps)
        return with_one(self.kept["x"][copy, :filled]), self.kept["y"][copy, :filled]


def with_one(x: Tensor) -> Tensor:
    """(..., d) -> (..., d + 1), for the bias."""
    return F.pad(x, (0, 1), value=1.0)
