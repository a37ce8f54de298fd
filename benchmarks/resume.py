"""Kill training processes and resume them: do they end in the same bits as a run that was left alone?

    python benchmarks/resume.py --out results/resume.json

Each run is a process of its own, with the net and the step of a preset on drawn characters; SIGKILL comes at a moment
the process knows nothing of, and another process resumes from what lies on the disk.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from kcciol.engine.checkpoint import load
from kcciol.engine.record import record
from kcciol.files import require_json, write_json
from kcciol.serialization import to_dict


@dataclass(frozen=True)
class Options:
    out: Path = Path("results/resume.json")
    """The file to write."""
    preset: str = "omniglot-paper"
    """Whose net and step."""
    steps: int = 1200
    """Of each phase."""
    kills: int = 3
    """How many runs to kill, one in each phase in turn."""
    flags: tuple[str, ...] = ()
    """More settings for kcciol train, as name=value."""


def main(options: Options) -> None:
    require_json(options.out)
    words = [sys.executable, "-m", "kcciol", "train", options.preset, "--quiet"]
    words += ["--data.name", "glyphs", "--data.base-classes", "100", "--data.novel-classes", "1"]
    words += ["--engine.checkpoint-every", str(options.steps // 4), "--engine.log-every", str(options.steps // 12)]
    words += [f"--phase{i}.steps={options.steps}" for i in (1, 2, 3)] + [f"--{flag}" for flag in options.flags]
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        subprocess.run([*words, "--out", str(whole)], check=True, stdout=subprocess.DEVNULL)
        kills = []
        for number in range(options.kills):
            path = Path(folder) / f"killed{number}"
            phase, step = kill(words, path, phase=1 + number % 3, lines=5)
            resumed = load(path / "checkpoint.safetensors")
            subprocess.run([*words, "--out", str(path), "--resume"], check=True, stdout=subprocess.DEVNULL)
            same = all(equal(whole / f"phase{i}.safetensors", path / f"phase{i}.safetensors") for i in (1, 2, 3))
            kills.append(
                {"killed_after": [phase, step], "resumed_from": [resumed.phase, resumed.step], "bit_identical": same}
            )
            print(kills[-1], flush=True)
        config = load(whole / "checkpoint.safetensors").config
    result: dict[str, Any] = {"kills": kills, "bit_identical": all(k["bit_identical"] for k in kills)}
    write_json(options.out, result | {"config": to_dict(config), "seed": config.seed, "record": record()})


def kill(words: list[str], path: Path, phase: int, lines: int) -> tuple[int, int]:
    """Start a run and SIGKILL it when it has logged so many lines of a phase; the last (phase, step) it logged."""
    process = subprocess.Popen([*words, "--out", str(path)], stdout=subprocess.DEVNULL)
    metrics = path / "metrics.jsonl"
    mark = f'{{"phase": {phase},'
    while process.poll() is None:
        if metrics.exists() and metrics.read_text().count(mark) >= lines:
            process.send_signal(signal.SIGKILL)
            process.wait()
            break
        time.sleep(0.01)
    if process.returncode != -signal.SIGKILL:
        sys.exit("The run ended before it could be killed: give it more --steps.")
    last = metrics.read_text().splitlines()[-1]
    values = [int(part.split(":")[1]) for part in last.split(",")[:2]]
    return values[0], values[1]


def equal(a: Path, b: Path) -> bool:
    one, two = load(a).tensors, load(b).tensors
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
