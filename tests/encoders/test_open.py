"""An encoder is opened by a name or a file; what there is can be listed without torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import kcciol
from kcciol.cli import main
from kcciol.encoders import ENCODERS, card_of, open_encoder
from kcciol.encoders import saved as saved_encoders
from kcciol.encoders.card import EncoderCard
from kcciol.encoders.characters import WEIGHTS
from kcciol.encoders.photo import Photo
from kcciol.encoders.run import Representation
from kcciol.encoders.saved import SavedEncoder, save
from kcciol.encoders.speed import milliseconds
from kcciol.errors import UserError
from kcciol.nets.residual import Residual, ResidualConfig

TRAINED = Path(__file__).parents[1] / "data" / "today" / "trained"
CONFIG = ResidualConfig(channels=3, size=16, stem=4, widths=(4,), strides=(2,), features=5)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save(tmp_path / "e.safetensors", Residual(CONFIG), Photo(16))
    return tmp_path / "e.safetensors"


def test_a_run_its_file_and_a_file_of_ours_are_opened(file: Path) -> None:
    folder = open_encoder(TRAINED)
    assert isinstance(folder, Representation)
    last = sorted(TRAINED.glob("phase?.safetensors"))[-1]
    assert open_encoder(str(last)).identity == folder.identity == open_encoder(f"run:{last}").identity
    made = kcciol.open_encoder(file)
    assert isinstance(made, SavedEncoder)
    assert open_encoder(f"file:{file}").identity == made.identity


def test_what_another_package_brings_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS.ours, "pixels", "tests.plugin.kcciol_example.pixels:pixels")
    assert open_encoder("pixels:1x4x4").width == 16


WRONG: list[tuple[Any, str]] = [
    ("nobody", "There is no encoder and no file 'nobody'; the encoders are: characters, "),
    ("run", "'run' is a kind of encoder, and needs to know which"),
    ("onnx:", "needs to know which"),
    (3, "3 is not the name of a file"),
    ("a\0b", "is not the name of a file"),
]


@pytest.mark.parametrize(("source", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_is_no_encoder_is_one_sentence(source: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        open_encoder(source)


def test_other_mistakes_are_one_sentence(tmp_path: Path, file: Path) -> None:
    with pytest.raises(UserError, match="holds no representation of any phase"):
        open_encoder(tmp_path)
    with pytest.raises(UserError, match="runtime is 'tpu'"):
        open_encoder(file, runtime="tpu")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="cannot be run by onnxruntime"):
        open_encoder(TRAINED, runtime="onnx")
    (tmp_path / "text.safetensors").write_text("no tensors")
    with pytest.raises(UserError, match="is not a saved encoder"):
        open_encoder(tmp_path / "text.safetensors")
    with pytest.raises(UserError, match="The device 'nowhere' cannot be used"):
        open_encoder(file, device="nowhere")


def test_cards_are_read_without_importing_and_are_true() -> None:
    complete = [name for name in ENCODERS if card_of(name) is not None]
    assert {"characters", "characters-small", "photos"} <= set(complete)
    for name in complete:
        card: EncoderCard = ENCODERS[name].card  # type: ignore[attr-defined]
        assert card_of(name) == card
        assert card.what
        assert card.trained_on
        assert card.licence
    assert card_of("run") is None


def test_the_list_is_there_within_a_second_without_torch() -> None:
    code = "import sys; from kcciol import cli; cli.main(['encoders']); sys.exit('torch' in sys.modules)"
    start = time.perf_counter()
    environment = {**os.environ, "COLUMNS": "200"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    assert time.perf_counter() - start < 5  # of a busy machine
    for said in ("photos ", "kcciol[photos]", "Apache-2.0", "ImageNet", "A representation from a file", "onnx: "):
        assert said in found.stdout


def test_what_is_odd_about_images_is_said(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.full((50, 60), 9, np.uint8)).save(tmp_path / "empty.png")
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "good.png")
    assert main(["encoders", str(file), str(tmp_path / "empty.png"), str(tmp_path / "good.png")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "5 features an image, identity " in said[0]
    assert "empty.png: The picture is empty" in said[1]
    assert said[2].endswith("good.png: Nothing is odd about it.")
    assert main(["encoders", str(TRAINED)]) == 0
    assert main(["encoders", str(TRAINED), "a.png"]) == 2
    assert main(["encoders", str(file), "not-there.png"]) == 2
    assert main(["encoders", "nobody"]) == 2
    assert "There is no encoder and no file 'nobody'" in capsys.readouterr().err


def test_speeds_are_those_that_were_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kcciol.encoders import speed

    monkeypatch.setattr(speed, "MEASURED", tmp_path / "speed.json")
    assert milliseconds("photos") == "-"
    (tmp_path / "speed.json").write_text('{"photos": {"torch": {"1": 18200.0}, "onnx": {"1": 4000.0}}}')
    assert milliseconds("photos") == "18.2 / 4.0"
    assert milliseconds("nobody") == "-"


def test_networks_that_a_file_can_hold_are_made_of_one_config() -> None:
    for name, network in saved_encoders.NETWORKS.items():
        assert network is saved_encoders.NETWORKS.find(name)
        assert issubclass(network, torch.nn.Module)


def test_half_an_encoder_is_called_one(tmp_path: Path) -> None:
    whole = (WEIGHTS / "characters-small.safetensors").read_bytes()
    path = tmp_path / "half.safetensors"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"^The encoder .*half\.safetensors is damaged or truncated"):
        open_encoder(path)
