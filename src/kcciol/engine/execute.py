"""Running one step over and over: eagerly, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kcciol.config import EngineConfig
from kcciol.errors import UserError

TRIALS = 3  # of a step before it is captured: libraries set themselves up in the first ones


def pick_device(name: str) -> torch.device:
    """The device a config names."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("The device asked for is 'cuda', but PyTorch finds no GPU here: ask for 'cpu' or 'auto'.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def set_precision(config: EngineConfig, device: torch.device) -> torch.dtype:
    """Set what products of float32 matrices are computed in, and return the encoder's dtype.

    Convolutions are taken from the algorithms whose results do not change from run to run: a resumed run must end in
    the same weights.
    """
    fast = config.precision != "float32" and device.type == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = fast
    torch.backends.cudnn.allow_tf32 = fast
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    return torch.bfloat16 if config.precision == "bf16" and device.type == "cuda" else torch.float32


def executor(
    step: Callable[[], None], state: Sequence[Tensor], counters: Sequence[Tensor], graph: bool
) -> Callable[[], None]:
    """A function that does what `step` does: `step` itself, or the replay of a graph of it.

    step must read and write only tensors that stay where they are. `state` and `counters` are those it changes;
    capturing needs trial runs, for which the counters are set to zero, and after which all is put back.
    """
    if not graph:
        return step
    before = [tensor.clone() for tensor in (*state, *counters)]
    for counter in counters:
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
    for tensor, old in zip((*state, *counters), before, strict=True):
        tensor.copy_(old)
    return captured.replay
