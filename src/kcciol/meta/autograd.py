"""One pass of Algorithm 2's loop, lines 4 to 10, as it is defined: by automatic differentiation from end to end.

This is for any network; `outer` computes the same for the paper's, faster, and the tests hold the two equal. A module
of one's own is in training mode here: batch normalisation takes its statistics over all images of the step, those of
tau_tr and of tau_val together, and l_meta is differentiated through them.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kcciol.engine.ranks import ALONE, Mean
from kcciol.meta.inner import Inner, TrajectoryLabels
from kcciol.meta.objectives import reduced
from kcciol.meta.outer import MetaGradient, times
from kcciol.nets.classification import Classification


def autograd_meta_gradient(
    problem: Classification,
    inner: Inner,
    Theta: Tensor,
    rows: Tensor,
    y: TrajectoryLabels,
    mask: Tensor | None = None,
    lam: float = 0.0,
    kept: Tensor | None = None,
    precision: torch.dtype | None = None,
    mean: Mean = ALONE.mean,
) -> MetaGradient:
    """What `outer.meta_gradient` computes of the same arguments, of any network, whose buffers move."""
    views = problem.layout.views(Theta)
    with torch.enable_grad():
        leaves = {name: view.detach().contiguous().requires_grad_() for name, view in views.items()}
        theta, W = _named(leaves, "theta."), _named(leaves, "W.")  # line 4
        z = problem.encoder.apply(theta, rows, precision or Theta.dtype, training=True)
        loss = inner.loss(W, times(z.to(Theta.dtype), kept), y)  # lines 5 to 9
        gradient = _gradient(loss, leaves, again=lam > 0)
        l_meta, g = mean(loss.detach()), mean(_packed(problem, gradient, Theta))
        if not lam:
            return MetaGradient(l_meta, g, None, None)
        assert mask is not None
        marks = problem.layout.views(mask)
        v = [marks[name] * reduced(part, mean) for name, part in gradient.items()]
        l_constraint = torch.stack([part.square().sum() for part in v]).sum()  # line 10
        pull = mean(_packed(problem, _gradient(lam * l_constraint, leaves), Theta))
    return MetaGradient(l_meta, g + pull, l_constraint.detach(), pull.norm() / g.norm())


def _gradient(value: Tensor, leaves: Mapping[str, Tensor], again: bool = False) -> dict[str, Tensor]:
    """By the name of the leaf; again: it can be differentiated in its turn."""
    found = torch.autograd.grad(value, list(leaves.values()), create_graph=again, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def _packed(problem: Classification, tensors: Mapping[str, Tensor], Theta: Tensor) -> Tensor:
    """As a vector like Theta, of numbers only."""
    return problem.layout.pack({name: tensor.detach() for name, tensor in tensors.items()}, Theta)


def _named(leaves: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): leaf for name, leaf in leaves.items() if name.startswith(prefix)}
