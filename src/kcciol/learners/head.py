"""The quick form of the learner `online`, for copies that meet the same label at the same time (Algorithm 4).

The copies are trajectories times settings. Gradients are written out: for cross-entropy on one example each layer's
gradient is rank one, delta x^T, so no autograd is needed; biases are a column of the weights (`with_bias`).

Weights are kept in units of the copy's rate, W / rate. The rate is then out of the update (SGD's and Adam's updates
are proportional to it), all copies share the same scalars, and only the (B, rows) outputs are multiplied by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.kernels import have_triton
from kcciol.learners.base import Labels, Learner
from kcciol.learners.card import Card
from kcciol.learners.gradient import GradientSettings
from kcciol.learners.model import Head
from kcciol.optim import BETAS, adam_by_rate_, scalars_by_rate


class Layer:
    """One matrix of each copy, (B, rows, columns), and its optimizer's state."""

    def __init__(
        self,
        weight: Tensor,
        moments: tuple[Tensor, Tensor] | None,
        rates: Tensor,
        fused: bool = False,
        kernel: bool | None = None,
    ) -> None:
        """weight is in units of the rates (B,); moments are Adam's, None for SGD. With fused a kernel does `step`'s
        work elsewhere. kernel: let a Triton kernel do Adam's step; None means where it can."""
        self.weight, self.moments, self.rates = weight, moments, rates[:, None, None]
        self.steps = 0
        self.kernel = can_fuse(weight) if kernel is None else kernel
        self.scratch = torch.empty_like(weight) if moments and not (fused or self.kernel) else None
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

    def outputs(self, x: Tensor) -> Tensor:
        """W x of m examples for each copy: (B, m, columns) -> (B, m, rows)."""
        # x W^T, not W x^T: on the CPU bmm is ten times slower at a matrix times a column than at a row times a matrix.
        return torch.bmm(x, self.transposed).mul_(self.rates)

    def backward(self, delta: Tensor) -> Tensor:
        """W^T delta: (B, 1, rows) -> (B, 1, columns)."""
        return torch.bmm(delta * self.rates, self.scaled)

    def step(self, delta: Tensor, x: Tensor) -> None:
        """One step of the optimizer on the gradient delta x^T; delta (B, 1, rows), x (B, 1, columns)."""
        self.steps += 1
        if self.moments is None:
            self.scaled.addcmul_(delta.mT, x, value=-1)
            return
        if self.kernel:
            from kcciol.kernels.online_triton import adam_rank_one  # here, because it needs Triton

            adam_rank_one(self.weight, self.moments, self.rows, delta, x, scalars_by_rate(self.steps), BETAS)
            return
        mean, square, scratch = self.adam_state
        gradient = torch.mul(delta.mT, x, out=scratch)
        adam_by_rate_(self.scaled, gradient, mean, square, self.steps, self.square_root)


class StartedHead(Head):
    """A head on features, one matrix or two with a ReLU between them, that does not start from zero."""

    def __init__(self, width: int, layers: Sequence[Tensor]) -> None:
        """layers: those of each copy, (B, rows, columns), from the features up; the learner takes over their memory."""
        super().__init__(width, layers[0].dtype)
        self.layers = layers


