"""Table 4, rehearsed; and the rivals that do not meta-learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kcciol.errors import UserError
from kcciol.files import write_json
from kcciol.paper.plan import RunPlan
from kcciol.paper.presets import regression_preset
from kcciol.paper.sine import network
from kcciol.paper.sine.evaluate import evaluate
from kcciol.paper.sine.functions import Functions, inputs
from kcciol.paper.sine.network import RegressionNetwork
from kcciol.paper.sine.pretrain import fit, pretrain
from kcciol.paper.sine.settings import SineConfig, WidthConfig
from kcciol.paper.studies import sine
from kcciol.paper.study import Workspace
from kcciol.paper.writing import made_of
from tests.paper.example import together

SINE = SineConfig(functions=30, novel=8, slots=3, batches=2, batch=16, query=4)
NET = WidthConfig(width=16, features=20, theta=2, W=2)


def tables_of(workspace: Workspace) -> dict[str, Any]:
    """The tables of all cells that are there."""
    return made_of(RunPlan(workspace, {"sine": ("table4",)}, ()), "sine")[0]


def test_members_of_all_seeds_become_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    sine.EXPERIMENT.make(together(workspace, 0, 1))
    said = capsys.readouterr().out
    assert "first order: 8 members trained" in said
    assert "exact order: 4 members trained" in said
    assert all(cell.path.exists() for cell in sine.EXPERIMENT.cells(together(workspace, 0, 1)))
    sine.EXPERIMENT.make(together(workspace, 0, 1))
    assert capsys.readouterr().out == ""
    table = tables_of(workspace)["table4"]
    json.dumps(table, allow_nan=False)
    assert table["lower_is_better"]
    assert table["rows"]["3"]["kcciol"]["n"] == 6
    assert len(table["rows"]["3"]["srnn"]["choice"]) == 2
    assert table["rows"]["10"]["paper: kcciol"]["mean"] == 0.22
    assert tables_of(Workspace(runs=tmp_path / "none", tiny=True)) == {}


def test_only_what_is_missing_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    sine.EXPERIMENT.make(together(workspace, 0, 1))
    capsys.readouterr()
    sine.EXPERIMENT.path_of(workspace, "srnn", 1).unlink()
    sine.EXPERIMENT.make(together(workspace, 0, 1))
    assert "trained" not in capsys.readouterr().out  # a rival that needs none of the members
    path = sine.EXPERIMENT.path_of(workspace, "kcciol", 1)
    before = path.read_text()
    path.unlink()
    sine.EXPERIMENT.make(together(workspace, 0, 1))
    folders = [str(path.relative_to(tmp_path / "sine")) for path in (tmp_path / "sine").glob("*/*")]
    assert sorted(folders) == ["exact/members-seeds0-1", "first/members-seeds0-1"]  # where they are trained
    assert json.loads(path.read_text())["functions"] == json.loads(before)["functions"]


def test_rates_of_rivals_are_chosen_on_other_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, int, int, float]] = []

    def recorder(net: Any, Theta: Any, config: Any, seed: int, runs: int, alpha: float, novel: bool, learn: Any) -> Any:
        asked.append((novel, seed, runs, alpha))
        return evaluate(net, Theta, config, seed, runs, alpha, novel, learn)

    monkeypatch.setattr("kcciol.paper.sine.evaluate.evaluate", recorder)
    sine.EXPERIMENT.make_supervised(Workspace(runs=tmp_path, tiny=True), (7,))
    searched, reported = ([one for one in asked if one[0] == novel] for novel in (False, True))
    search = [(False, 1007, sine.TINY.search_runs, rate) for rate in sine.RATES]
    assert searched == search * len(sine.SUPERVISED)
    assert [one[:3] for one in reported] == [(True, 7, sine.TINY.runs)] * len(sine.SUPERVISED)


@pytest.mark.parametrize("key", ["functions", "rate"])
def test_a_cell_that_lacks_something_is_named(tmp_path: Path, key: str) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    sine.EXPERIMENT.make(together(workspace, 0))
    path = sine.EXPERIMENT.path_of(workspace, "srnn", 0)
    write_json(path, json.loads(path.read_text()) | {key: None})
    with pytest.raises(UserError, match=rf"srnn-seed0.json cannot be read \(it lacks {key}\)"):
        sine.EXPERIMENT.read(workspace, "srnn", 0)


def test_results_measured_otherwise_are_refused(tmp_path: Path) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    sine.EXPERIMENT.make(together(workspace, 0))
    path = sine.EXPERIMENT.path_of(workspace, "pretrained", 0)
    made = json.loads(path.read_text())
    path.write_text(json.dumps(made | {"spec": made["spec"] | {"runs": 7}}))
    with pytest.raises(UserError, match="other settings"):
        sine.EXPERIMENT.read(workspace, "pretrained", 0)
    older = {k: v for k, v in made["config"].items() if k not in ("clip", "constraint")}
    path.write_text(json.dumps(made | {"config": older}))  # from when there were none: it is as they are by default
    assert sine.EXPERIMENT.read(workspace, "pretrained", 0)["config"] == older
    for changed in ({**older, "clip": 1.0}, {**older, "strange": 1}, {**older, "sine": None}):
        path.write_text(json.dumps(made | {"config": changed}))
        with pytest.raises(UserError, match="other settings"):
            sine.EXPERIMENT.read(workspace, "pretrained", 0)


def test_an_error_of_runs_that_diverged_is_no_number(tmp_path: Path) -> None:
    workspace = Workspace(runs=tmp_path, tiny=True)
    sine.EXPERIMENT.make(together(workspace, 0, 1))
    path = sine.EXPERIMENT.path_of(workspace, "kcciol", 1)
    made = json.loads(path.read_text())
    made["functions"]["2"] |= {"by_run": made["functions"]["2"]["by_run"][:1], "diverged": 2}
    path.write_text(json.dumps(made))
    cell = tables_of(workspace)["table4"]["rows"]["2"]["kcciol"]
    assert (cell["mean"], cell["n"], cell["diverged"], cell["by_seed"][1]) == (None, 6, 2, None)
    assert isinstance(cell["by_seed"][0], float)


def test_supervised_training_fits_the_functions_it_is_shown() -> None:
    wide, Theta = fit(NET, SINE, [3], [0.0], steps=3000, rate=1e-2, device="cpu")
    functions, z = Functions.drawn(torch.tensor([3]), 30), torch.linspace(-5, 5, 50)
    t = torch.arange(30)
    truth = functions.at(t[None], z.expand(1, 30, 50))[0]  # (functions, places)
    x = inputs(3, z.expand(30, 50), (t % 3)[:, None].expand(30, 50)).view(1, 30 * 50, 4)

    def error(Theta: Tensor) -> float:
        features = network.represent(wide.layers(Theta, "theta"), x)
        answers = network.activations(wide.layers(Theta, "W"), features)[-1].view(30, 50, -1)
        own = answers.gather(2, (t // 3)[:, None, None].expand(30, 50, 1))[..., 0]
        return float((own - truth).square().mean())

    assert error(Theta) < 0.3 * error(wide.init(3)[None])


def test_what_supervised_training_ends_in() -> None:
    plain, sparse = pretrain(NET, SINE, [3, 3], [0.0, 0.05], steps=300, rate=1e-2)
    net = RegressionNetwork(NET, 4)
    z = torch.linspace(-5, 5, 50)
    x = inputs(3, z, torch.zeros(50, dtype=torch.int64))[None]
    activity = [network.represent(net.layers(Theta[None], "theta"), x).mean() for Theta in (plain, sparse)]
    assert activity[1] < 0.8 * activity[0]
    start = network.represent(net.layers(net.init(3)[None], "theta"), x)
    assert not torch.allclose(start, network.represent(net.layers(plain[None], "theta"), x))
    fresh, drawn = net.layers(plain[None], "W"), net.layers(net.init(4)[None], "W")
    assert all(torch.equal(a[0], b[0]) for a, b in zip(fresh, drawn, strict=True))  # W starts anew


def test_what_the_table_trains_is_what_the_presets_say() -> None:
    assert sine.variants(sine.PAPER, (0,), "exact")["kcciol", 0] == regression_preset("sine")
    assert sine.variants(sine.PAPER, (0,), "first")["kcciol-paper", 0] == regression_preset("sine-literal")
