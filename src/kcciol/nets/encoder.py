"""h_theta: 3x3 convolutions with ReLU, and its derivatives written out.

The meta-gradient needs h and its transposed Jacobian; the constraint of phase 3 needs the tangents of both
(docs/architecture.md, "The meta-step"). For convolutions and ReLU each is a handful of products, so they stand here
explicitly: it is faster than differentiating twice, and nothing else in the meta-step touches an image.

With a_0 the image, a_l = relu(a_{l-1} * w_l + b_l) and z = a_L:

    forward            a_l
    backward           g_l = 1[a_l > 0] (g_{l+1} *' w_{l+1}),  dw_l = a_{l-1} x g_l,  db_l = sum g_l
    tangent            a'_l = 1[a_l > 0] (a'_{l-1} * w_l + a_{l-1} * w'_l + b'_l)
    tangent_backward   the derivative of backward along (w', a', u')

The first convolution reads one to three channels, too few for a fast convolution kernel: it runs as one matrix product
over 3x3 patches, with the bias as one more column.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kcciol.config import NetConfig
from kcciol.errors import UserError, quoted
from kcciol.nets import convolution as conv
from kcciol.nets.pixels import to_unit


@dataclass
class Tape:
    """What `forward` leaves for `backward`, and `backward` for the tangents."""

    patches: Tensor  # (n, places, 9c + 1 and padding)
    outputs: list[Tensor]  # a_1 ... a_L, each (n, channels, h, w)
    cotangents: list[Tensor]  # g_1 ... g_L, from backward
    tangents: list[Tensor]  # a'_1 ... a'_L, from tangent

    def tail(self, first: int) -> Tape:
        """The same without the images before `first`."""
        return Tape(self.patches[first:], [a[first:] for a in self.outputs], [], []) if first else self


Theta = Mapping[str, Tensor]


class ConvEncoder:
    """The shape of h_theta for images of one shape. Holds no parameters: theta is an argument everywhere."""

    def __init__(self, net: NetConfig, image_shape: tuple[int, int, int]) -> None:
        self.channels, self.strides, self.image_shape = net.channels, net.strides, image_shape
        self.sides: list[tuple[int, int]] = []  # height and width of each layer's output
        height, width = image_shape[1:]
        for stride in net.strides:
            height, width = (height - 3) // stride + 1, (width - 3) // stride + 1
            if height < 1 or width < 1:
                raise UserError(
                    f"net.strides {quoted(list(net.strides))} shrink images of shape {image_shape} to nothing: take "
                    "fewer layers or a larger data.size."
                )
            self.sides.append((height, width))
        self.features = net.channels * height * width

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """theta's tensors."""
        shapes: dict[str, tuple[int, ...]] = {}
        inputs = self.image_shape[0]
        for layer in range(1, len(self.strides) + 1):
            shapes[f"conv{layer}.weight"] = (self.channels, inputs, 3, 3)
            shapes[f"conv{layer}.bias"] = (self.channels,)
            inputs = self.channels
        return shapes

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Kaiming-normal weights, zero biases."""
        theta = {}
        for name, shape in self.shapes.items():
            scale = math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.0
            theta[name] = torch.randn(shape, generator=generator) * scale
        return theta

    def macs(self) -> list[int]:
        """Multiply-adds of each layer for one image."""
        inputs = [self.image_shape[0]] + [self.channels] * (len(self.strides) - 1)
        return [h * w * 9 * i * self.channels for (h, w), i in zip(self.sides, inputs, strict=True)]

    # --- images ---------------------------------------------------------------------------------------------------

    @staticmethod
    def rows(images: Tensor) -> Tensor:
        """Images (n, c, h, w) uint8 -> (n, c h w + 2), each followed by one white and one black pixel.

        The white pixel, 1 after scaling, multiplies the bias; the black one fills the columns up to a multiple of 8.
        """
        ends = torch.tensor([255, 0], dtype=torch.uint8, device=images.device)
        return torch.cat([images.flatten(1), ends.expand(len(images), 2)], 1)

    @functools.cached_property
    def _patch_table(self) -> Tensor:
        """(places, columns): which pixel of a row of `rows` stands where."""
        channels, height, width = self.image_shape
        out_h, out_w = self.sides[0]
        y = (torch.arange(out_h) * self.strides[0])[:, None] + torch.arange(3)  # (out_h, 3)
        x = (torch.arange(out_w) * self.strides[0])[:, None] + torch.arange(3)
        pixel = y[:, None, :, None] * width + x[None, :, None, :]  # (out_h, out_w, 3, 3)
        pixel = pixel[..., None] + torch.arange(channels) * (height * width)  # (..., 3, 3, c), the order of the weights
        pixel = pixel.flatten(2).flatten(0, 1)
        white = channels * height * width
        columns = math.ceil((9 * channels + 1) / 8) * 8
        table = torch.full((len(pixel), columns), white + 1)
        table[:, : 9 * channels] = pixel
        table[:, 9 * channels] = white
        return table

    def patches(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows (n, c h w + 2) uint8 -> the first layer's inputs (n, places, columns), scaled to 0..1."""
        if self._patch_table.device != rows.device:
            self._patch_table = self._patch_table.to(rows.device)
        return to_unit(rows[:, self._patch_table], dtype)

    def _first(self, theta: Theta, patches: Tensor) -> Tensor:
        """conv1's weight and bias as one matrix (columns, channels)."""
        w, b = theta["conv1.weight"], theta["conv1.bias"]
        matrix = torch.cat([w.permute(0, 2, 3, 1).flatten(1), b[:, None]], 1)
        return torch.nn.functional.pad(matrix, (0, patches.shape[2] - matrix.shape[1])).T

    def _image(self, flat: Tensor, layer: int) -> Tensor:
        """(n, places * channels) or (n, places, channels) -> (n, channels, h, w), channels last in memory."""
        height, width = self.sides[layer]
        return flat.view(-1, height, width, self.channels).permute(0, 3, 1, 2)

    def apply(self, theta: Theta, rows: Tensor, precision: torch.dtype, training: bool = False) -> Tensor:
        """Features (n, d), without a tape; autograd can go through it."""
        return self.forward({name: t.to(precision) for name, t in theta.items()}, self.patches(rows, precision))[0]

    @property
    def about(self) -> list[object]:
        """What decides the features beside theta."""
        return ["bytes to 0..1, convolutions", self.strides, self.image_shape]

    # --- h and its derivatives --------------------------------------------------------------------------------------

    def forward(self, theta: Theta, patches: Tensor) -> tuple[Tensor, Tape]:
        """Features (n, d), and the tape."""
        a = self._image((patches @ self._first(theta, patches)).relu_(), 0)
        outputs = [a]
        for layer, stride in enumerate(self.strides[1:], 2):
            a = conv.product_bias_relu(a, theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"], stride)
            outputs.append(a)
        return a.permute(0, 2, 3, 1).reshape(len(a), -1), Tape(patches, outputs, [], [])

    def backward(self, theta: Theta, tape: Tape, u: Tensor) -> dict[str, Tensor]:
        """The gradient in theta of sum(u * z), u (n, d)."""
        gradient: dict[str, Tensor] = {}
        g = self._image(u, -1)
        for layer in range(len(self.strides), 1, -1):
            stride, w, x = self.strides[layer - 1], theta[f"conv{layer}.weight"], tape.outputs[layer - 2]
            g, bias = conv.relu_grad(g, tape.outputs[layer - 1], sums=True)
            assert bias is not None
            tape.cotangents.insert(0, g)
            gradient[f"conv{layer}.weight"] = conv.weight_grad(g, x, w, stride)
            gradient[f"conv{layer}.bias"] = bias
            g = conv.input_grad(g, w, x, stride)
        g, _ = conv.relu_grad(g, tape.outputs[0])
        tape.cotangents.insert(0, g)
        gradient |= self._first_gradient(tape.patches, g)
        return gradient

    def _first_gradient(self, patches: Tensor, g: Tensor) -> dict[str, Tensor]:
        flat = g.permute(0, 2, 3, 1).reshape(-1, self.channels)
        matrix = flat.T @ patches.flatten(0, 1)  # (channels, columns)
        inputs = self.image_shape[0]
        weight = matrix[:, : 9 * inputs].reshape(-1, 3, 3, inputs).permute(0, 3, 1, 2)
        return {"conv1.weight": weight, "conv1.bias": matrix[:, 9 * inputs]}

    def tangent(self, theta: Theta, tape: Tape, v: Theta) -> Tensor:
        """The derivative of the features along v, (n, d)."""
        flat = tape.patches @ self._first(v, tape.patches)
        a, _ = conv.relu_grad(self._image(flat, 0), tape.outputs[0])
        tape.tangents.append(a)
        for layer, stride in enumerate(self.strides[1:], 2):
            along_x = conv.product(a, theta[f"conv{layer}.weight"], stride)
            along_w = conv.product(tape.outputs[layer - 2], v[f"conv{layer}.weight"], stride)
            a, _ = conv.relu_grad(along_w, tape.outputs[layer - 1], along_x, v[f"conv{layer}.bias"])
            tape.tangents.append(a)
        return a.permute(0, 2, 3, 1).reshape(len(a), -1)

    def tangent_backward(self, theta: Theta, tape: Tape, v: Theta, udot: Tensor) -> dict[str, Tensor]:
        """The derivative of `backward`'s result along v, when u itself moves by udot (n, d)."""
        moved: dict[str, Tensor] = {}
        gdot, more = self._image(udot, -1), None
        for layer in range(len(self.strides), 1, -1):
            stride, x, xdot = self.strides[layer - 1], tape.outputs[layer - 2], tape.tangents[layer - 2]
            w, wdot, g = theta[f"conv{layer}.weight"], v[f"conv{layer}.weight"], tape.cotangents[layer - 1]
            gdot, bias = conv.relu_grad(gdot, tape.outputs[layer - 1], more, sums=True)
            assert bias is not None
            moved[f"conv{layer}.weight"] = conv.weight_grad(gdot, x, w, stride).add_(
                conv.weight_grad(g, xdot, w, stride)
            )
            moved[f"conv{layer}.bias"] = bias
            gdot, more = conv.input_grad(gdot, w, x, stride), conv.input_grad(g, wdot, x, stride)
        gdot, _ = conv.relu_grad(gdot, tape.outputs[0], more)
        return moved | self._first_gradient(tape.patches, gdot)