class HeadInStep(Learner):
    """Copies of W, one matrix or two with a ReLU between them, that all meet the same label at the same time.

    Classes that have not come yet have had the same gradients, so rows that start alike stay alike until their class
    comes. Where W starts from zero, the last row in use stands for itself and all rows after it: about half the work,
    exactly. It is the same idea as the spare row of `GradientLearner`, which is for labels in any order.
    """

    card = Card(
        "online, for copies that meet the same labels", "Javed and White 2019 (OML)", keeps="nothing", trains=("head",)
    )
    settings_type = GradientSettings
    workspace = 2  # the tensors of a copy, and as much again to work with
    fuse: ClassVar[bool | None] = None  # take the Triton kernel for a linear W (False: no kernel); None: where it can

    def _setup(self) -> None:
        rates = [float(getattr(one, "rate")) for one in self.settings]  # noqa: B009
        self.rates = torch.tensor(rates, dtype=self.model.input_dtype, device=self.device)
        start = self.model.layers if isinstance(self.model, StartedHead) else None
        self.alike = start is None
        zeros = (self.copies, self.choice("outputs"), columns(self.model.width))
        layers = [self.rates.new_zeros(zeros)] if start is None else start
        self.outputs = layers[-1].shape[1]
        for name, weight in zip(("hidden", "last")[-len(layers) :], layers, strict=True):
            self.state[f"parameters.{name}"] = weight.div_(self.rates[:, None, None])
            if self.choice("optimizer") == "adam":
                self.state[f"adam.mean.{name}"] = torch.zeros_like(weight)
                self.state[f"adam.square.{name}"] = torch.zeros_like(weight)
        if not self.alike:  # rows that begin somewhere are answers from the beginning
            self.seen = np.ones((self.copies, self.outputs), dtype=bool)
        self._restored()

    def _restored(self) -> None:
        """Work on the tensors of `state`."""
        linear = "parameters.hidden" not in self.state
        can = linear and can_fuse(self.state["parameters.last"])
        self.fused = can if self.fuse is None else self.fuse
        self.hidden = None if linear else self._layer("hidden")
        self.last = self._layer("last")
        if self.alike:
            self.last.use(min(self.classes + 1, self.outputs))

    def _layer(self, name: str) -> Layer:
        mean, square = (self.state.get(f"adam.{moment}.{name}") for moment in ("mean", "square"))
        moments = None if mean is None or square is None else (mean, square)
        kernel = None if self.fuse is None else False
        layer = Layer(self.state[f"parameters.{name}"], moments, self.rates, self.fused, kernel)
        layer.steps = self.steps
        return layer

    def memory(self) -> dict[str, int]:
        """Adam's moments, without the columns that only fill up."""
        if self.last.moments is None:
            return {}
        hidden = 0 if self.hidden is None else self.hidden.rows
        weights = hidden * (self.model.width + 1) + self.outputs * ((hidden or self.model.width) + 1)
        return {"adam": 2 * weights * self.rates.element_size()}

    def _learn(self, x: Tensor, y: Labels) -> None:
        self._learn_class(x[:, None], y)

    def _learn_class(self, x: Tensor, y: Labels) -> None:
        label = int(y[0])
        if (y != label).any():
            raise UserError("These copies learn in step: they must all be given the same label.")
        if label >= self.outputs:
            raise UserError(f"There is no row for class {label + 1}: W has {self.outputs} rows, set by `outputs`.")
        images = with_bias(x)
        if self.hidden is not None:
            self._learn_two_layers(self.hidden, images, label)
            return
        rows = max(self.last.rows, min(label + 2, self.outputs))  # up to the class, and one row for all after it
        self.last.spread(self.last.rows - 1, rows)
        self.last.use(rows)
        multiplicity = self.outputs - rows + 1
        (self._learn_fused if self.fused else self._learn_rows)(images, label, multiplicity)

    def _learn_rows(self, images: Tensor, label: int, multiplicity: int) -> None:
        target = one_hot(self.last, label)
        count = torch.ones_like(target)
        count[-1] = multiplicity
        log_count = count.log()
        for x in images[:, :, None].unbind(1):  # (B, 1, columns)
            logits = self.last.outputs(x)
            if multiplicity > 1:
                delta = logits.add_(log_count).softmax(-1).div_(count).sub_(target)
            else:
                delta = logits.softmax(-1).sub_(target)
            self.last.step(delta, x)

    def _learn_fused(self, images: Tensor, label: int, multiplicity: int) -> None:
        from kcciol.kernels.online_triton import learn_class  # here, because it needs Triton

        layer, first = self.last, self.last.steps + 1
        layer.steps += images.shape[1]
        scalars = [scalars_by_rate(t) for t in range(first, layer.steps + 1)]
        rows, rates = (layer.rows, multiplicity), layer.rates
        learn_class(layer.weight, layer.moments, rates, rows, images, label, scalars, BETAS)

    def _learn_two_layers(self, hidden: Layer, images: Tensor, label: int) -> None:
        target, width = one_hot(self.last, label), hidden.rows
        active = with_bias(images.new_zeros(len(images), 1, width))
        for x in images[:, :, None].unbind(1):  # (B, 1, columns)
            before = hidden.outputs(x)
            torch.clamp(before, min=0, out=active[..., :width])
            delta = self.last.outputs(active).softmax(-1).sub_(target)
            below = self.last.backward(delta)[..., :width].mul_(before > 0)
            self.last.step(delta, active)
            hidden.step(below, x)

    def _scores(self, x: Tensor) -> Tensor:
        images = with_bias(x)
        return self.last.outputs(
            images if self.hidden is None else with_bias(self.hidden.outputs(images).clamp_(min=0))
        )


def can_fuse(weight: Tensor) -> bool:
    return weight.is_cuda and weight.dtype == torch.float32 and have_triton()


def columns(width: int) -> int:
    """Columns of a weight matrix on `width` inputs: one more for the bias, rounded up to a multiple of 16.

    >>> columns(15), columns(16), columns(2304)
    (16, 32, 2320)
    """
    return (width + 16) // 16 * 16


def with_bias(x: Tensor) -> Tensor:
    """(..., d) -> (..., columns(d)): an always-one feature after the d, whose weight is the bias, then zeros.

    For SGD and Adam alike this is exactly the same as a bias of its own. The zeros have zero gradient, so they change
    nothing; they let every row begin at an address that vector loads like.
    """
    wide = x.new_zeros(*x.shape[:-1], columns(x.shape[-1]))
    wide[..., : x.shape[-1]] = x
    wide[..., x.shape[-1]] = 1
    return wide


def square_root(values: Tensor, out: Tensor) -> Callable[[], object]:
    """A function that puts the square root of each value into out."""
    if values.is_cuda or values.numel() > 2**16:
        return lambda: torch.sqrt(values, out=out)
    # torch shares even a small square root among threads, and on a busy machine waits milliseconds for them.
    numbers, roots = values.numpy(), out.numpy()
    return lambda: np.sqrt(numbers, out=roots)


def one_hot(layer: Layer, label: int) -> Tensor:
    """(rows,)"""
    target = layer.weight.new_zeros(layer.rows)
    target[label] = 1
    return target
