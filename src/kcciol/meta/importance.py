"""How much l_meta depends on each parameter, as its gradient tells: another importance than size (see `mask`)."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from kcciol.config import Config
from kcciol.data.classset import ClassSet
from kcciol.engine.ranks import Ranks
from kcciol.meta.step import MetaStep
from kcciol.nets.classification import Classification

STEPS = 100  # over which the mean is taken


def mean_squares(
    problem: Classification, base: ClassSet, config: Config, number: int, Theta: Tensor, ranks: Ranks
) -> Tensor:
    """Of each parameter, the mean square of the meta-gradient on the first trajectories of a phase, as Adam's second
    moment keeps it (the diagonal of an empirical Fisher information). Only their order has a meaning.

    number: of the phase, whose movements and dropout count too. Theta and what the network keeps stay as they are.
    """
    still = replace(config.phases[number - 1], steps=STEPS, beta=0.0, gamma=0.0, lam=0.0, decay=0.0)
    step = MetaStep(problem, base, config, still, number, Theta.clone(), ranks=ranks)
    kept = {name: buffer.clone() for name, buffer in problem.buffers.items()}
    step.load_block(0, 0)
    for _ in range(STEPS):
        step.Theta.copy_(Theta)  # rows of W are reset in it
        step()
    for name, buffer in problem.buffers.items():
        buffer.copy_(kept[name])
    return step.adam.v
