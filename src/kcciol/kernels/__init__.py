"""The few loops that are worth a GPU kernel, each beside the plain form that defines it."""

import functools
import importlib.util


@functools.cache
def have_triton() -> bool:
    """Whether Triton is there; the CUDA builds of PyTorch bring it along."""
    return importlib.util.find_spec("triton") is not None
