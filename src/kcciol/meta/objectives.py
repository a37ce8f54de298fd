"""Other losses on features than Algorithm 2's: what rival representations minimise.

Each is a function m(W, z) as in `inner`; the encoder, the update, the graph and the checkpoints are the same for all.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import MetaConfig, TrajectoryConfig
from kcciol.engine.ranks import ALONE, Mean
from kcciol.errors import UserError
from kcciol.meta.inner import Autograd, TrajectoryLabels, Weights
from kcciol.nets.classification import Classifier


class Supervised(Autograd):
    """Cross-entropy of the query images over all base classes; nothing is learned before it.

    With the loss `sparse`, plus the mean over features of a penalty on b', the feature's mean over the images:

        KL(Exp(b) | Exp(b')) = log(b'/b) + b/b' - 1   where b' > b, else 0.

    The images are those of all ranks that share the step: b' is not of one rank alone, hence `mean`, over the ranks.
    """

    def __init__(self, head: Classifier, config: MetaConfig, mean: Mean = ALONE.mean) -> None:
        super().__init__(head, alpha=0.0, order="exact")
        self.mean = mean
        self.sparsity = config.sparsity if config.loss == "sparse" else 0.0

    def loss(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> Tensor:
        loss = F.cross_entropy(self.head.logits(W, z), y.val.flatten())
        if not self.sparsity:
            return loss
        activity = reduced(z.mean(0), self.mean)
        return loss + set_kl(activity, self.sparsity).mean()


class _Reduced(torch.autograd.Function):
    """A mean over ranks inside a loss. As a matrix it is symmetric, so it is its own derivative, to any order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Mean) -> Tensor:
        ctx.mean = mean
        return mean(x).view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return reduced(gradients[0], ctx.mean), None


def reduced(x: Tensor, mean: Mean) -> Tensor:
    """The mean of x over the ranks, for autograd to go through."""
    result: Tensor = _Reduced.apply(x, mean)  # type: ignore[no-untyped-call, unused-ignore]
    return result


def set_kl(activity: Tensor, b: Tensor | float) -> Tensor:
    """The penalty of features of these mean activations, none of them negative.

    >>> set_kl(torch.tensor([0.05, 0.2]), b=0.1)
    tensor([0.0000, 0.1931])
    """
    ratio = (activity / b).clamp_min(1)  # at b' = b value and slope are zero, so the clamp leaves no edge
    return ratio.log() + 1 / ratio - 1


class Episodes(Autograd):
    """The loss on the query after a few steps on all support images together (MAML-Rep).

    W is linear. A step subtracts alpha times the mean gradient, so W never has to be built: with P = z W^T + b,
    G = z_tr z_tr^T + 1 and Q = z_val z_tr^T + 1, errors are D_i = (softmax(P_tr - alpha G A_i) - onehot) / k with
    A_i = D_0 + ... + D_{i-1}, and the logits of the query are P_val - alpha Q A.
    """

    def __init__(self, head: Classifier, alpha: float, config: MetaConfig, trajectory: TrajectoryConfig) -> None:
        super().__init__(head, alpha, config.order)
        if head.hidden:
            raise UserError("meta.loss 'episodes' is for a linear W: set net.hidden to 0.")
        self.steps, self.relabel, self.classes = config.episode_steps, config.relabel, trajectory.classes

    def loss(self, W: Weights, z: Tensor, y: TrajectoryLabels) -> Tensor:
        weight, bias, y_tr, y_val = W["weight"], W["bias"], y.train, y.val
        if self.relabel:
            weight, bias = weight[: self.classes], bias[: self.classes]
            y_tr, y_val = (self._positions(labels) for labels in (y_tr, y_val))
        z_tr, z_val = y.split(z)
        P_tr, P_val = y.split(F.linear(z, weight, bias))
        target = F.one_hot(y_tr, len(bias))
        exact = self.order == "exact"
        with torch.set_grad_enabled(exact):
            G, A = z_tr @ z_tr.mT + 1, torch.zeros_like(P_tr)
            for _ in range(self.steps):
                A = A + ((P_tr - self.alpha * (G @ A)).softmax(-1) - target) / y_tr.shape[1]
        Q = z_val @ (z_tr if exact else z_tr.detach()).mT + 1
        return F.cross_entropy((P_val - self.alpha * (Q @ A)).flatten(0, 1), y_val.flatten())

    def _positions(self, labels: Tensor) -> Tensor:
        """Labels (t, m), class after class, as the classes' numbers in their trajectory."""
        each = labels.shape[1] // self.classes
        return torch.arange(self.classes, device=labels.device).repeat_interleave(each).expand(labels.shape)
