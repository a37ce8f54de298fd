"""Where steps run, and what products of float32 matrices are computed in there."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch

from kcciol.errors import UserError, quoted

Precision = Literal["float32", "tf32", "bf16"]


def pick_device(name: str) -> torch.device:
    """The device a config names."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("The device asked for is 'cuda', but PyTorch finds no GPU here: ask for 'cpu' or 'auto'.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def machine_bytes() -> int:
    """The memory that this machine, or container, has; where that is not known, more than any."""
    found = 2**62
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in LIMITS:
        with contextlib.suppress(ValueError, OSError):  # there is none, or it says "max"
            found = min(found, int(Path(path).read_text()))
    return found


def usable_device(name: str | torch.device) -> torch.device:
    """A device of PyTorch's that computes, by its name."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"The device {quoted(str(name))} cannot be used here ({reason}): ask for 'cpu'.") from None
    return device


Flags = tuple[bool, bool, bool, bool]
_turn = threading.Condition()
_inside: dict[int, list[bool]] = {}  # of each thread, whether the blocks that it is in want quick products
_outside: list[Flags] = []  # what holds when nobody is in one


@contextlib.contextmanager
def precision(name: Precision, device: torch.device) -> Iterator[None]:
    """While the block runs, products of float32 matrices are computed in this precision; then as before it.

    Convolutions are taken from the algorithms whose results do not change from run to run: a resumed run must end in
    the same weights. PyTorch has one such setting for the whole process: threads whose blocks want the same share it,
    and who wants another waits for them. So a block within a block must want the same: two threads that each waited
    for the other to leave would wait for ever.
    """
    quick, thread = name != "float32", threading.get_ident()
    wanted = (quick and device.type == "cuda", quick and device.type == "cuda", True, False)
    with _turn:
        own = _inside.get(thread, [])
        if any(other != quick for other in own) or (own and _flags() != wanted):
            raise RuntimeError(f"A block of products in {name} lies within one of another precision.")
        if not own:
            _turn.wait_for(lambda: not _inside or _flags() == wanted)
        if not _inside:
            _outside[:] = [_flags()]
            _set(wanted)
        _inside[thread] = [*own, quick]
    try:
        yield
    finally:
        with _turn:
            _inside[thread].pop()
            if not _inside[thread]:
                del _inside[thread]
            if not _inside:
                _set(_outside.pop())
            _turn.notify_all()


def _flags() -> Flags:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark


def _set(flags: Flags) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = flags


def encoder_dtype(name: Precision, device: torch.device) -> torch.dtype:
    """What the encoder's activations are kept in."""
    return torch.bfloat16 if name == "bf16" and device.type == "cuda" else torch.float32
