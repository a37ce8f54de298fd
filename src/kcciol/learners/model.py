"""What a gradient learner trains: a linear head on features, or a whole network with such a head.

A model holds no parameters; they are tensors of B copies that stand side by side, so that B streams advance together.
Row 0 of the head is the *spare* row and stands for `reserve` rows of classes that have not come yet: they have always
had the same gradient, so one row is enough for all. A class that comes takes over its weights. Without such rows the
newest class pushes against the old ones only, and they are forgotten (docs/methods.md, "The reserve").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from kcciol.config import NetConfig
from kcciol.errors import UserError
from kcciol.kernels import have_triton
from kcciol.nets import copies
from kcciol.nets.encoder import ConvEncoder
from kcciol.nets.pixels import to_unit

Parameters = dict[str, Tensor]  # (B, ...) each
ROWS = ("weight", "bias")  # the parameters that have a row for each class: (B, rows, d) and (B, rows)


class Gradient(Protocol):
    """A gradient in all parameters."""

    def descend_(self, parameters: Parameters, rate: Tensor) -> None:
        """parameters -= rate * gradient, with a rate (B,) for each copy."""

    def dense(self) -> Parameters: ...

    def squared(self) -> Gradient:
        """Every element squared. For the gradient of one example a copy only."""

    def divide_spare_(self, count: Tensor) -> None:
        """Divide the gradient of the head's row 0 by count (B, 1): it was that of all rows that it stands for."""


