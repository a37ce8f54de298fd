"""Meta-steps whose inner loop adapts the prediction network too, not only W (ANML). Plain: autograd, image by image.

theta changes inside the inner loop here, so features cannot be computed once and nothing of `lowrank` holds. What
adapts are the convolutions of the prediction network and W; a gate's modulator stays as it is for the trajectory.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kcciol.config import GradientOrder
from kcciol.engine.ranks import ALONE, Mean
from kcciol.meta.inner import TrajectoryLabels, Weights
from kcciol.meta.outer import MetaGradient
from kcciol.nets.classification import Classification
from kcciol.nets.gated import MODULATOR, GatedEncoder
from kcciol.nets.pixels import to_unit


def whole_gradient(
    problem: Classification,
    Theta: Tensor,
    rows: Tensor,
    y: TrajectoryLabels,
    alpha: float,
    order: GradientOrder,
    precision: torch.dtype | None = None,
    mean: Mean = ALONE.mean,
) -> MetaGradient:
    """The gradient of l_meta in Theta, when tau_tr is learned by SGD on the prediction network and W.

    rows are the images (see ConvEncoder.rows), tau_tr's before tau_val's; mean goes over the ranks that share the step.
    """
    precision = precision or Theta.dtype
    channels, height, width = problem.encoder.image_shape
    x = to_unit(rows[:, : channels * height * width].view(-1, channels, height, width), precision)
    n, (t, k) = y.train.numel(), y.train.shape
    x_tr, x_val = x[:n].view(t, k, *x.shape[1:]), x[n:].view(t, y.val.shape[1], *x.shape[1:])
    exact = order == "exact"
    with torch.enable_grad():
        start = {name: _last(view.detach()).requires_grad_() for name, view in problem.layout.views(Theta).items()}
        frozen = {name: p for name, p in start.items() if _is_gate(name)}
        gradient = {name: torch.zeros_like(p) for name, p in start.items()}
        total = Theta.new_zeros(())
        for i in range(t):
            fast = {name: p for name, p in start.items() if name not in frozen}
            with torch.set_grad_enabled(exact):  # first order: the gate of tau_tr is a constant
                open_ = _gate(problem, frozen, x_tr[i])
            for j in range(k):
                one = slice(j, j + 1)
                loss = _loss(problem, fast, x_tr[i, one], y.train[i, one], None if open_ is None else open_[one])
                steps = torch.autograd.grad(loss, list(fast.values()), create_graph=exact)
                moved = torch._foreach_add(list(fast.values()), steps, alpha=-alpha)
                fast = dict(zip(fast, moved if exact else [p.detach().requires_grad_() for p in moved], strict=True))
            loss = _loss(problem, fast, x_val[i], y.val[i], _gate(problem, frozen, x_val[i])) / t
            leaves = start if exact else fast | frozen
            for name, g in zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True):
                gradient[name] += g
            total = total + loss.detach()
    return MetaGradient(mean(total), mean(problem.layout.pack(gradient, Theta)), None, None)


def _is_gate(name: str) -> bool:
    return name.startswith((f"theta.{MODULATOR}", "theta.gate."))


def _last(tensor: Tensor) -> Tensor:
    """Weights and images with the channels last in memory, as a GPU's convolutions want them."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _gate(problem: Classification, frozen: Weights, x: Tensor) -> Tensor | None:
    """What the features of images are multiplied by, (n, d)."""
    if not isinstance(problem.encoder, GatedEncoder):
        return None
    theta = {n.removeprefix("theta."): p for n, p in frozen.items()}
    modulator = {n.removeprefix(MODULATOR): p for n, p in theta.items() if n.startswith(MODULATOR)}
    m = _features(modulator, x, problem.convolutions.strides)
    return torch.sigmoid(F.linear(m, theta["gate.weight"], theta["gate.bias"]))


def _loss(problem: Classification, parameters: Weights, x: Tensor, y: Tensor, gate: Tensor | None) -> Tensor:
    theta = {n.removeprefix("theta."): p for n, p in parameters.items() if n.startswith("theta.")}
    W = {n.removeprefix("W."): p for n, p in parameters.items() if n.startswith("W.")}
    z = _features(theta, x, problem.convolutions.strides)
    return F.cross_entropy(problem.head.logits(W, z if gate is None else z * gate), y)


def _features(theta: Weights, x: Tensor, strides: tuple[int, ...]) -> Tensor:
    """(n, c, h, w) -> (n, d) in float32 or wider, in the encoder's order."""
    x = _last(x)
    for layer, stride in enumerate(strides, 1):
        w, b = theta[f"conv{layer}.weight"].to(x.dtype), theta[f"conv{layer}.bias"].to(x.dtype)
        x = F.relu(F.conv2d(x, w, b, stride))
    return x.permute(0, 2, 3, 1).flatten(1).to(theta["conv1.bias"].dtype)
