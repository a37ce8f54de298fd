"""What kcciol does with files and command lines that are nearly right, and with many threads at once.

    python benchmarks/robustness.py                                  # everything; a call that is cut is gone on with
    python benchmarks/robustness.py --parts learners --files 500     # a part

A file is loaded, or refused by a `UserError`, within `--seconds` and `--mebibytes`; what is loaded is used. A command
line ends with an exit code of its own and without a traceback. Of threads that learn at once, nothing is lost. Each
mutant is a function of `--seed` and its number, so that what is found can be found again: --first N --files 1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mutations
import numpy as np
import torch
import tyro

from kcciol.cli import main as command
from kcciol.config import Config, preset
from kcciol.data import load as load_data
from kcciol.encoders import run as encoders
from kcciol.engine import checkpoint
from kcciol.engine.record import record
from kcciol.errors import UserError
from kcciol.files import read_json, require_json, write_json
from kcciol.learner import OnlineLearner
from kcciol.learners import fitting, learner_type
from kcciol.meta.phases import train
from kcciol.paper.presets import regression_preset
from kcciol.paper.sine.settings import RegressionConfig
from kcciol.paper.sine.train import load_sine, train_sine
from kcciol.serialization import from_dict, to_dict, to_toml

Part = Literal["learners", "checkpoints", "commands", "threads"]
ROOT = Path(__file__).parents[1]
TODAY = ROOT / "tests" / "data" / "today"  # of the first version of each format
WIDTH = 6
SMALL = {"reserve": 3, "slots": 5, "replay": 2, "units": 7, "chunk": 4, "epochs": 2, "draws": 2, "members": 2}
SMALL |= {"tune_steps": 2, "recent": 3, "anchor_steps": 2, "restarts": 2}
ENDS = {0, 1, 2, 3, 130, 143, 128 + signal.SIGTERM, -signal.SIGTERM}  # exit codes that a command may have


@dataclass(frozen=True)
class Options:
    out: Path = Path("results/robustness.json")
    """The file to write; what it holds of the same settings already is gone on with."""
    parts: tuple[Part, ...] = ("learners", "checkpoints", "commands", "threads")
    """What to try."""
    files: int = 20_000
    """Mutated files of learners, and as many of training."""
    commands: int = 1_000
    """Mutated command lines."""
    threads: int = 8
    """Threads that learn at once."""
    learns: int = 1_000
    """Examples that each of them learns."""
    seconds: float = 2.0
    """The longest that a file may take; a command that takes longer is asked to end."""
    mebibytes: int = 1024
    """The most memory that a file or a command may take."""
    first: int = 0
    """The number of the first mutant."""
    seed: int = 0
    """Another seed is other mutants."""


@dataclass
class Findings:
    """What came of a part."""

    done: int = 0
    outcomes: dict[str, int] = dataclasses.field(default_factory=dict)
    slowest_s: float = 0.0
    slowest: str = ""
    largest_mib: float = 0.0
    largest: str = ""
    faults: list[str] = dataclasses.field(default_factory=list)

    def add(self, name: str, outcome: str, seconds: float, mebibytes: float, fault: str = "") -> None:
        """One more mutant; fault says what was wrong, if anything."""
        self.done += 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if seconds > self.slowest_s:
            self.slowest_s, self.slowest = round(seconds, 3), name
        if mebibytes > self.largest_mib:
            self.largest_mib, self.largest = round(mebibytes, 1), name
        if fault and len(self.faults) < 100:
            self.faults.append(f"{name}: {fault}")


# --- files ------------------------------------------------------------------------------------------------------------


def learner_files(folder: Path) -> list[Path]:
    """A file of each learner, and those of an earlier version."""
    random = np.random.default_rng(0)
    for name in fitting("head"):
        fields = {f.name for f in dataclasses.fields(learner_type(name).settings_type)}
        settings = {key: value for key, value in SMALL.items() if key in fields}
        learner = OnlineLearner(name, WIDTH, settings, seed=3, encoder="sha256 of an encoder")
        for i, label in enumerate(["a", 1, "é\n", 2.5] * 3):
            learner.learn_one(random.random(WIDTH) + i % 4, label)
            if i % 4 == 3 and i < 9:
                learner.end_task()
        learner.save(folder / f"{name}.safetensors")
    return sorted([*folder.glob("*.safetensors"), *TODAY.glob("*.safetensors")])


def use_learner(path: Path) -> None:
    """Load a learner and ask it, and teach it, if its settings are the usual ones."""
    learner = OnlineLearner.load(path)
    usual = {f.name: f.default for f in dataclasses.fields(learner.settings)} | SMALL
    if all(usual[name] == value for name, value in vars(learner.settings).items()) and learner.width < 100:
        x = np.full(learner.width, 0.5)
        with contextlib.suppress(UserError):  # nothing learned, or diverged
            learner.predict_one(x)
        learner.learn_one(x, "new").learn_one(x, "new").predict_one(x)


def training_config() -> Config:
    """A run of a second."""
    small: dict[str, Any] = {"size": 16, "base_classes": 6, "novel_classes": 2, "samples": 8, "train_samples": 6}
    config = to_dict(preset("quickstart"))
    config["data"] |= small
    config["net"] |= {"channels": 3, "strides": [2, 2]}
    config["trajectory"] |= {"classes": 2, "support": 2, "remember": 4}
    config["evaluation"] |= {"classes": [2], "trajectories": 2, "search_trajectories": 1}
    config["evaluation"] |= {"train_samples": 4, "test_samples": 2, "rates": [0.01]}
    for number in (1, 2, 3):
        config[f"phase{number}"]["steps"] = 3
    config["engine"] |= {"device": "cpu", "checkpoint_every": 2}
    return from_dict(Config, config)


def waves_config() -> RegressionConfig:
    """The same for sine functions."""
    config = to_dict(regression_preset("sine"))
    config["sine"] |= {"functions": 4, "novel": 4, "slots": 2, "batches": 2, "batch": 2, "query": 2}
    config["net"] |= {"width": 4, "features": 5, "theta": 2, "W": 2}
    for number in (1, 2, 3):
        config[f"phase{number}"]["steps"] = 2
    return from_dict(RegressionConfig, config)


def training_files(folder: Path) -> list[Path]:
    """Checkpoints and representations of a classification and of sine functions, and those of an earlier version."""
    config = training_config()
    train(config, load_data(config.data).base, folder / "run", quiet=True)
    waves = waves_config()
    train_sine([waves, dataclasses.replace(waves, seed=1)], folder / "waves", quiet=True)
    found = [*folder.glob("*/*.safetensors"), *TODAY.glob("*/*.safetensors")]
    return sorted(path for path in found if not path.name.startswith("phase2"))


def use_training(path: Path) -> None:
    """Load whatever is there, and use it."""
    if "waves" in path.name or "sine" in path.name:
        load_sine(path)
        return
    found = encoders.load(path)
    if found.problem.encoder.features < 10_000:
        found.features(torch.zeros(1, *found.problem.encoder.image_shape, dtype=torch.uint8))
    assert len(found.identity) > 60
    at = checkpoint.load(path)
    if "adam.m" in at.tensors:
        at.require_state(found.problem.layout, "mask" in at.tensors, path)


def try_files(
    part: str, sources: Sequence[Path], use: Callable[[Path], None], options: Options, found: Findings, until: int
) -> None:
    """Mutants from where the findings end, up to number `until`."""
    whole = [path.read_bytes() for path in sources]
    with tempfile.TemporaryDirectory() as folder, limits(options.mebibytes):
        while found.done < until:
            number = options.first + found.done
            rng = mutations.draw(options.seed, part, number)
            which = rng.randrange(len(whole))
            kind, data = mutations.mutated(whole[which], rng)
            source = sources[which]
            path = Path(folder) / f"{source.parent.name}-{source.name}"
            path.write_bytes(data)
            name = f"{number} ({path.name}, {kind})"
            began, before, fault = time.perf_counter(), peak_mib(), ""
            try:
                with alarm(5 * options.seconds):
                    use(path)
                outcome = "loaded"
            except UserError:
                outcome = "refused"
            except BaseException as error:  # that is what is looked for
                if isinstance(error, KeyboardInterrupt):
                    raise
                last = traceback.extract_tb(error.__traceback__)[-1]
                outcome = "fault"
                fault = f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"
            seconds, mebibytes = time.perf_counter() - began, peak_mib() - before
            if not fault and seconds > options.seconds:
                outcome, fault = "slow", f"{seconds:.1f} s"
            found.add(name, outcome, seconds, mebibytes, fault)
            path.unlink()


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.contextmanager
def limits(mebibytes: int) -> Iterator[None]:
    """No more memory than so much beyond what there is: what would take more is a fault."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        now = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + mebibytes * 2**20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Whatever takes much longer than it may is ended."""

    def ring(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- command lines ----------------------------------------------------------------------------------------------------


def command_lines(folder: Path) -> tuple[list[list[str]], dict[str, Path]]:
    """Command lines that work, in which {run} is a run, and files that no command should choke on."""
    config = training_config()
    train(config, load_data(config.data).base, folder / "run", quiet=True)
    (folder / "tiny.toml").write_text(to_toml(config))
    (folder / "waves.toml").write_text(to_toml(waves_config()))
    (folder / "deep.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    (folder / "binary.toml").write_bytes(bytes(range(256)))
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    places = {"run": folder / "run", "deep": folder / "deep.toml", "binary": folder / "binary.toml"}
    places |= {"toml": folder / "tiny.toml", "waves": folder / "waves.toml"}
    places |= {name: folder / name for name in ("pipe", "loop")}
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
                code, said, mebibytes, stopped = run(words, Path(place), options)
            seconds, fault = time.perf_counter() - began, ""
            outcome = {0: "done", 2: "refused"}.get(code, "other code")
            if stopped:
                outcome = "asked to end"
            if code not in ENDS or "Traceback" in said:
                outcome, fault = "fault", f"code {code}: {' | '.join(said.strip().splitlines()[-3:])[:400]}"
            elif any(not c.isprintable() and c not in "\n\r" for c in said):
                outcome, fault = "fault", f"control characters: {said[-200:]!r}"
            found.add(name, outcome, 0.0 if stopped else seconds, mebibytes, fault)


def run(words: Sequence[str], place: Path, options: Options) -> tuple[int, str, float, bool]:
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
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
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


# --- threads ----------------------------------------------------------------------------------------------------------


def try_threads(options: Options, found: Findings, until: int) -> None:
    """Every learner taught by many threads at once, each asking now and then: nothing may be lost."""
    names = fitting("head")
    while found.done < min(until, len(names)):
        name = names[found.done]
        began, before = time.perf_counter(), peak_mib()
        wrong = taught_at_once(name, options.threads, options.learns)
        seconds = time.perf_counter() - began
        found.add(name, "lost" if wrong else "whole", seconds, peak_mib() - before, wrong)


def taught_at_once(name: str, threads: int, learns: int) -> str:
    """What was lost of so many examples from so many threads; nothing when it is well."""
    fields = {f.name for f in dataclasses.fields(learner_type(name).settings_type)}
    settings = {key: value for key, value in SMALL.items() if key in fields}
    learner = OnlineLearner(name, WIDTH, settings)
    xs = np.random.default_rng(0).random((threads, learns, WIDTH))
    errors: list[str] = []

    def teach(thread: int) -> None:
        try:
            for i, x in enumerate(xs[thread]):
                learner.learn_one(x, f"class {thread if i % 2 else i % 20}")
                if i % 50 == 0:
                    learner.predict_one(x)
        except Exception as error:  # that is what is looked for
            errors.append(f"{type(error).__name__}: {str(error)[:200]}")

    workers = [threading.Thread(target=teach, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        return f"{len(errors)} threads failed: {errors[0]}"
    if learner.learner.steps != threads * learns:
        return f"{threads * learns - learner.learner.steps} of {threads * learns} examples lost"
    counts = learner.learner.state_dict().get("mean.count")
    if counts is not None and float(counts.sum()) != threads * learns:
        return f"{threads * learns - float(counts.sum()):g} of {threads * learns} examples are in no mean"
    return ""


# --- all of it --------------------------------------------------------------------------------------------------------


def main(options: Options) -> int:
    """The number of parts in which something is wrong."""
    require_json(options.out)
    torch.set_num_threads(1)
    settings = {key: value for key, value in dataclasses.asdict(options).items() if key not in ("out", "parts")}
    old = read_json(options.out) if options.out.exists() else {}
    results: dict[str, Any] = {"options": settings, "parts": {}}
    if old.get("options") == settings:
        results["parts"] = old["parts"]
    sizes = {"learners": options.files, "checkpoints": options.files, "commands": options.commands}
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            found = Findings(**results["parts"].get(part, {}))
            total = sizes.get(part, len(fitting("head")))
            place = Path(folder) / part
            place.mkdir()
            try_part = part_of(part, place, options) if found.done < total else None
            while try_part is not None and found.done < total:
                try_part(found, min(total, found.done + (1 if part == "threads" else 200)))
                results["parts"][part] = dataclasses.asdict(found)
                write_json(options.out, results | {"record": record()})
                print(f"{part}: {found.done} of {total}, {found.outcomes}", file=sys.stderr, flush=True)
    return sum(bool(part["faults"]) for part in results["parts"].values())


def part_of(part: Part, place: Path, options: Options) -> Callable[[Findings, int], None]:
    """What goes on with a part up to a number."""
    if part == "learners":
        sources = learner_files(place)
        return lambda found, until: try_files(part, sources, use_learner, options, found, until)
    if part == "checkpoints":
        sources = training_files(place)
        return lambda found, until: try_files(part, sources, use_training, options, found, until)
    if part == "commands":
        return lambda found, until: try_commands(options, found, until)
    return lambda found, until: try_threads(options, found, until)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