class Model(ABC):
    """The function from parameters and inputs to logits."""

    input_shape: tuple[int, ...]
    input_dtype: torch.dtype
    width: int  # inputs of the head
    at_once: int  # inputs that may be answered together

    def working(self, inputs: int) -> int:
        """Bytes that a step on so many inputs needs for each copy beside its parameters."""
        return 0

    @abstractmethod
    def start(self, n: int, device: torch.device) -> Parameters:
        """The parameters below the head, fresh for each of n copies; none when there are none."""

    @abstractmethod
    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        """Logits (B, m, rows) of x (B, m, *input_shape), and what `backward` needs."""

    @abstractmethod
    def backward(self, parameters: Parameters, tape: Any, dlogits: Tensor) -> Gradient:
        """The gradient of sum(dlogits * logits). A tape serves once."""

    @abstractmethod
    def features(self, parameters: Parameters, x: Tensor) -> Tensor:
        """What the head sees of x: (B, m, width)."""

    @abstractmethod
    def single_gradients(self, parameters: Parameters, x: Tensor, gradient: Tensor) -> Iterator[Tensor]:
        """The gradients of single examples in each tensor below the head, (B, m, numbers), from those at the features,
        (B, m, width)."""

    def logits(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Logits (B, m, rows), with derivatives where the parameters or x want them."""
        return head_logits(parameters, self.features(parameters, x))


def head_logits(parameters: Parameters, z: Tensor) -> Tensor:
    """Logits (B, m, rows) of what the head sees (B, m, width)."""
    return torch.baddbmm(parameters["bias"][:, None], z, parameters["weight"].mT)


def leaves_of(parameters: Parameters) -> Parameters:
    """The same numbers, in which gradients can be taken."""
    return {name: p.detach().requires_grad_() for name, p in parameters.items()}


def gradient_in(leaves: Parameters, loss: Tensor, again: bool = False) -> Parameters:
    """The gradient of a loss; again: it is to be differentiated too."""
    found = torch.autograd.grad(loss, list(leaves.values()), create_graph=again)
    return dict(zip(leaves, found, strict=True))


@dataclass
class LowRank:
    """The gradient of a linear head: delta^T z, never built when it is only subtracted."""

    delta: Tensor  # (B, m, rows)
    z: Tensor  # (B, m, d)

    def descend_(self, parameters: Parameters, rate: Tensor) -> None:
        scaled, weight = self.delta * rate[:, None, None], parameters["weight"]
        alone = scaled.shape[1] == 1
        if alone and len(scaled) == 1:  # one example of one stream: the same, quicker
            weight[0].addr_(scaled[0, 0], self.z[0, 0], alpha=-1)
        else:
            weight.baddbmm_(scaled.mT, self.z, alpha=-1)
        parameters["bias"].sub_(scaled[:, 0] if alone else scaled.sum(1))

    def dense(self) -> Parameters:
        return {"weight": self.delta.mT @ self.z, "bias": self.delta.sum(1)}

    def divide_spare_(self, count: Tensor) -> None:
        self.delta[..., 0].div_(count)

    def squared(self) -> LowRank:
        assert self.delta.shape[1] == 1
        return LowRank(self.delta.square(), self.z.square())


@dataclass
class Dense:
    """A gradient as it is."""

    values: Parameters

    def descend_(self, parameters: Parameters, rate: Tensor) -> None:
        for name, value in self.values.items():
            parameters[name].addcmul_(per_copy(rate, value), value, value=-1)

    def dense(self) -> Parameters:
        return self.values

    def divide_spare_(self, count: Tensor) -> None:
        self.values["weight"][:, 0] /= count
        self.values["bias"][:, :1] /= count

    def squared(self) -> Dense:
        return Dense({name: value.square() for name, value in self.values.items()})


def per_copy(values: Tensor, like: Tensor) -> Tensor:
    """(B,) -> (B, 1, ..., 1), to multiply a tensor (B, ...) of copies by a number of each copy."""
    return values.view(-1, *[1] * (like.ndim - 1))


class Head(Model):
    """theta is frozen and elsewhere: inputs are features, and all that is trained is the linear head."""

    def __init__(self, width: int, dtype: torch.dtype = torch.float32) -> None:
        self.width, self.input_shape, self.input_dtype = width, (width,), dtype
        self.at_once = max(1, 2**26 // width)

    def start(self, n: int, device: torch.device) -> Parameters:
        return {}

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Tensor]:
        if len(x) == 1 and x.shape[1] == 1:  # one example of one stream: the same, quicker
            return torch.addmv(parameters["bias"][0], parameters["weight"][0], x[0, 0])[None, None], x
        return head_logits(parameters, x), x

    def backward(self, parameters: Parameters, tape: Tensor, dlogits: Tensor) -> LowRank:
        return LowRank(dlogits, tape)

    def features(self, parameters: Parameters, x: Tensor) -> Tensor:
        return x

    def single_gradients(self, parameters: Parameters, x: Tensor, gradient: Tensor) -> Iterator[Tensor]:
        yield from ()


class Network(Model):
    """h_theta and a linear head, all trained; each copy has a theta of its own."""

    input_dtype = torch.uint8

    def __init__(self, net: NetConfig, image_shape: tuple[int, int, int], theta: Mapping[str, Tensor]) -> None:
        """theta is where every copy begins."""
        if net.gate:
            raise UserError("A gated network (ANML) is for learners on a frozen one: train the head only.")
        self.encoder = ConvEncoder(net, image_shape)
        self.input_shape, self.width, self.theta = image_shape, self.encoder.features, dict(theta)
        self.at_once = max(1, 2**31 // (max(self.encoder.macs()) // net.channels))  # by the patches of an image

    def start(self, n: int, device: torch.device) -> Parameters:
        own = {name: value.to(device).expand(n, *value.shape).clone() for name, value in self.theta.items()}
        if device.type != "cuda" or not have_triton():
            return own
        return {name: copies.inputs_last(value) if value.ndim == 5 else value for name, value in own.items()}

    def working(self, inputs: int) -> int:
        """Patches, where they are needed, and maps, both kept for the gradient, and as much again on the way back."""
        maps = sum(h * w * self.encoder.channels for h, w in self.encoder.sides)
        return 2 * 4 * inputs * (sum(self.encoder.macs()) // self.encoder.channels + maps)

    def maps(self, parameters: Parameters, x: Tensor) -> list[Tensor]:
        """The output of each convolution, (B, m, channels, h, w)."""
        return list(self._layers(parameters, x))

    def _layers(self, parameters: Parameters, x: Tensor) -> Iterator[Tensor]:
        return copies.maps(parameters, to_unit(x, parameters["weight"].dtype), self.encoder.strides)

    def flat(self, a: Tensor) -> Tensor:
        """The last map (B, m, channels, h, w) as features (B, m, width), in the encoder's order."""
        return a.permute(0, 1, 3, 4, 2).flatten(2)

    def features(self, parameters: Parameters, x: Tensor) -> Tensor:
        for a in self._layers(parameters, x):
            last = a
        return self.flat(last)

    def single_gradients(self, parameters: Parameters, x: Tensor, gradient: Tensor) -> Iterator[Tensor]:
        theta = {name: p for name, p in parameters.items() if name not in ROWS}
        scaled = to_unit(x, parameters["weight"].dtype)
        if copies.kernels_can(scaled):
            at = gradient.reshape(*x.shape[:2], *self.encoder.sides[-1], self.encoder.channels)
            yield from copies.single_gradients(theta, scaled, self.encoder.strides, at)
            return
        found = []
        for i in range(x.shape[1]):
            with torch.enable_grad():
                leaves = leaves_of(theta)
                z = self.features(parameters | leaves, scaled[:, i : i + 1])
            found.append(torch.autograd.grad(z, list(leaves.values()), gradient[:, i : i + 1]))
        for parts in zip(*found, strict=True):
            yield torch.stack([g.flatten(1) for g in parts], 1)

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, tuple[list[Tensor], Tensor]]:
        with torch.enable_grad():
            leaves = leaves_of(parameters)
            logits = self.logits(leaves, x)
        return logits.detach(), (list(leaves.values()), logits)

    def backward(self, parameters: Parameters, tape: tuple[list[Tensor], Tensor], dlogits: Tensor) -> Dense:
        leaves, logits = tape
        return Dense(dict(zip(parameters, torch.autograd.grad(logits, leaves, dlogits), strict=True)))
