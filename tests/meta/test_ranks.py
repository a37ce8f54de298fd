"""Several ranks do what one does: a step split over threads in float64, whole runs split over processes."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol.config import Config, MetaConfig, NetConfig, TrajectoryConfig
from kcciol.data.classset import Splits
from kcciol.engine import checkpoint
from kcciol.engine.ranks import Mean, Ranks
from kcciol.meta.inner import Inner, Plain, TrajectoryLabels
from kcciol.meta.lowrank import HiddenLowRank, LinearLowRank
from kcciol.meta.objectives import Episodes, Supervised
from kcciol.meta.outer import MetaGradient, meta_gradient
from kcciol.meta.phases import train
from kcciol.meta.step import MetaStep
from kcciol.meta.whole import whole_gradient
from kcciol.nets.classification import Classification
from kcciol.serialization import to_toml

T, CLASSES = 4, 13  # trajectories of a step, base classes

# --- one step, its ranks being threads -------------------------------------------------------------------------------


def threads(count: int, work: Callable[[int, Mean], MetaGradient]) -> list[MetaGradient]:
    """What work(rank, mean) returns on each rank."""
    meeting, values = threading.Barrier(count, timeout=60), [torch.empty(0)] * count

    def one(rank: int) -> MetaGradient:
        def mean(x: Tensor) -> Tensor:
            values[rank] = x.detach().clone()
            meeting.wait()
            total = torch.stack(values).mean(0)
            meeting.wait()
            return total

        return work(rank, mean)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def case(hidden: int, k: int, s: int) -> tuple[Classification, Tensor, Tensor, TrajectoryLabels]:
    torch.manual_seed(hidden + k)
    problem = Classification(NetConfig(channels=4, strides=(2, 1), hidden=hidden), (1, 12, 11), CLASSES)
    Theta = problem.init(3).double()
    Theta += 0.05 * torch.randn_like(Theta) * (Theta != 0)
    y = TrajectoryLabels(torch.randint(0, CLASSES, (T, k)), torch.randint(0, CLASSES, (T, s)))
    rows = problem.encoder.rows(torch.randint(0, 256, (T * (k + s), 1, 12, 11), dtype=torch.uint8))
    return problem, Theta, rows, y


def share(rows: Tensor, y: TrajectoryLabels, rank: int, count: int) -> tuple[Tensor, TrajectoryLabels]:
    """A rank's trajectories: its images of tau_tr, then those of tau_val."""
    own, n = Ranks(rank, count).slice_of(T), y.train.numel()
    parts = [part.view(T, -1, rows.shape[1])[own].flatten(0, 1) for part in (rows[:n], rows[n:]) if len(part)]
    return torch.cat(parts), TrajectoryLabels(y.train[own], y.val[own])


def inner(kind: str, problem: Classification, mean: Mean) -> Inner:
    if kind in ("supervised", "sparse"):
        return Supervised(problem.head, MetaConfig(loss=kind, sparsity=0.05), mean)  # type: ignore[arg-type]
    if kind == "episodes":
        sizes = TrajectoryConfig(classes=2, support=2, query=3, remember=0)
        return Episodes(problem.head, 0.3, MetaConfig(loss="episodes", episode_steps=2), sizes)
    kinds: dict[str, type[Inner]] = {"plain": Plain, "linear": LinearLowRank, "hidden": HiddenLowRank}
    return kinds[kind.removesuffix("-first")](problem.head, 0.3, "first" if kind.endswith("-first") else "exact")


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", ["plain", "linear", "linear-first", "hidden", "episodes", "supervised", "sparse"])
def test_a_split_step_is_the_whole_step(kind: str, count: int) -> None:
    problem, Theta, rows, y = case(7 if kind == "hidden" else 0, 0 if kind.startswith("s") else 4, 6)
    mask = (torch.rand_like(Theta) > 0.5).double()

    def work(rows: Tensor, y: TrajectoryLabels, mean: Mean) -> MetaGradient:
        return meta_gradient(problem, Theta, rows, y, inner(kind, problem, mean), mask, 0.7, mean=mean)

    whole = work(rows, y, Ranks().mean)
    for part in threads(count, lambda rank, mean: work(*share(rows, y, rank, count), mean)):
        for name in ("loss", "gradient", "constraint", "share"):
            torch.testing.assert_close(getattr(part, name), getattr(whole, name), rtol=1e-10, atol=1e-12)


def test_a_split_step_that_adapts_the_net() -> None:
    problem, Theta, rows, y = case(0, 3, 5)
    whole = whole_gradient(problem, Theta, rows, y, 0.2, "exact")

    def work(rank: int, mean: Mean) -> MetaGradient:
        return whole_gradient(problem, Theta, *share(rows, y, rank, 2), 0.2, "exact", mean=mean)

    for part in threads(2, work):
        torch.testing.assert_close(part.loss, whole.loss, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(part.gradient, whole.gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 0])  # 0: no tau_tr at all
