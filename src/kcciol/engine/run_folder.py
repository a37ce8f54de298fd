"""The folder of one training run.

config.toml              the resolved config
record.json              command, versions, hardware; the same of each time it was resumed
metrics.jsonl            a line every engine.log_every steps
checkpoint.safetensors   where to resume
phase1.safetensors ...   the representation after each phase
phase1-step1000.safe...  with engine.keep: the representation at each checkpoint
data-root                where the data lay on this machine, for `kcciol evaluate`; not to be shared

A run that goes on makes again what is missing, as far as the other files say what it was: the config out of the
checkpoint, a checkpoint out of the file of a phase, and this one out of a checkpoint at its end. What is damaged is
refused, and left to its owner to move away.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from kcciol.config import Config, OtherKind, read
from kcciol.engine.checkpoint import Checkpoint, Unusable, load
from kcciol.engine.record import record
from kcciol.errors import Busy, UserError
from kcciol.files import (
    append_json,
    file_lock,
    parse_json,
    read_bytes,
    read_text,
    remove_stale_parts,
    replacing,
    write_text,
)
from kcciol.files.documents import Document, Table
from kcciol.serialization import to_dict, to_toml

LONGEST_PATH = 2**16  # bytes
RESUMED, IMAGES = "resumed", "images"
OWN_SETTINGS = "resume with the same settings (kcciol train FOLDER --resume takes the run's own)"


class RunFolder:
    def __init__(self, path: Path, writes: bool = True) -> None:
        """writes: whether this process is the one that writes into it; where not, only reading does anything."""
        self.path, self.writes = path, writes
        self.config = path / "config.toml"
        self.checkpoint = path / "checkpoint.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.record = path / "record.json"
        self.root = path / "data-root"

    def phase(self, number: int) -> Path:
        return self.path / f"phase{number}.safetensors"

    def kept(self, number: int, step: int) -> Path:
        """What was learned by a checkpoint within a phase, with engine.keep."""
        return self.path / f"phase{number}-step{step}.safetensors"

    @contextlib.contextmanager
    def created(self, config: Config, start: Checkpoint, images: str) -> Iterator[None]:
        """A new run, held while the block runs; never over an existing one. images: the identity of those it is of."""
        if not self.writes:
            yield
            return
        text = to_toml(config)
        with self.begun(self.require_new):
            with writable(self.path):
                RECORD.write(self.record, record() | {IMAGES: images, RESUMED: []})
                start.save(self.checkpoint)
                write_text(self.config, text)  # the last: a folder that has one can be resumed
            yield

    @contextlib.contextmanager
    def begun(self, check: Callable[[], None]) -> Iterator[None]:
        """The folder, made if need be, and held while the block runs; what the check refuses is not touched."""
        if self.path.is_dir():
            there = self.checkpoint.exists() or self.config.exists()
            with self.locked() if there else contextlib.nullcontext():  # which says if somebody trains
                check()
            self._require_own()
        with contextlib.ExitStack() as stack:
            with writable(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(self.locked())
            check()  # again: another process may have begun one meanwhile
            yield

    def require_new(self) -> None:
        """Refuse to begin a run where there is one."""
        if self.config.exists():
            raise UserError(
                f"There is a run in {self.path} already: continue it (--resume, in Python resume=True), or "
                "choose another folder."
            )
        if self.metrics.exists() or any(self.phase(number).exists() for number in (1, 2, 3)):
            raise Unusable(
                f"{self.path} holds files of a run, but no config.toml: resume it, or choose another folder."
            )

    def _require_own(self) -> None:
        """Refuse to begin a run among somebody's pictures or other runs. Plain files, as of a log, may be there."""
        folders = (entry for entry in sorted(self.path.iterdir()) if entry.is_dir() and entry.name[0] != ".")
        if other := next(folders, None):
            raise UserError(f"{self.path} is no folder of a run, as {other.name!r} lies in it: name a new one.")

    def reopen(self, config: Config) -> Checkpoint:
        """An existing run, to be continued with the same config; where the data lie and what computes may change."""
        path = self.saved()
        if path is None and not self.config.exists():
            raise UserError(f"There is no run in {self.path} to resume: leave --resume out to start one.")
        if self.config.exists():
            require_same(self.own_config(), config, f"The run in {self.path} was started", OWN_SETTINGS)
        ends = [number for number in (3, 2, 1) if self.phase(number).exists() and self.phase(number) != path]
        with with_recovery_hint(f"training goes on from the end of phase {ends[0]}" if ends else ""):
            at = load(path or self.checkpoint)
        require_same(at.config, config, f"The checkpoint {path} was made", "put that of this run in its place")
        for number in ends:
            again = (number, config.phases[number - 1].steps) == (at.phase, at.step)
            if number <= at.phase:
                with with_recovery_hint("it is made again" if again else "training goes on without it"):
                    load(self.phase(number))
        with with_recovery_hint("another one is written", UserError):
            if self.record.exists():
                RECORD.read(self.record)
        return at

    def require_images(self, images: str) -> None:
        """Refuse to go on with other images than the run began with; one of an earlier version does not say."""
        if self.record.exists() and RECORD.read(self.record).get(IMAGES, images) != images:
            raise UserError(
                f"The run in {self.path} was started with other images than these: bring them back to what they were, "
                f"or choose another folder. (To go on with these all the same, move {self.record} away.)"
            )

    def saved(self) -> Path | None:
        """The checkpoint, or else the last of the representations; none where nothing was saved."""
        paths = (self.checkpoint, *map(self.phase, (3, 2, 1)))
        return next((path for path in paths if path.exists()), None)

    def own_config(self) -> Config:
        """What the run was started with; where config.toml is missing, as its last state says."""
        if self.config.exists():
            with with_recovery_hint("it is made again from what was saved last", UserError):
                return read(self.config, whole=True)
        return load(self.saved() or self.checkpoint).config

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
        with file_lock(self.path / ".lock") as mine:
            if not mine:
                raise Busy(f"Another process is training in {self.path}: wait for it, or stop it.")
            remove_stale_parts(self.path)
            yield

    def restore(self, config: Config, at: Checkpoint, images: str) -> None:
        """Write down that the run goes on here from a state, with which images, and what is missing besides."""
        if not self.writes:
            return
        if (at.phase, at.step) < (3, config.phases[2].steps) or not self.record.exists():
            began = RECORD.read(self.record) if self.record.exists() else {}
            RECORD.write(self.record, {IMAGES: images} | resumed(began, at))
        if not self.config.exists():
            write_text(self.config, to_toml(config))

    def rewind_metrics(self, phase: int, step: int) -> None:
        """Drop the lines written after the checkpoint that is resumed from."""
        if not self.writes or not self.metrics.exists():
            return
        lines = [_parsed(line) for line in read_text(self.metrics, errors="replace").splitlines()]
        if None in lines[:-1]:  # the last may be half a line, of a process that was killed
            with with_recovery_hint("training goes on without the metrics so far"):
                number = lines.index(None) + 1
                raise Unusable(f"The metrics {self.metrics} are damaged at line {number}: use another copy.")
        kept = [line for line in lines if line and (line["phase"], line["step"]) <= (phase, step)]
        write_text(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))

    def add_metrics(self, line: dict[str, Any]) -> None:
        """Write one more line of metrics."""
        if self.writes:
            append_json(self.metrics, line)

    def logger(self, tensorboard: bool, before: int) -> Callable[[int, int, dict[str, float]], None]:
        """A function that writes a line of metrics for (phase, step), and TensorBoard's events when asked.

        before: the steps of all phases before this one, which TensorBoard counts on from.
        """
        writer: Any = None

        def log(phase: int, step: int, values: dict[str, float]) -> None:
            nonlocal writer
            self.add_metrics({"phase": phase, "step": step, **values})
            if tensorboard and self.writes:
                at = before + step
                writer = writer or event_writer()(str(self.path), purge_step=at)  # what is there from here on is void
                for name, value in values.items():
                    writer.add_scalar(name, value, at)
                writer.flush()

        return log


