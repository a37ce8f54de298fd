"""The folder of one training run.

config.toml              the resolved config
record.json              command, versions, hardware
metrics.jsonl            a line every engine.log_every steps
checkpoint.safetensors   where to resume
phase1.safetensors ...   the representation after each phase
data-root                where the data lay on this machine, for `kcciol evaluate`; not to be shared
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kcciol.config import Config, read
from kcciol.engine.checkpoint import Checkpoint, Unusable, load
from kcciol.engine.record import record
from kcciol.engine.tensorboard import scalar_writer
from kcciol.errors import Busy, UserError
from kcciol.files import append_json, held, parse_json, read_bytes, read_text, replacing, sweep, write_json, write_text
from kcciol.serialization import to_dict, to_toml

LONGEST_PATH = 2**16  # bytes


class RunFolder:
    def __init__(self, path: Path, writes: bool = True) -> None:
        """writes: whether this process is the one that writes into it; where not, only reading does anything."""
        self.path, self.writes = path, writes
        self.config = path / "config.toml"
        self.checkpoint = path / "checkpoint.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.root = path / "data-root"

    def phase(self, number: int) -> Path:
        return self.path / f"phase{number}.safetensors"

    def create(self, config: Config, start: Checkpoint) -> None:
        """A new run; never over an existing one. The config comes last: a folder that has one can be resumed."""
        if not self.writes:
            return
        if self.config.exists():
            with self.locked():  # unless another process has just begun it
                raise UserError(
                    f"There is a run in {self.path} already: continue it (--resume, in Python resume=True), or "
                    "choose another folder."
                )
        if self.metrics.exists() or any(self.phase(number).exists() for number in (1, 2, 3)):
            raise Unusable(f"{self.path} holds files of a run, but no config.toml: choose another folder.")
        with writable(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.path / "record.json", record())
            start.save(self.checkpoint)
            write_text(self.config, to_toml(config))

    def reopen(self, config: Config) -> Checkpoint:
        """An existing run, to be continued with the same config; where the data lie and what computes may change."""
        if not self.config.exists():
            raise UserError(f"There is no run in {self.path} to resume: leave --resume out to start one.")
        try:
            began = read(self.config)
        except UserError as error:
            raise Unusable(str(error)) from None
        self._compare(began, config, f"The run in {self.path} was started")
        at = load(self.checkpoint)
        self._compare(at.config, config, f"The checkpoint {self.checkpoint} was made")
        return at

    @staticmethod
    def _compare(old_config: Config, new_config: Config, what: str) -> None:
        old, new = to_dict(old_config), to_dict(new_config)
        for values in (old, new):
            del values["engine"], values["evaluation"], values["data"]["root"]
            values[""] = {name: values.pop(name) for name in ("seed", "representation")}
        for section in old:
            for key in old[section]:
                if old[section][key] != new[section][key]:
                    name = f"{section}.{key}".removeprefix(".")
                    raise UserError(
                        f"{what} with {name} = {old[section][key]}, now it is {new[section][key]}: resume with the "
                        "same settings (kcciol train FOLDER --resume takes the run's own), or choose another folder."
                    )

    def remember_root(self, root: Path) -> None:
        """Keep where the data lie, so that they are found from any folder; in no file that is given to others."""
        if self.writes and root.is_dir():
            with replacing(self.root) as part:
                part.write_bytes(os.fsencode(root.resolve()))

    def remembered_root(self) -> str:
        """Where the data lay in training; empty where that is not known, or they are gone."""
        if not self.root.exists():
            return ""
        root = os.fsdecode(read_bytes(self.root, "file", largest=LONGEST_PATH))
        return root if Path(root).is_dir() else ""

    def save(self, path: Path, state: Checkpoint) -> None:
        """Write a state into one of the run's files."""
        if self.writes:
            state.save(path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """While the block runs no other process may train here; where the system has no such locks, nothing."""
        if not self.writes:
            yield
            return
        with held(self.path / ".lock") as mine:
            if not mine:
                raise Busy(f"Another process is training in {self.path}: wait for it, or stop it.")
            sweep(self.path)
            yield

    def rewind_metrics(self, phase: int, step: int) -> None:
        """Drop the lines written after the checkpoint that is resumed from."""
        if self.writes:
            rewind(self.metrics, phase, step)

    def add_metrics(self, line: dict[str, Any]) -> None:
        """Write one more line of metrics."""
        if self.writes:
            append_json(self.metrics, line)

    def logger(self, tensorboard: bool, before: int) -> Callable[[int, int, dict[str, float]], None]:
        """A function that writes a line of metrics for (phase, step), and TensorBoard's events when asked.

        before: the steps of all phases before this one, which TensorBoard counts on from.
        """
        write = None

        def log(phase: int, step: int, values: dict[str, float]) -> None:
            nonlocal write
            self.add_metrics({"phase": phase, "step": step, **values})
            if tensorboard and self.writes:
                write = write or scalar_writer(self.path, before + step)
                write(values, before + step)

        return log


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Refuse a run folder that what the block writes cannot go into."""
    try:
        yield
    except OSError as error:
        raise UserError(f"The run folder {path} cannot be written ({error.strerror}): choose another folder.") from None


def rewind(metrics: Path, phase: int, step: int) -> None:
    """Drop the lines of a file of metrics that were written after a step."""
    if metrics.exists():
        lines = read_text(metrics, errors="replace").splitlines()
        kept = [line for line in map(_parsed, lines) if line and (line["phase"], line["step"]) <= (phase, step)]
        write_text(metrics, "".join(json.dumps(line) + "\n" for line in kept))


def _parsed(line: str) -> dict[str, Any] | None:
    """A line of metrics; none when it is half a line, or something else."""
    try:
        value = parse_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and all(type(value.get(key)) is int for key in ("phase", "step")) else None
