"""One step of a recipe: views of base images, the loss, its gradient, and the weights a step further.

All weights lie in one vector, of which the network's parameters are views, and so do their gradients: the update is a
few operations on vectors, whatever the network.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol import optim
from kcciol.engine.graph import TRIALS
from kcciol.engine.loop import BLOCK
from kcciol.nets.residual import Residual
from kcciol.random import keyed, keyed_uniform, seeded
from kcciol.recipes.config import RateConfig, Recipe
from kcciol.recipes.views import Views

_IMAGE, _TURN = range(2)  # what a step's keys are for
MOMENTUM = 0.9


class ClassVectors(nn.Module):
    """Cosines of features with a vector for each class; or, where the scale is 0, a linear map."""

    def __init__(self, recipe: Recipe, classes: int) -> None:
        super().__init__()
        self.config, self.classes = recipe.loss, classes
        drawn = torch.randn(classes, recipe.net.width, generator=seeded(recipe.seed + 1))
        self.weight = nn.Parameter(drawn / math.sqrt(recipe.net.width))
        self.turn = nn.Linear(recipe.net.width, 4) if recipe.loss.turned else nn.Identity()
        for parameter in self.turn.parameters():
            nn.init.zeros_(parameter)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """The mean loss of features (n, width) of classes (n,)."""
        c = self.config
        if not c.scale:
            return F.cross_entropy(F.linear(z, self.weight), y, label_smoothing=c.smoothing)
        cosines = F.linear(F.normalize(z), F.normalize(self.weight))
        logits = c.scale * (cosines - c.margin * F.one_hot(y, self.classes))
        return F.cross_entropy(logits, y, label_smoothing=c.smoothing)


class RecipeNet(nn.Module):
    """What is trained: the encoder and its classifier."""

    def __init__(self, recipe: Recipe, classes: int) -> None:
        super().__init__()
        self.encoder = Residual(recipe.net, recipe.seed)
        self.classifier = ClassVectors(recipe, classes)


def flatten_(net: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """Make the parameters views of one vector, and their gradients of another; both, and 1 where weights decay.

    A convolution's weights keep their order in memory, channels last.
    """
    parameters = list(net.parameters())
    count = sum(p.numel() for p in parameters)
    vector = parameters[0].new_zeros(count)
    gradient, decays = torch.zeros_like(vector), torch.zeros_like(vector)
    at = 0
    for p in parameters:
        part = slice(at, at + p.numel())
        at += p.numel()

        def view(flat: Tensor, p: Tensor = p, part: slice = part) -> Tensor:
            if p.ndim == 4:
                o, i, h, w = p.shape
                return flat[part].view(o, h, w, i).permute(0, 3, 1, 2)
            return flat[part].view(p.shape)

        view(vector).copy_(p.data)
        p.data, p.grad = view(vector), view(gradient)
        decays[part] = float(p.ndim > 1)
    return vector, gradient, decays


def moving(net: nn.Module) -> list[Tensor]:
    """The buffers that are averaged with the weights: the means and variances of norms, and no counts."""
    return [buffer for buffer in net.buffers() if buffer.is_floating_point()]


def schedule(config: RateConfig) -> Tensor:
    """(steps, 3), float32: the rate of each step, and Adam's `step` and `root` for a rate of 1 (see `optim.adam_`).

    A table, so that a step on a GPU looks them up by a counter that lives there; and enough for the trials of a graph.
    """
    t = torch.arange(1, max(config.steps, TRIALS) + 1, dtype=torch.float64)
    warm = max(1, config.steps // 20)
    rate = config.rate * (t / warm).clamp(max=1) * (1 + (math.pi * (t - 1) / config.steps).cos()) / 2
    step, root = optim.corrections(torch.ones_like(t), t)
    return torch.stack([rate, torch.as_tensor(step), root], 1).float()


class RecipeStep:
    """The state of a training on one device; calling it does the next step."""

    def __init__(self, recipe: Recipe, views: Views, classes: int, device: torch.device) -> None:
        self.recipe, self.views, self.device = recipe, views, device
        self.net = RecipeNet(recipe, classes * recipe.view.classes).to(device)
        self.Theta, self.gradient, self.decays = flatten_(self.net)
        self.adam = optim.Adam.new(self.Theta)
        self.average = self.Theta.clone()
        self.buffers = moving(self.net)
        self.average_buffers = [b.clone() for b in self.buffers]
        self.rates = schedule(recipe.rate).to(device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.slot = torch.zeros(1, dtype=torch.int64, device=device)
        self.metrics = torch.zeros(BLOCK, 1, device=device)
        self.rows = torch.arange(recipe.rate.batch, device=device)
        self.bf16 = recipe.engine.precision == "bf16"  # of the encoder's activations, on a CPU too

    @property
    def named_state(self) -> dict[str, Tensor]:
        """What a run is resumed from."""
        own = {"Theta": self.Theta, "m": self.adam.m, "v": self.adam.v, "average": self.average}
        averages = {f"average.{i}": buffer for i, buffer in enumerate(self.average_buffers)}
        return {**own, **{f"buffer.{name}": buffer for name, buffer in self.net.named_buffers()}, **averages}

    @property
    def state(self) -> list[Tensor]:
        """What a step changes, but for the counters."""
        return [*self.named_state.values(), self.metrics]

    @property
    def counters(self) -> list[Tensor]:
        return [self.step, self.slot]

    def load_block(self, block: int, slot: int) -> None:
        """Stand before the step number `slot` of a block."""
        self.slot.fill_(slot)
        self.step.fill_(block * BLOCK + slot)

    def __call__(self) -> None:
        self.net.train()
        keys = keyed(self.step, self.rows, self.recipe.seed)
        x, y = self.views.draw(keyed(keys, _IMAGE))
        loss = self.loss(x, y, keys)
        self.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        self._update()
        self.metrics.index_copy_(0, self.slot, loss.detach().float().view(1, 1))
        self.slot += 1
        self.step += 1

    def loss(self, x: Tensor, y: Tensor, keys: Tensor) -> Tensor:
        """Of images (n, c, h, w) of these classes."""
        net, turned = self.net, self.recipe.loss.turned
        if turned:  # a quarter of the batch again, turned; what is asked of it is how
            part = x[: max(1, len(x) // 4)]
            turn = (keyed_uniform(keyed(keys[: len(part)], _TURN), 1)[:, 0] * 4).long()
            four = torch.stack([torch.rot90(part, k, (2, 3)) for k in range(4)])
            x = torch.cat([x, four[turn, torch.arange(len(part), device=x.device)]])
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            z = net.encoder(x)
        z = z.float()
        loss = net.classifier.loss(z[: len(y)], y)
        if turned:
            loss = loss + turned * F.cross_entropy(net.classifier.turn(z[len(y) :]), turn)
        return loss

    @torch.no_grad()
    def _update(self) -> None:
        c = self.recipe.rate
        rate, step, root = self.rates.index_select(0, self.step)[0]
        if c.optimizer == "adam":
            self.Theta.sub_(rate * c.decay * self.decays * self.Theta)
            optim.adam_(self.Theta, self.gradient, self.adam.m, self.adam.v, rate * step, root)
        else:
            self.gradient.add_(self.decays * self.Theta, alpha=c.decay)
            self.adam.m.mul_(MOMENTUM).add_(self.gradient)
            self.Theta.sub_(rate * (self.gradient + MOMENTUM * self.adam.m))  # Nesterov's
        kept = torch.clamp((1 + self.step) / (10 + self.step), max=c.average)[0].float()
        for average, now in [(self.average, self.Theta), *zip(self.average_buffers, self.buffers, strict=True)]:
            average.lerp_(now, 1 - kept)

    @torch.no_grad()
    def encoder(self) -> Residual:
        """The encoder of the averaged weights."""
        net = RecipeNet(self.recipe, self.net.classifier.classes).to(self.device)
        flatten_(net)[0].copy_(self.average)
        for own, averaged in zip(moving(net), self.average_buffers, strict=True):
            own.copy_(averaged)
        found = Residual(self.recipe.net).to(self.device)
        found.load_state_dict(net.encoder.state_dict())  # as a file has them: each in memory of its own
        return found.eval()
