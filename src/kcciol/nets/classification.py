"""Image classification: theta is a convolutional encoder, W the classifier on its features, the loss cross-entropy."""

from __future__ import annotations

from torch import Tensor

from kcciol.config import NetConfig
from kcciol.errors import UserError
from kcciol.nets.encoder import ConvEncoder
from kcciol.nets.gated import GatedEncoder
from kcciol.nets.heads import Classifier
from kcciol.nets.layout import Layout
from kcciol.random import seeded


class Classification:
    """The network for a set of base classes, and where its parameters lie in the vector Theta."""

    def __init__(self, net: NetConfig, image_shape: tuple[int, int, int], base_classes: int) -> None:
        outputs = net.outputs or base_classes
        if outputs < base_classes:
            raise UserError(
                f"net.outputs is {outputs}, but there are {base_classes} base classes: raise it, or set it to 0."
            )
        self.encoder = GatedEncoder(net, image_shape) if net.gate else ConvEncoder(net, image_shape)
        self.head = Classifier(self.encoder.features, outputs, net.hidden)
        theta = {f"theta.{name}": shape for name, shape in self.encoder.shapes.items()}
        W = {f"W.{name}": shape for name, shape in self.head.shapes.items()}
        self.layout = Layout(theta | W)
        self.theta_length = self.layout.offsets[next(iter(W))]

    def init(self, seed: int) -> Tensor:
        """Algorithm 1, line 1: a random Theta."""
        generator = seeded(seed)
        theta, W = self.encoder.init(generator), self.head.init(generator)
        return self.layout.pack({f"theta.{n}": t for n, t in theta.items()} | {f"W.{n}": t for n, t in W.items()})

    def theta(self, vector: Tensor) -> dict[str, Tensor]:
        """theta's tensors in a vector that begins like Theta (it may end where W begins)."""
        views = Layout({n: s for n, s in self.layout.shapes.items() if n.startswith("theta.")})
        return views.views(vector, "theta.")

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
