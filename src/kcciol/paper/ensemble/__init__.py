"""Runs that differ in seed or in settings and take each step together: members, (M, ...) in front of every tensor.

For problems whose single step is too small to fill a GPU. A problem says what a member's network and a step of all
members are (`Kind`); phases, checkpoints and resuming are here, once.
"""

from torch import Tensor

Affine = tuple[Tensor, Tensor]  # a layer of each member: weight (B, out, in), bias (B, out)
