"""ONNX: an encoder of ours gives the same by onnxruntime; files of others are taken or refused in one sentence."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kcciol.encoders import open_encoder
from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.onnx import OnnxEncoder, export, load, with_onnx
from kcciol.encoders.output import Output
from kcciol.encoders.photo import Photo
from kcciol.errors import UserError
from kcciol.testing import check_encoder
from tests.encoders.networks import IMAGES, SIZE, Odd, encoder

onnx: Any = pytest.importorskip("onnx", reason="needs pip install 'kcciol[onnx]'")
pytest.importorskip("onnxscript", reason="needs pip install 'kcciol[onnx]'")
pytest.importorskip("onnxruntime", reason="needs pip install 'kcciol[onnx]'")


@pytest.fixture(scope="module")
def made() -> NetworkEncoder:
    return encoder()


@pytest.fixture(scope="module")
def file(made: NetworkEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "e.onnx"
    export(made, path)
    return path


def test_a_file_is_the_same_encoder(made: NetworkEncoder, file: Path) -> None:
    found = open_encoder(file)
    check_encoder(found, IMAGES)
    assert isinstance(found, OnnxEncoder)
    assert found.identity == made.identity
    assert found.width == made.width
    assert found.preprocessing == made.preprocessing
    assert float((found.features(IMAGES) - made.features(IMAGES)).abs().max()) < 1e-4
    assert found.remarks(IMAGES[0]) == made.remarks(IMAGES[0])
    for batch in (1, 2, 5):
        assert float((found.features(IMAGES, batch) - made.features(IMAGES)).abs().max()) < 1e-4
    assert found.features([]).shape == (0, made.width)


def test_threads_get_the_same_bits_as_one(file: Path) -> None:
    found = load(file)
    alone = [found.features(image) for image in IMAGES]
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(found.features, [IMAGES[i % 7] for i in range(100)]))
    assert all(torch.equal(row, alone[i % 7]) for i, row in enumerate(rows))


def test_a_changed_file_has_an_identity_of_its_own(made: NetworkEncoder, file: Path, tmp_path: Path) -> None:
    model = onnx.load(file)
    weight = model.graph.initializer[0]
    values = onnx.numpy_helper.to_array(weight).copy()
    values.flat[0] += 0.01
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, tmp_path / "changed.onnx")
    changed = load(tmp_path / "changed.onnx")
    other = load(file, preprocessing=Photo(SIZE, fit="squash"))
    narrowed = load(file, output=Output(power=0.5))
    assert len({one.identity for one in (made, changed, other, narrowed)}) == 4
    assert load(file, preprocessing=Photo(SIZE)).identity == made.identity


def graph(path: Path, module: nn.Module) -> Path:
    """A file of somebody else's."""
    torch.onnx.export(module.eval(), (torch.zeros(1, 3, SIZE, SIZE),), path, verbose=False, dynamo=True)
    return path


def test_a_network_of_others_needs_its_preprocessing(tmp_path: Path) -> None:
    path = graph(tmp_path / "n.onnx", nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    with pytest.raises(UserError, match=r"does not say how pictures are prepared .* give the preprocessing"):
        open_encoder(path)
    found = load(path, preprocessing=Photo(SIZE))  # its graph takes one image at a time
    check_encoder(found, IMAGES)
    assert found.features(IMAGES).shape == (7, 5)
    assert torch.allclose(found.features(IMAGES).norm(dim=1), torch.ones(7))
    with pytest.raises(UserError, match=r"takes images \(3, 16, 16\) .* but the preprocessing makes \(3, 20, 20\)"):
        load(path, preprocessing=Photo(20))
    (weights,) = tmp_path.glob("*.data")
    weights.unlink()
    with pytest.raises(UserError, match=r"lacks weights .* beside it"):
        load(path, preprocessing=Photo(SIZE))
    with pytest.raises(UserError, match=r"gives \(1, 3, 16, 16\)"):
        load(graph(tmp_path / "maps.onnx", nn.ReLU()), preprocessing=Photo(SIZE))


def model(inputs: dict[str, list[Any]], outputs: int = 1, kind: int = 1) -> bytes:
    """A graph that copies its first input, flat."""
    first = next(iter(inputs))
    names = [f"out{i}" for i in range(outputs)]
    nodes = [onnx.helper.make_node("Flatten", [first], [name]) for name in names]
    given = [onnx.helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    made = [onnx.helper.make_tensor_value_info(name, kind, ["n", "d"]) for name in names]
    whole = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", given, made), opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10
    )
    found: bytes = whole.SerializeToString()
    return found


SHAPE = ["n", 3, SIZE, SIZE]
WRONG: list[tuple[Any, str]] = [
    (lambda: model({"a": SHAPE, "b": ["n", 2]}), r"has 2 inputs \(a, b\), but an encoder has one"),
    (lambda: model({"a": SHAPE}, outputs=2), r"has 2 outputs \(out0, out1\)"),
    (lambda: model({"a": ["n", 3]}), r"tensor\(float\) of 2 axes"),
    (lambda: model({"a": SHAPE}, kind=10), r"takes a tensor\(float16\)"),
    (lambda: model({"a": [8, 3, SIZE, SIZE]}), "takes 8 images at a time"),
    (lambda: model({"a": ["n", 1, SIZE, SIZE]}), r"takes images \(1, 16, 16\)"),
    (lambda: b"no model at all", "is not an ONNX file"),
    (lambda: b"", "is not an ONNX file"),
]


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_file_that_is_no_encoder_is_one_sentence(make: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "n.onnx"
    path.write_bytes(make())
    with pytest.raises(UserError, match=says) as caught:
        load(path, preprocessing=Photo(SIZE))
    assert "\n" not in str(caught.value)


def test_damaged_files_are_one_sentence(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for number, data in enumerate((whole[:-100], whole[: len(whole) // 2])):
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(data)
        with pytest.raises(UserError):
            load(path, preprocessing=Photo(SIZE))
    for text in ("3", "{", '{"identity": 3}', "[" * 50):
        changed = onnx.load(file)
        changed.metadata_props[0].value = text
        (tmp_path / "m.onnx").write_bytes(changed.SerializeToString())
        with pytest.raises(UserError, match="is damaged"):
            load(tmp_path / "m.onnx")


def test_what_cannot_be_exported_is_one_sentence(made: NetworkEncoder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ends in \.onnx"):
        export(made, tmp_path / "a.txt")
    with pytest.raises(UserError, match="Only a NetworkEncoder"):
        export(with_onnx(made), tmp_path / "a.onnx")  # type: ignore[arg-type]

    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1) if float(x.sum()) > 0 else x.flatten(1) * 2

    with pytest.raises(UserError, match="Branching cannot be exported to ONNX"):
        export(NetworkEncoder(Branching(), Photo(4)), tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="run on the CPU"):
        load(tmp_path / "a.onnx", "cuda")


def test_an_absent_extra_is_named(made: NetworkEncoder, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnx", "onnxruntime"):
        with monkeypatch.context() as gone:
            gone.setitem(sys.modules, package, None)
            with pytest.raises(UserError, match=rf"need the package {package}: run `pip install 'kcciol\[onnx\]'`"):
                load(file)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"need the package onnxscript"):
        with_onnx(made)


def test_a_network_that_gives_nothing_finite(tmp_path: Path) -> None:
    path = graph(tmp_path / "nan.onnx", Odd("nan"))
    with pytest.raises(UserError, match="NaN or infinite"):
        load(path, preprocessing=Photo(SIZE))
