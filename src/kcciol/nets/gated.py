"""An encoder whose features are gated by a second, smaller one (ANML's neuromodulation), and its derivatives.

    z = h * s,   s = sigmoid(A m + a)

with h the features of the prediction network and m those of the modulator, on the same image. The interface is that of
`ConvEncoder`, so meta-training runs on it unchanged; docs/architecture.md, "The meta-step", says what is needed of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from kcciol.config import NetConfig
from kcciol.nets.encoder import ConvEncoder, Tape, Theta

MODULATOR = "mod."


@dataclass
class GatedTape:
    """What `forward` leaves for `backward`, and `backward` for the tangents."""

    prediction: Tape
    modulator: Tape
    h: Tensor
    m: Tensor
    s: Tensor
    moved: dict[str, Tensor] = field(default_factory=dict)

    def tail(self, first: int) -> GatedTape:
        """The same without the images before `first`."""
        if not first:
            return self
        tails = self.prediction.tail(first), self.modulator.tail(first)
        return GatedTape(*tails, self.h[first:], self.m[first:], self.s[first:])


class GatedEncoder:
    """The shape of a gated h_theta. Holds no parameters."""

    def __init__(self, net: NetConfig, image_shape: tuple[int, int, int]) -> None:
        self.prediction = ConvEncoder(net, image_shape)
        self.modulator = ConvEncoder(replace(net, channels=net.gate), image_shape)
        self.image_shape, self.strides, self.channels = image_shape, net.strides, net.channels
        self.features = self.prediction.features
        self.rows, self.about = self.prediction.rows, self.prediction.about

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """theta's tensors."""
        modulator = {MODULATOR + name: shape for name, shape in self.modulator.shapes.items()}
        gate: dict[str, tuple[int, ...]] = {"gate.weight": (self.features, self.modulator.features)}
        return self.prediction.shapes | modulator | gate | {"gate.bias": (self.features,)}

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Both networks Kaiming-normal; the gate begins half open, a little different for each image."""
        theta = self.prediction.init(generator)
        theta |= {MODULATOR + name: t for name, t in self.modulator.init(generator).items()}
        scale = 1 / math.sqrt(self.modulator.features)
        theta["gate.weight"] = torch.randn(self.shapes["gate.weight"], generator=generator) * scale
        return theta | {"gate.bias": torch.zeros(self.features)}

    def macs(self) -> list[int]:
        """Multiply-adds for one image: of the layers of both networks, and of the gate."""
        return [*self.prediction.macs(), *self.modulator.macs(), self.features * self.modulator.features]

    def patches(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        return self.prediction.patches(rows, dtype)

    def apply(self, theta: Theta, rows: Tensor, precision: torch.dtype, training: bool = False) -> Tensor:
        """As `ConvEncoder.apply`."""
        return self.forward({name: t.to(precision) for name, t in theta.items()}, self.patches(rows, precision))[0]

    def forward(self, theta: Theta, patches: Tensor) -> tuple[Tensor, GatedTape]:
        """Features (n, d), and the tape."""
        h, prediction = self.prediction.forward(theta, patches)
        m, modulator = self.modulator.forward(_modulator(theta), patches)
        s = torch.sigmoid(torch.addmm(theta["gate.bias"], m, theta["gate.weight"].T))
        return h * s, GatedTape(prediction, modulator, h, m, s)

    def backward(self, theta: Theta, tape: GatedTape, u: Tensor) -> dict[str, Tensor]:
        """The gradient in theta of sum(u * z), u (n, d)."""
        slope = tape.s * (1 - tape.s)
        g = u * tape.h * slope  # at the sigmoid's input
        tape.moved |= {"u": u, "g": g, "slope": slope}
        gradient = self.prediction.backward(theta, tape.prediction, u * tape.s)
        modulator = self.modulator.backward(_modulator(theta), tape.modulator, g @ theta["gate.weight"])
        gradient |= {MODULATOR + name: t for name, t in modulator.items()}
        return gradient | {"gate.weight": g.T @ tape.m, "gate.bias": g.sum(0)}

    def tangent(self, theta: Theta, tape: GatedTape, v: Theta) -> Tensor:
        """The derivative of the features along v, (n, d)."""
        hdot = self.prediction.tangent(theta, tape.prediction, v)
        mdot = self.modulator.tangent(_modulator(theta), tape.modulator, _modulator(v))
        input_dot = mdot @ theta["gate.weight"].T + torch.addmm(v["gate.bias"], tape.m, v["gate.weight"].T)
        sdot = tape.moved["slope"] * input_dot
        tape.moved |= {"hdot": hdot, "mdot": mdot, "input_dot": input_dot, "sdot": sdot}
        return hdot * tape.s + tape.h * sdot

    def tangent_backward(self, theta: Theta, tape: GatedTape, v: Theta, udot: Tensor) -> dict[str, Tensor]:
        """The derivative of `backward`'s result along v, when u itself moves by udot (n, d)."""
        t, A = tape.moved, theta["gate.weight"]
        gdot = (udot * tape.h + t["u"] * t["hdot"]) * t["slope"] + t["g"] * (1 - 2 * tape.s) * t["input_dot"]
        moved = self.prediction.tangent_backward(theta, tape.prediction, v, udot * tape.s + t["u"] * t["sdot"])
        modulator = self.modulator.tangent_backward(
            _modulator(theta), tape.modulator, _modulator(v), gdot @ A + t["g"] @ v["gate.weight"]
        )
        moved |= {MODULATOR + name: value for name, value in modulator.items()}
        return moved | {"gate.weight": gdot.T @ tape.m + t["g"].T @ t["mdot"], "gate.bias": gdot.sum(0)}


def _modulator(theta: Theta) -> Mapping[str, Tensor]:
    return {name.removeprefix(MODULATOR): t for name, t in theta.items() if name.startswith(MODULATOR)}
