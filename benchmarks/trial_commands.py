"""Mutated command lines: each ends with an exit code of its own and without a traceback."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mutations
import torch
from trials import Findings, Options, limits, peak_mib, training_config, waves_config

from kcciol.cli import main as command
from kcciol.config import Config
from kcciol.data import load as load_data
from kcciol.meta.phases import train
from kcciol.paper.sine.train import train_sine
from kcciol.serialization import to_dict, to_toml

ENDS = {0, 1, 2, 3, 130, 143, 128 + signal.SIGTERM, -signal.SIGTERM}  # exit codes that a command may have
ENCODINGS = ("utf-8", "latin-1", "ascii")  # of what a command says


def command_lines(folder: Path) -> tuple[list[list[str]], dict[str, Path]]:
    """Command lines that work, in which {run} is a run, and files that no command should choke on."""
    config = training_config()
    train(config, load_data(config.data).base, folder / "run", quiet=True)
    (folder / "tiny.toml").write_text(to_toml(config))
    waves = waves_config()
    (folder / "waves.toml").write_text(to_toml(waves))
    train_sine([replace(waves, engine=config.engine)], folder / "sine", quiet=True)
    (folder / "deep.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    (folder / "binary.toml").write_bytes(bytes(range(256)))
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    places = {"deep": folder / "deep.toml", "binary": folder / "binary.toml"}
    places |= {"toml": folder / "tiny.toml", "waves": folder / "waves.toml"}
    places |= {name: folder / name for name in ("run", "sine", "pipe", "loop")}
    settings = ["--data.samples", "9", "--phase1.steps", "4", "--phase1.alpha", "0.1", "--trajectory.support", "3"]
    more = ["--data.train-samples", "5", "--mask.delta", "0.3", "--meta.clamp", "1", "--phase2.lam", "1"]
    learner = ["--learner", "ncm", "--task-classes", "1", "--order", "task", "--device", "cpu"]
    lines = [
        ["train", "{toml}", "--out", "new", "--quiet", *settings],
        ["train", "{toml}", "--out", "new", "--quiet", *more],
        ["train", "{toml}", "--start", "{run}/phase1.safetensors", "--out", "new", "--quiet"],
        ["train", "{run}", "--resume", "--quiet", "--engine.checkpoint-every", "3"],
        ["train", "{toml}", "--representation", "oml", "--out", "new", "--net.channels", "4", "--quiet"],
        ["train", "{waves}", "--out", "new", "--sine.count", "2", "--phase1.steps", "1", "--clip", "1.0", "--quiet"],
        ["train", "mnist-gan", "--root", "data", "--gan.noise", "3", "--trajectory.count", "2"],
        ["evaluate", "{run}", "--trajectories", "2", "--classes", "2", "--rates", "0.1", "0.01", "--out", "e.json"],
        ["evaluate", "{run}/phase3.safetensors", "--train-samples", "3", "--test-samples", "2", "--seed", "4"],
        ["evaluate", "{run}", *learner],
        ["evaluate", "{run}", "--phase", "2", "--untrained", "--split", "novel"],
        ["evaluate", "{sine}", "--runs", "2", "--rate", "0.1", "--device", "cpu", "--out", "e.json"],
        ["evaluate", "{sine}", "--phase", "2", "--runs", "3"],
        ["list", "learners"],
        ["list", "presets"],
        ["list", "representations"],
        ["data", "list"],
        ["data", "check", "glyphs", "--base-classes", "3", "--novel-classes", "2", "--size", "16", "--samples", "4"],
        ["data", "show", "glyphs", "--base-classes", "3", "--rows", "2", "--columns", "2", "--out", "sheet.png"],
        ["data", "check", "folder", "--root", "{run}", "--novel-classes", "1"],
        ["bench", "step", "--steps", "1", "--device", "cpu", "--out", "b.json"],
        ["quickstart", "--out", "quick", "--data.size", "16", "--evaluation.trajectories", "2"],
        ["reproduce", "table7", "--preset", "tiny", "--seeds", "0", "--runs", "made", "--out", "tables"],
        ["reproduce", "table4", "--preset", "tiny", "--seeds", "0", "--runs", "made", "--out", "tables"],
        ["report", "{run}", "--out", "report.html", "--markdown", "report.md"],
        ["--version"],
        ["help"],
    ]
    return lines, places


def try_commands(options: Options, found: Findings, until: int) -> None:
    """Command lines from where the findings end, up to number `until`, a process each."""
    with tempfile.TemporaryDirectory() as folder:
        lines, places = command_lines(Path(folder))
        tables = {name: table for name, table in to_dict(Config()).items() if isinstance(table, dict)}
        settings = [f"--{section}.{name}" for section, table in tables.items() for name in table]
        while found.done < until:
            number = options.first + found.done
            words = mutations.misspelt(lines, settings, mutations.draw(options.seed, "commands", number), places)
            shown = " ".join(word.replace(folder, "") for word in words)
            name = f"{number} ({shown.encode('unicode_escape', 'surrogatepass').decode()[:300]})"
            with tempfile.TemporaryDirectory() as place:
                began = time.perf_counter()
                code, said, mebibytes, stopped = run(words, Path(place), options, ENCODINGS[number % len(ENCODINGS)])
            seconds, fault = time.perf_counter() - began, ""
            outcome = {0: "done", 2: "refused"}.get(code, "other code")
            if stopped:
                outcome = "asked to end"
            if code not in ENDS or "Traceback" in said:
                outcome, fault = "fault", f"code {code}: {' | '.join(said.strip().splitlines()[-3:])[:400]}"
            elif any(not c.isprintable() and c not in "\n\r" for c in said):
                outcome, fault = "fault", f"control characters: {said[-200:]!r}"
            found.add(name, outcome, 0.0 if stopped else seconds, mebibytes, fault)


def run(words: Sequence[str], place: Path, options: Options, encoding: str = "utf-8") -> tuple[int, str, float, bool]:
    """Exit code, what was said, memory, and whether it had to be asked to end, of a command in a child of this process,
    which need not wait for torch."""
    said = place / "said"
    child = os.fork()
    if child == 0:
        code = 70
        try:
            torch.set_num_threads(1)  # the threads of the parent are not there, and would be waited for
            os.chdir(place)
            number = os.open(said, os.O_WRONLY | os.O_CREAT)
            for stream in (1, 2):
                os.dup2(number, stream)
            sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
            os.environ |= {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "TERM": "dumb"}
            with limits(options.mebibytes):
                code = command(words)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code & 255)
    before = peak_of_ended()
    stopped = False
    for seconds, number in ((options.seconds, signal.SIGTERM), (5 * options.seconds, signal.SIGKILL)):
        end = wait(child, seconds)
        if end is not None:
            break
        stopped = True
        os.kill(child, number)
    else:
        end = wait(child, 60.0)
    text = said.read_bytes().decode(errors="replace") if said.exists() else ""
    status, used = end if end is not None else (-signal.SIGKILL, before)
    return status, text, used - peak_mib() if used > peak_mib() else 0.0, stopped


def peak_of_ended() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def wait(child: int, seconds: float) -> tuple[int, float] | None:
    """Exit code and peak memory of a child, if it ends in time."""
    until = time.monotonic() + seconds
    while True:
        found, status, used = os.wait4(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), used.ru_maxrss / 1024
        if time.monotonic() > until:
            return None
        time.sleep(0.01)
