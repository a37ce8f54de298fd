"""Image classification: theta is an encoder, W the classifier on its features, the loss cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol.config import NetConfig
from kcciol.errors import UserError
from kcciol.nets.encoder import ConvEncoder
from kcciol.nets.gated import GatedEncoder
from kcciol.nets.layout import Layout
from kcciol.nets.module import ModuleEncoder
from kcciol.random import seeded


class Classifier:
    """The shape of g_W, linear or with one hidden layer. Holds no parameters: W is an argument."""

    def __init__(self, features: int, outputs: int, hidden: int = 0) -> None:
        self.features, self.outputs, self.hidden = features, outputs, hidden

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """W's tensors; `weight` and `bias` are the last layer, whose rows belong to the classes."""
        last = {"weight": (self.outputs, self.hidden or self.features), "bias": (self.outputs,)}
        if not self.hidden:
            return last
        return {"hidden.weight": (self.hidden, self.features), "hidden.bias": (self.hidden,), **last}

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Kaiming-normal weights, zero biases."""
        W = {}
        for name, shape in self.shapes.items():
            scale = math.sqrt(2 / shape[1]) if len(shape) > 1 else 0.0
            W[name] = torch.randn(shape, generator=generator) * scale
        return W

    def logits(self, W: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """(..., features) -> (..., outputs)."""
        if self.hidden:
            z = F.relu(F.linear(z, W["hidden.weight"], W["hidden.bias"]))
        return F.linear(z, W["weight"], W["bias"])


class Classification:
    """The network for a set of base classes, and where its parameters lie in the vector Theta."""

    encoder: ConvEncoder | GatedEncoder | ModuleEncoder

    def __init__(
        self, net: NetConfig, image_shape: tuple[int, int, int], base_classes: int, module: nn.Module | None = None
    ) -> None:
        """module: a network of one's own as an object, which then is theta; else the config says what theta is."""
        outputs = net.outputs or base_classes
        if outputs < base_classes:
            raise UserError(
                f"net.outputs is {outputs}, but there are {base_classes} base classes: raise it, or set it to 0."
            )
        if net.module or module is not None:
            self.encoder = ModuleEncoder(net.module, image_shape, module)
        else:
            self.encoder = GatedEncoder(net, image_shape) if net.gate else ConvEncoder(net, image_shape)
        self.head = Classifier(self.encoder.features, outputs, net.hidden)
        theta = {f"theta.{name}": shape for name, shape in self.encoder.shapes.items()}
        W = {f"W.{name}": shape for name, shape in self.head.shapes.items()}
        self.layout = Layout(theta | W)
        self.theta_length = self.layout.offsets[next(iter(W))]

    @property
    def convolutions(self) -> ConvEncoder | GatedEncoder:
        """The encoder, where it is the paper's, whose derivatives are written out."""
        assert not isinstance(self.encoder, ModuleEncoder)
        return self.encoder

    @property
    def by_hand(self) -> bool:
        """Whether the encoder's derivatives are written out; else autograd takes them."""
        return not isinstance(self.encoder, ModuleEncoder)

    @property
    def buffers(self) -> dict[str, Tensor]:
        """What a module keeps besides its parameters, such as running means; training changes them in place."""
        if not isinstance(self.encoder, ModuleEncoder):
            return {}
        return {f"buffer.{name}": tensor for name, tensor in self.encoder.buffers.items()}

    def init(self, seed: int) -> Tensor:
        """Algorithm 1, line 1: a random Theta."""
        generator = seeded(seed)
        return self.pack(self.encoder.init(generator), self.head.init(generator))

    def pack(self, theta: Mapping[str, Tensor], W: Mapping[str, Tensor], like: Tensor | None = None) -> Tensor:
        """A vector like Theta that holds these tensors."""
        tensors = {f"theta.{n}": t for n, t in theta.items()} | {f"W.{n}": t for n, t in W.items()}
        return self.layout.pack(tensors, like)

    def theta(self, vector: Tensor) -> dict[str, Tensor]:
        """theta's tensors in a vector that begins like Theta (it may end where W begins)."""
        views = Layout({n: s for n, s in self.layout.shapes.items() if n.startswith("theta.")})
        return views.views(vector, "theta.")

    def tensors(self, Theta: Tensor) -> dict[str, Tensor]:
        """All that a file keeps of the network."""
        return self.layout.views(Theta) | self.buffers

    def W(self, Theta: Tensor) -> dict[str, Tensor]:
        """W's tensors."""
        return self.layout.views(Theta, "W.")

    def reset_rows_(self, Theta: Tensor, classes: Tensor, rows: Tensor | None) -> None:
        """Set the classes' rows of W's last layer, weight and bias, to the given weights (none: zero) and zero."""
        W = self.W(Theta)
        if rows is None:
            W["weight"].index_fill_(0, classes, 0.0)
        else:
            W["weight"].index_copy_(0, classes, rows)
        W["bias"].index_fill_(0, classes, 0.0)
