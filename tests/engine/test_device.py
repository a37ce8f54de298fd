"""In what precision products are computed is a matter of a block, not of the process."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kcciol.engine.device import Precision, encoder_dtype, machine_bytes, precision

GPU = torch.device("cuda")


def flags() -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark


@pytest.mark.parametrize(("name", "fast"), [("float32", False), ("tf32", True), ("bf16", True)])
def test_a_precision_ends_with_its_block(name: Precision, fast: bool) -> None:
    before = flags()
    with precision(name, GPU):
        assert flags() == (fast, fast, True, False)
        with precision(name, GPU):
            assert flags() == (fast, fast, True, False)
        assert flags() == (fast, fast, True, False)
    assert flags() == before


@pytest.mark.parametrize("device", [GPU, torch.device("cpu")])
def test_a_block_of_another_precision_within_a_block_is_refused(device: torch.device) -> None:
    """Else it would change what other threads in the outer block compute."""
    before = flags()
    with precision("tf32", device):
        inside = flags()
        with pytest.raises(RuntimeError, match="float32 lies within"), precision("float32", device):
            pass
        assert flags() == inside
    assert flags() == before


def test_a_precision_ends_with_a_block_that_fails() -> None:
    before = flags()
    with pytest.raises(ZeroDivisionError), precision("tf32", GPU):
        raise ZeroDivisionError
    assert flags() == before


def test_threads_share_a_precision_and_who_wants_another_waits() -> None:
    before, inside, leave = flags(), threading.Barrier(4), threading.Event()
    found: list[tuple[bool, ...]] = []

    def share(name: Precision) -> None:
        with precision(name, GPU):
            if name == "tf32":
                inside.wait(10)
                leave.wait(10)
            found.append(flags())

    with ThreadPoolExecutor(4) as pool:
        shared = [pool.submit(share, "tf32") for _ in range(3)]
        inside.wait(10)
        other = pool.submit(share, "float32")
        time.sleep(0.05)
        assert not other.done()
        assert flags() == (True, True, True, False)
        leave.set()
        for one in (*shared, other):
            one.result(10)
    assert found == [(True, True, True, False)] * 3 + [(False, False, True, False)]
    assert flags() == before


def test_activations_are_bfloat16_on_a_gpu_alone() -> None:
    assert encoder_dtype("bf16", GPU) == torch.bfloat16
    assert encoder_dtype("bf16", torch.device("cpu")) == encoder_dtype("tf32", GPU) == torch.float32


@pytest.mark.parametrize(("said", "found"), [("4096\n", 4096), ("max\n", None), (None, None)])
def test_a_container_has_less_memory_than_its_machine(
    said: str | None, found: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcciol.engine.device.LIMITS", ())
    whole = machine_bytes()
    if said is not None:
        (tmp_path / "memory.max").write_text(said)
    monkeypatch.setattr("kcciol.engine.device.LIMITS", (str(tmp_path / "memory.max"),))
    assert machine_bytes() == (found or whole)
