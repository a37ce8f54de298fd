"""The progress bar of a training run: phase, loss, steps a second, time left."""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from kcciol.engine.progress import TrainingBar, names_of


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} steps/s" if task.speed else "- steps/s")


class TerminalBar(TrainingBar):
    """Shows the run on standard error; plain lines, one a phase, when that is not a terminal."""

    def __init__(self, steps: tuple[int, ...]) -> None:
        self._console = Console(stderr=True)
        self._steps, self._names = steps, names_of(steps)
        self._plain = not sys.stderr.isatty()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("loss {task.fields[loss]}"),
            _Speed(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self._console, disable=self._plain, speed_estimate_period=10)
        self._tasks = {
            number: self._progress.add_task(self._names[number - 1], total=total, loss="-", start=False)
            for number, total in enumerate(steps, 1)
            if total
        }

    def __enter__(self) -> TerminalBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # the terminal has been closed
            self._progress.stop()

    def start(self, phase: int, done: int) -> None:
        self._progress.start_task(self._tasks[phase])
        self._progress.update(self._tasks[phase], completed=done)

    def update(self, phase: int, done: int, loss: float) -> None:
        self._progress.update(self._tasks[phase], completed=done, loss=f"{loss:.3f}")
        if self._plain and done == self._steps[phase - 1]:
            with contextlib.suppress(OSError):  # nobody reads any more: no reason to stop training
                self._console.print(f"{self._names[phase - 1]}: {done} steps, loss {loss:.3f}", highlight=False)
