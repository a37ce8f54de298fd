"""Who a process is among several, and that alone nothing of it happens."""

from __future__ import annotations

import pytest
import torch

from kcciol.engine.ranks import ALONE, Ranks
from kcciol.errors import UserError


def test_torchruns_variables_say_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert Ranks.here() == ALONE
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert Ranks.here() == ALONE  # some other program's
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Ranks.here() == Ranks(5, 8, 1)
    monkeypatch.setenv("LOCAL_RANK", "first")
    with pytest.raises(UserError, match="torchrun"):
        Ranks.here()


def test_alone_nothing_happens() -> None:
    x = torch.ones(2)
    with ALONE.joined():
        assert not torch.distributed.is_initialized()
        assert ALONE.mean(x) is ALONE.broadcast(x) is x
        assert ALONE.maximum(3) == 3
        assert ALONE.run_on_all(lambda: 4) == 4
        ALONE.wait()
    assert ALONE.slice_of(3) == slice(0, 3)
    assert ALONE.device(torch.device("cuda")) == torch.device("cuda")


def test_shares_cover_everything_once() -> None:
    assert [list(range(6))[Ranks(rank, 3).slice_of(6)] for rank in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(UserError, match=r"trajectory.count is 1, .* multiple of 2"):
        Ranks(0, 2).slice_of(1)


def test_a_rank_without_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert Ranks(1, 2, 1).device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(UserError, match="GPU"):
        Ranks(1, 2, 1).device(torch.device("cuda"))
