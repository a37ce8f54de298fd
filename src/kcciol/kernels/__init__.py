"""The few loops that are worth a GPU kernel, each beside the plain form that defines it."""

import functools
import importlib.util

from torch import Tensor

Affine = tuple[Tensor, Tensor]  # a layer of each copy: weight (B, out, in), bias (B, out)


@functools.cache
def have_triton() -> bool:
    """Whether Triton is there; the CUDA builds of PyTorch bring it along."""
    return importlib.util.find_spec("triton") is not None