def _with_resumes(old: Table) -> Table:
    """Version 1 did not say who had gone on with a run."""
    return old | {RESUMED: []}


RECORD = Document("record", (_with_resumes,))


def require_same(old_config: object, new_config: object, what: str, remedy: str) -> None:
    """Refuse to go on with other settings; where the data lie and what computes may change."""
    old, new = _decisive(old_config), _decisive(new_config)
    for name in old:
        if old[name] != new[name]:
            raise UserError(
                f"{what} with {name} = {old[name]}, now it is {new[name]}: {remedy}, or choose another folder."
            )


def _decisive(config: object) -> Table:
    """The settings that decide what is computed, by their names."""
    values = to_dict(config)
    for name in ("engine", "evaluation"):
        values.pop(name, None)
    del values["data"]["root"]
    sections = {name: section for name, section in values.items() if isinstance(section, dict)}
    found = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
    return found | {name: value for name, value in values.items() if name not in sections}


class Stands(Protocol):
    """Where a run stands."""

    @property
    def phase(self) -> int: ...
    @property
    def step(self) -> int: ...


def resumed(old: Any, at: Stands) -> Table:
    """A run's record, with that of this process, which goes on with it, after those before."""
    known = old if isinstance(old, dict) else {}  # somebody may have changed it
    before = known.get(RESUMED)
    now = {"phase": at.phase, "step": at.step, **record()}
    return known | {RESUMED: [*(before if isinstance(before, list) else []), now]}


@contextlib.contextmanager
def with_recovery_hint(then: str, kind: type[UserError] = Unusable) -> Iterator[None]:
    """Add to an error of this kind, on a damaged file, what happens when it is moved away (nothing: it is no help)."""
    try:
        yield
    except OtherKind:
        raise
    except kind as error:
        more = f" (Or move it away and resume, kcciol train FOLDER --resume: {then}.)" if then else ""
        raise Unusable(f"{error}{more}") from None


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Refuse a run folder that what the block writes cannot go into."""
    try:
        yield
    except OSError as error:
        raise UserError(f"The run folder {path} cannot be written ({error.strerror}): choose another folder.") from None


def event_writer() -> Any:
    """What writes TensorBoard's events."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("engine.tensorboard needs TensorBoard: pip install 'kcciol[tensorboard]'.") from None
    return SummaryWriter


def _parsed(line: str) -> dict[str, Any] | None:
    """A line of metrics; none when it is half a line, or something else."""
    try:
        value = parse_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and all(type(value.get(key)) is int for key in ("phase", "step")) else None
