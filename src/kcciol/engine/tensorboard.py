"""TensorBoard events, when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kcciol.errors import UserError


def require_tensorboard() -> None:
    """Say at once when it is not there."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise UserError("engine.tensorboard needs TensorBoard: pip install 'kcciol[tensorboard]'.") from None


def scalar_writer(folder: Path, first: int) -> Callable[[Mapping[str, float], int], None]:
    """A function that writes named numbers at a step into `folder`; what is there from step `first` on is void."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=first)  # type: ignore[no-untyped-call, unused-ignore]

    def write(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)  # type: ignore[no-untyped-call, unused-ignore]
        writer.flush()  # type: ignore[no-untyped-call, unused-ignore]

    return write
