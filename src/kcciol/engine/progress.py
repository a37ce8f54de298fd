"""What is told of a training run on the way; `terminal_bar` shows it."""

from __future__ import annotations

from types import TracebackType


def names_of(steps: tuple[int, ...]) -> list[str]:
    """What phases of so many steps are called; the only one needs no number.

    >>> names_of((5, 0, 3)), names_of((5,))
    (['phase 1', 'phase 2', 'phase 3'], ['training'])
    """
    return ["training"] if len(steps) == 1 else [f"phase {number}" for number in range(1, len(steps) + 1)]


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
