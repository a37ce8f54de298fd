"""TensorBoard events, when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kcciol.errors import UserError


def scalar_writer(folder: Path) -> Callable[[Mapping[str, float], int], None]:
    """A function that writes named numbers at a step into `folder`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("engine.tensorboard needs TensorBoard: pip install 'kcciol[tensorboard]'.") from None
    writer = SummaryWriter(str(folder))  # type: ignore[no-untyped-call, unused-ignore]

    def write(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)  # type: ignore[no-untyped-call, unused-ignore]
        writer.flush()  # type: ignore[no-untyped-call, unused-ignore]

    return write
