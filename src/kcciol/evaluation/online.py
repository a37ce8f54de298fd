"""The online heads: B copies of W that learn one example after another, together (Algorithm 4, lines 4 to 6).

The copies are trajectories times rates. Gradients are written out: for cross-entropy on one example each layer's
gradient is rank one, delta x^T, so no autograd is needed; biases are a column of the weights (`features.with_one`).

Weights are kept in units of the copy's rate, W / rate. The rate is then out of the update (SGD's and Adam's updates
are proportional to it), all copies share the same scalars, and only the (B, rows) outputs are multiplied by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from kcciol.evaluation.features import with_one
from kcciol.kernels import BETA1, BETA2, EPS, have_triton

Optimizer = Literal["adam", "sgd"]


class Layer:
    """One matrix of each copy, (B, rows, columns), and its optimizer's state, which starts fresh."""

    def __init__(
        self, weight: Tensor, rates: Tensor, optimizer: Optimizer, fused: bool = False, kernel: bool | None = None
    ) -> None:
        """Takes over the memory of `weight`; rates are (B,). With fused a kernel does `step`'s work elsewhere.

        kernel: let a Triton kernel do Adam's step; None means where it can.
        """
        self.rates = rates[:, None, None]
        self.steps = 0
        self.adam = optimizer == "adam"
        can = weight.is_cuda and weight.dtype == torch.float32 and have_triton()
        self.kernel = can if kernel is None else kernel
        self.weight = weight.div_(self.rates)
        self.moments = (torch.zeros_like(weight), torch.zeros_like(weight)) if self.adam else None
        self.scratch = torch.empty_like(weight) if self.adam and not (fused or self.kernel) else None
        self.use(weight.shape[1])

    def use(self, rows: int) -> None:
        """Work on the first `rows` rows, until the next call."""
        self.rows = rows
        self.scaled = self.weight[:, :rows]
        self.transposed = self.scaled.mT
        if self.moments is not None and self.scratch is not None:
            self.adam_state = [buffer[:, :rows] for buffer in (*self.moments, self.scratch)]
            self.square_root = square_root(*self.adam_state[1:])

    def spread(self, row: int, until: int) -> None:
        """Let the rows after `row` up to, not including, `until` be as that row is."""
        for buffer in (self.weight, *(self.moments or ())):
            buffer[:, row + 1 : until] = buffer[:, row : row + 1]

    def outputs(self, x: Tensor, copies: slice | None = None) -> Tensor:
        """W x of m examples for each of b copies, None being all: (b, m, columns) -> (b, m, rows)."""
        # x W^T, not W x^T: on the CPU bmm is ten times slower at a matrix times a column than at a row times a matrix.
        if copies is None:
            return torch.bmm(x, self.transposed).mul_(self.rates)
        return torch.bmm(x, self.transposed[copies]).mul_(self.rates[copies])

    def backward(self, delta: Tensor) -> Tensor:
        """W^T delta: (B, 1, rows) -> (B, 1, columns)."""
        return torch.bmm(delta * self.rates, self.scaled)

    def step(self, delta: Tensor, x: Tensor) -> None:
        """One step of the optimizer on the gradient delta x^T; delta (B, 1, rows), x (B, 1, columns)."""
        self.steps += 1
        if not self.adam:
            self.scaled.addcmul_(delta.mT, x, value=-1)
            return
        if self.kernel:
            from kcciol.kernels.online_triton import adam_rank_one  # here, because it needs Triton

            assert self.moments is not None
            scalars, betas = adam_scalars(self.steps), (BETA1, BETA2)
            adam_rank_one(self.weight, self.moments, self.rows, delta, x, scalars, betas)
            return
        # torch.optim.Adam's arithmetic. Its denominator sqrt(v) / root + eps is multiplied through by root, which
        # saves a pass over all the weights.
        mean, square, scratch = self.adam_state
        gradient = torch.mul(delta.mT, x, out=scratch)
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        step, eps = adam_scalars(self.steps)
        self.square_root()
        self.scaled.addcdiv_(mean, scratch.add_(eps), value=-step)


def adam_scalars(t: int) -> tuple[float, float]:
    """Adam's step for rate 1 and its eps at step t, so that the update is step * m / (sqrt(v) + eps)."""
    root = math.sqrt(1 - BETA2**t)
    return root / (1 - BETA1**t), EPS * root


def square_root(values: Tensor, out: Tensor) -> Callable[[], object]:
    """A function that puts the square root of each value into out."""
    if values.is_cuda or values.numel() > 2**16:
        return lambda: torch.sqrt(values, out=out)
    # torch shares even a small square root among threads, and on a busy machine waits milliseconds for them.
    numbers, roots = values.numpy(), out.numpy()
    return lambda: np.sqrt(numbers, out=roots)


