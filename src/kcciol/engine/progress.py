"""What is told of a training run on the way; `terminal_bar` shows it."""

from __future__ import annotations

from types import TracebackType


class TrainingBar:
    """Shows nothing: of a quiet run."""

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The run has ended, or failed."""

    def start(self, phase: int, done: int) -> None:
        """A phase begins, or goes on."""

    def update(self, phase: int, done: int, loss: float) -> None:
        """So many of its steps are done."""
