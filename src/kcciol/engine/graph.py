"""A step captured once as a CUDA graph and replayed: nothing happens on the host between its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

TRIALS = 3  # of a step before it is captured: libraries set themselves up in the first ones


class Step(Protocol):
    """Calling it does a step, which reads and writes only tensors that stay where they are."""

    @property
    def state(self) -> list[Tensor]:
        """What a step changes, but for the counters."""

    @property
    def counters(self) -> list[Tensor]:
        """What says which step is next."""

    def __call__(self) -> None: ...


def capture(step: Step) -> Callable[[], None]:
    """A function that does what `step` does: the replay of a graph of it.

    Capturing needs trial runs, for which the counters are set to zero, and after which all is put back.
    """
    before = [tensor.clone() for tensor in (*step.state, *step.counters)]
    for counter in step.counters:
        counter.zero_()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call, unused-ignore]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(TRIALS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    # several ranks: NCCL's own threads look after earlier work meanwhile, which must not spoil the capture
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    with torch.cuda.graph(captured, capture_error_mode="thread_local" if several else "global"):
        step()
    for tensor, old in zip((*step.state, *step.counters), before, strict=True):
        tensor.copy_(old)
    return captured.replay