class LinearHead:
    """W is one matrix.

    Classes that have not come yet have had the same gradients, so rows that start alike stay alike until their class
    comes. With `alike` the last row in use stands for itself and all rows after it: about half the work, exactly.
    """

    def __init__(
        self, layers: list[Tensor], rates: Tensor, optimizer: Optimizer, alike: bool = False, fused: bool | None = None
    ) -> None:
        """alike says that all rows start equal; fused takes the Triton kernel (False: none), None: where it can."""
        can_fuse = rates.is_cuda and layers[0].dtype == torch.float32 and have_triton()
        self.fused = can_fuse if fused is None else fused
        self.layer = Layer(layers[0], rates, optimizer, self.fused, None if fused is None else False)
        self.outputs = self.widest = layers[0].shape[1]
        if alike:
            self.layer.use(1)

    def learn(self, images: Tensor, label: int) -> None:
        """Learn images (B, S, columns) of one class, the next S examples of every copy, each exactly once."""
        layer = self.layer
        rows = max(layer.rows, min(label + 2, self.outputs))  # up to the class, and one row for all after it
        layer.spread(layer.rows - 1, rows)
        layer.use(rows)
        stands_for = self.outputs - rows + 1
        if self.fused:
            self._learn_fused(images, label, stands_for)
            return
        target = one_hot(layer, label)
        count = torch.ones_like(target)
        count[-1] = stands_for
        log_count = count.log()
        for x in images[:, :, None].unbind(1):  # (B, 1, columns)
            logits = layer.outputs(x)
            if stands_for > 1:
                delta = logits.add_(log_count).softmax(-1).div_(count).sub_(target)
            else:
                delta = logits.softmax(-1).sub_(target)
            layer.step(delta, x)

    def _learn_fused(self, images: Tensor, label: int, stands_for: int) -> None:
        from kcciol.kernels.online_triton import learn_class  # here, because it needs Triton

        layer, first = self.layer, self.layer.steps + 1
        layer.steps += images.shape[1]
        scalars = [adam_scalars(t) for t in range(first, layer.steps + 1)]
        rows = (layer.rows, stands_for)
        learn_class(layer.weight, layer.moments, layer.rates, rows, images, label, scalars, (BETA1, BETA2))

    def scores(self, copies: slice, images: Tensor) -> Tensor:
        """The logits (b, m, rows) that b of the copies give to images (b, m, columns).

        Rows beyond these are equal to the last one, so the highest of these is the first of the highest of all.
        """
        return self.layer.outputs(images, copies)


class HiddenHead:
    """W is two matrices with a ReLU between them; both learn."""

    def __init__(self, layers: list[Tensor], rates: Tensor, optimizer: Optimizer) -> None:
        self.hidden, self.last = (Layer(layer, rates, optimizer) for layer in layers)
        self.width = layers[0].shape[1]
        self.widest = max(layer.shape[1] for layer in layers)  # numbers that an image becomes

    def learn(self, images: Tensor, label: int) -> None:
        """Learn images (B, S, columns) of one class, the next S examples of every copy, each exactly once."""
        target = one_hot(self.last, label)
        active = with_one(images.new_zeros(len(images), 1, self.width))
        for x in images[:, :, None].unbind(1):  # (B, 1, columns)
            before = self.hidden.outputs(x)
            torch.clamp(before, min=0, out=active[..., : self.width])
            delta = self.last.outputs(active).softmax(-1).sub_(target)
            below = self.last.backward(delta)[..., : self.width].mul_(before > 0)
            self.last.step(delta, active)
            self.hidden.step(below, x)

    def scores(self, copies: slice, images: Tensor) -> Tensor:
        """The logits (b, m, outputs) that b of the copies give to images (b, m, columns)."""
        active = with_one(self.hidden.outputs(images, copies).clamp_(min=0))
        return self.last.outputs(active, copies)


Head = LinearHead | HiddenHead


def one_hot(layer: Layer, label: int) -> Tensor:
    """(rows,): all copies learn the same label at the same time, because a label is a position in a trajectory."""
    target = layer.weight.new_zeros(layer.rows)
    target[label] = 1
    return target


def make_head(layers: list[Tensor], rates: Tensor, optimizer: Optimizer, alike: bool) -> Head:
    """B copies of W as `Start.layers` made them, each with its rate (B,); alike says that all last rows are equal."""
    return LinearHead(layers, rates, optimizer, alike) if len(layers) == 1 else HiddenHead(layers, rates, optimizer)