def test_ranks_share_the_trajectories_and_reset_the_rows_of_all(tiny: Config, tiny_data: Splits, classes: int) -> None:
    plain: Any = {} if classes else {"meta": MetaConfig(loss="supervised", reset="none")}
    sizes = dataclasses.replace(tiny.trajectory, count=T, classes=classes)
    config = dataclasses.replace(tiny, trajectory=sizes, **plain)
    problem = Classification(config.net, tiny_data.base.image_shape, len(tiny_data.base))
    whole, *parts = (
        MetaStep(problem, tiny_data.base, config, config.phase1, 1, problem.init(0), None, ranks)
        for ranks in (Ranks(), Ranks(0, 2), Ranks(1, 2))
    )
    for step in (whole, *parts):
        step.load_block(0, 0)
        assert torch.equal(step.classes, whole.classes)
    n = T // 2 * whole.k  # of each rank
    ordered = [part.images[:, :n] for part in parts] + [part.images[:, n:] for part in parts]
    assert torch.equal(torch.cat(ordered, 1), whole.images)


# --- whole runs, their ranks being processes -------------------------------------------------------------------------


def counted(config: Config, count: int) -> Config:
    return dataclasses.replace(config, trajectory=dataclasses.replace(config.trajectory, count=count))


def torchrun(config: Config, folder: Path) -> Path:
    """Train on two ranks by the command that the docs name."""
    (folder / "two.toml").write_text(to_toml(config))
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "kcciol"]
    words += ["train", str(folder / "two.toml"), "--out", str(folder / "run")]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The run is in") == done.stderr.count("phase 3: ") == 1  # rank 0 alone speaks
    return folder / "run"


def pair(*words: list[str]) -> tuple[list[int], list[str]]:
    """Exit codes and errors of two ranks, started as torchrun does; words are both ranks', or those of each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, *words[rank % len(words)]],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()  # one that hangs
    return [process.returncode for process in processes], errors


@pytest.fixture(scope="module")
def whole(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, one trajectory each, from beginning to end."""
    return torchrun(counted(tiny, 2), tmp_path_factory.mktemp("whole"))


def assert_close(a: Path, b: Path, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    for number in (1, 2, 3):
        one, two = (checkpoint.load(path / f"phase{number}.safetensors").tensors for path in (a, b))
        torch.testing.assert_close(two, one, rtol=rtol, atol=atol)


def test_two_ranks_end_where_one_ends(tiny: Config, tiny_data: Splits, whole: Path, tmp_path: Path) -> None:
    train(counted(tiny, 2), tiny_data.base, tmp_path / "one", quiet=True)
    assert_close(tmp_path / "one", whole)
    assert {p.name for p in whole.iterdir()} == {p.name for p in (tmp_path / "one").iterdir()}
    lines = [len((path / "metrics.jsonl").read_text().splitlines()) for path in (whole, tmp_path / "one")]
    assert lines[0] == lines[1]


def test_two_trajectories_a_rank(tiny: Config, tiny_data: Splits, tmp_path: Path) -> None:
    config = counted(tiny, 4)
    config = dataclasses.replace(config, meta=dataclasses.replace(config.meta, reset="draw"))
    train(config, tiny_data.base, tmp_path / "one", quiet=True)
    assert_close(tmp_path / "one", torchrun(config, tmp_path))


INTERRUPTED = """
import os, signal, sys
from kcciol.cli import main
from kcciol.meta import step
done, real = 0, step.MetaStep.__call__
def interrupted(self):
    global done
    real(self)
    done += 1
    if done == 9 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), int(sys.argv[1]))
step.MetaStep.__call__ = interrupted
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("number", "codes", "said", "saved"),
    [
        (signal.SIGTERM, [143, 143], "after step 2, and saved there", (2, 2)),
        (signal.SIGKILL, [2, -9], "--resume", (1, 7)),
    ],
)
def test_a_signal_to_one_rank_ends_both_and_the_run_resumes(
    tiny: Config, whole: Path, tmp_path: Path, number: int, codes: list[int], said: str, saved: tuple[int, int]
) -> None:
    (tmp_path / "two.toml").write_text(to_toml(counted(tiny, 2)))
    run = tmp_path / "run"
    words = ["-c", INTERRUPTED, str(number), "train", str(tmp_path / "two.toml"), "--out", str(run), "--quiet"]
    ended, errors = pair(words)
    assert ended == codes, errors
    assert said in errors[0]
    assert errors[0].count("\n") == 1
    assert errors[1] == ""
    at = checkpoint.load(run / "checkpoint.safetensors")
    assert (at.phase, at.step) == saved
    ended, errors = pair(["-m", "kcciol", "train", str(run), "--resume", "--quiet"])
    assert ended == [0, 0], errors
    assert_close(whole, run, rtol=0, atol=0)


def test_a_count_that_cannot_be_split_is_refused_once(tiny: Config, tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text(to_toml(counted(tiny, 3)))
    codes, errors = pair(["-m", "kcciol", "train", str(tmp_path / "odd.toml"), "--out", str(tmp_path / "run")])
    assert codes == [2, 2]
    assert errors[0].startswith("kcciol: --trajectory.count is 3, but")
    assert errors[0].count("\n") == 1
    assert errors[1] == ""
    assert not (tmp_path / "run").exists()


def test_what_one_rank_lacks_is_said_by_rank_0(tiny: Config, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(to_toml(counted(tiny, 2)))
    words = ["-m", "kcciol", "train", str(tmp_path / "two.toml"), "--out", str(tmp_path / "run")]
    codes, errors = pair(words, [*words, "--start", str(tmp_path / "missing")])
    assert codes == [2, 2]
    assert errors[0].startswith("kcciol: Rank 1: There is no checkpoint")
    assert errors[1] == ""
    assert not (tmp_path / "run").exists()
