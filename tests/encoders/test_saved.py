"""An encoder in a file: the same after it, refused where it is not whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kcciol.encoders import open_encoder
from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.output import Output
from kcciol.encoders.photo import Photo
from kcciol.encoders.saved import FORMAT, load, save
from kcciol.errors import UserError
from kcciol.files.tensors import read_tensors, write_tensors
from kcciol.nets.residual import Residual, ResidualConfig
from kcciol.testing import check_encoder
from tests.encoders.networks import IMAGES, small

CONFIG = ResidualConfig(channels=3, size=16, stem=4, widths=(4, 8), strides=(1, 2), features=6)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small encoder."""
    output = Output.fit(torch.randn(4, 9, 6, generator=torch.Generator().manual_seed(0)), 0.3)
    save(tmp_path / "e.safetensors", Residual(CONFIG, 3), Photo(16), output, {"seed": 3})
    return tmp_path / "e.safetensors"


def test_it_is_the_encoder_that_was_saved(file: Path) -> None:
    made = load(str(file))
    check_encoder(made, IMAGES)
    assert made.width == 6
    assert made.training == {"seed": 3}
    assert made.identity == load(str(file)).identity
    assert torch.equal(made.features(IMAGES), open_encoder(file).features(IMAGES))
    halves = {name: t.half().float() for name, t in Residual(CONFIG, 3).state_dict().items() if t.is_floating_point()}
    network = Residual(CONFIG, 5)
    network.load_state_dict(halves, strict=False)
    same = NetworkEncoder(network, Photo(16), made.output)
    assert same.identity == made.identity
    assert torch.equal(same.features(IMAGES), made.features(IMAGES))


def test_a_file_that_is_not_whole_is_refused(file: Path, tmp_path: Path) -> None:
    header, tensors = read_tensors(file, FORMAT)
    network = header["network"]
    broken: list[tuple[dict[str, Any], dict[str, torch.Tensor], str]] = [
        ({k: v for k, v in header.items() if k != "training"}, tensors, "it lacks training"),
        ({**header, "network": 3}, tensors, "which names none"),
        ({**header, "network": {"kind": "nobody's"}}, tensors, "There is no network"),
        ({**header, "network": {**network, "depth": 3}}, tensors, "is not a setting"),
        ({**header, "network": {**network, "features": 7}}, tensors, "is not .* of finite numbers"),
        ({**header, "network": {**network, "widths": [4096] * 9, "strides": [1] * 9}}, tensors, "is missing"),
        ({**header, "preprocessing": {"kind": "photo", "size": -1}}, tensors, "size of a photo"),
        ({**header, "output": {"power": None}}, tensors, "none of ours"),
        (header, {k: v for k, v in tensors.items() if k != "net.conv.weight"}, "'conv.weight' is missing"),
        (header, {**tensors, "net.more": torch.zeros(1)}, "none of its network"),
        (header, {**tensors, "net.conv.weight": tensors["net.conv.weight"] * float("nan")}, "finite numbers"),
        (header, {**tensors, "output.matrix": torch.zeros(3, 3)}, "but its matrix takes 3"),
    ]
    for number, (top, rest, says) in enumerate(broken):
        path = tmp_path / f"{number}.safetensors"
        write_tensors(path, FORMAT, top, rest)
        with pytest.raises(UserError, match=says):
            load(str(path))
    (tmp_path / "other.safetensors").write_bytes(file.read_bytes()[:-5])
    with pytest.raises(UserError, match="damaged or truncated"):
        load(str(tmp_path / "other.safetensors"))


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Sequential cannot be saved"):
        save(tmp_path / "e.safetensors", small(), Photo(16))
    large = Residual(CONFIG)
    with torch.no_grad():
        large.conv.weight[0] = 1e9
    with pytest.raises(UserError, match="too large for half precision"):
        save(tmp_path / "e.safetensors", large, Photo(16))
    assert not list(tmp_path.iterdir())
