"""Table 4, rehearsed; and the rivals that do not meta-learn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kcciol.regression import network
from kcciol.regression.functions import inputs
from kcciol.regression.network import Network
from kcciol.regression.pretrain import pretrain
from kcciol.regression.settings import SineConfig, WidthConfig
from kcciol.reproduce import sine
from kcciol.reproduce.study import Where

SINE = SineConfig(functions=30, novel=8, slots=3, batches=2, batch=16, query=4)
NET = WidthConfig(width=16, features=20, theta=2, W=2)


def test_members_of_all_seeds_become_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = Where(runs=tmp_path, tiny=True)
    sine.make(where, (0, 1))
    assert "8 members trained" in capsys.readouterr().out
    assert all(path.exists() for path in sine.paths(where, (0, 1)))
    sine.make(where, (0, 1))
    assert capsys.readouterr().out == ""
    table = sine.tables(where, (0, 1))["table4"]
    json.dumps(table, allow_nan=False)
    assert table["lower_is_better"]
    assert table["rows"]["3"]["kcciol"]["n"] == 6
    assert len(table["rows"]["3"]["srnn"]["choice"]) == 2
    assert table["rows"]["10"]["paper: kcciol"]["mean"] == 0.22
    assert sine.tables(Where(runs=tmp_path / "none", tiny=True), (0,)) == {}


def test_supervised_training_fits_the_functions_it_is_shown() -> None:
    plain, sparse = pretrain(NET, SINE, [3, 3], [0.0, 0.05], steps=300, rate=1e-2)
    net = Network(NET, 4)
    z = torch.linspace(-5, 5, 50)
    x = inputs(3, z, torch.zeros(50, dtype=torch.int64))[None]
    activity = [network.represent(net.layers(Theta[None], "theta"), x).mean() for Theta in (plain, sparse)]
    assert activity[1] < 0.8 * activity[0]
    start = network.represent(net.layers(net.init(3)[None], "theta"), x)
    assert not torch.allclose(start, network.represent(net.layers(plain[None], "theta"), x))
    fresh, drawn = net.layers(plain[None], "W"), net.layers(net.init(4)[None], "W")
    assert all(torch.equal(a[0], b[0]) for a, b in zip(fresh, drawn, strict=True))  # W starts anew
