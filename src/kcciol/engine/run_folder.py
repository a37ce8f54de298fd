"""The folder of one training run.

config.toml              the resolved config
record.json              command, versions, hardware
metrics.jsonl            a line every engine.log_every steps
checkpoint.safetensors   where to resume
phase1.safetensors ...   the representation after each phase
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from kcciol.atomic import replacing, write_json
from kcciol.config import Config, read, to_dict, to_toml
from kcciol.engine.checkpoint import Checkpoint
from kcciol.engine.record import record
from kcciol.engine.tensorboard import scalar_writer
from kcciol.errors import UserError


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.checkpoint = path / "checkpoint.safetensors"
        self.metrics = path / "metrics.jsonl"

    def phase(self, number: int) -> Path:
        return self.path / f"phase{number}.safetensors"

    def create(self, config: Config, start: Checkpoint) -> None:
        """A new run; never over an existing one. The config comes last: a folder that has one can be resumed."""
        if self.config.exists():
            raise UserError(f"There is a run in {self.path} already: continue it by --resume, or choose another --out.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.metrics.unlink(missing_ok=True)
            write_json(self.path / "record.json", record())
            start.save(self.checkpoint)
            with replacing(self.config) as beside:
                beside.write_text(to_toml(config), encoding="utf-8")
        except OSError as error:
            raise UserError(f"The run folder {self.path} cannot be written ({error}): choose another --out.") from None

    def reopen(self, config: Config) -> None:
        """An existing run, to be continued with the same config; where the data lie and what computes may change."""
        if not self.config.exists():
            raise UserError(f"There is no run in {self.path} to resume: leave --resume out to start one.")
        old, new = to_dict(read(self.config)), to_dict(config)
        for values in (old, new):
            del values["engine"], values["evaluation"], values["data"]["root"]
        for section in old:
            if old[section] != new[section]:
                raise UserError(
                    f"The run in {self.path} was started with another config: {section} was {old[section]}, "
                    f"now it is {new[section]}; resume with the same settings, or choose another --out."
                )

    def rewind_metrics(self, phase: int, step: int) -> None:
        """Drop the lines written after the checkpoint that is resumed from."""
        if self.metrics.exists():
            lines = [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines() if _whole(line)]
            kept = [line for line in lines if (line["phase"], line["step"]) <= (phase, step)]
            with replacing(self.metrics) as beside:
                beside.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def logger(self, tensorboard: bool, before: int) -> Callable[[int, int, dict[str, float]], None]:
        """A function that writes a line of metrics for (phase, step), and TensorBoard's events when asked.

        before: the steps of all phases before this one, which TensorBoard counts on from.
        """
        write = None

        def log(phase: int, step: int, values: dict[str, float]) -> None:
            nonlocal write
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"phase": phase, "step": step, **values}) + "\n")
            if tensorboard:
                write = write or scalar_writer(self.path, before + step)
                write(values, before + step)

        return log


def _whole(line: str) -> bool:
    return line.startswith("{") and line.endswith("}")
