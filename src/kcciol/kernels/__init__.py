"""The few loops that are worth a GPU kernel, each beside the plain form that defines it."""

import functools
import importlib.util

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # Adam's usual numbers, in every optimizer here


@functools.cache
def have_triton() -> bool:
    """Whether Triton is there; the CUDA builds of PyTorch bring it along."""
    return importlib.util.find_spec("triton") is not None
