"""EfficientNet-Lite0 (Tan and Le 2019; "lite": ReLU6, and no squeeze-and-excitation), as a network for features.

Its weights, trained on ImageNet-1k, come from elsewhere (`kcciol.encoders.photos`); here is what they mean.
After each of its convolutions the original normalises by means and variances that do not change any more. That is a
factor and an offset for each channel, so `folded` puts them into the convolution's weight and bias: the same numbers,
and a third less work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kcciol.errors import UserError, quoted

STEM, WIDTH, CLASSES = 32, 1280, 1000
EPSILON = 1e-3  # of the normalisation
TEMPERATURE = 2.0  # of the probabilities


@dataclass(frozen=True)
class Stage:
    """Blocks of one width; the first of them takes the stage's stride."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class SameConvolution(nn.Conv2d):
    """A convolution that gives ceil(side / stride) places. As in TensorFlow, where the weights are from, an odd number
    of zeros has the larger half below and to the right."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        down, right = (max(0, (-(-side // stride) - 1) * stride + kernel - side) for side in x.shape[-2:])
        if down == right and down % 2 == 0:
            return F.conv2d(x, self.weight, self.bias, self.stride, down // 2, groups=self.groups)
        return super().forward(F.pad(x, (right // 2, right - right // 2, down // 2, down - down // 2)))


class InvertedResidual(nn.Module):
    """Wider, each channel by itself, narrower again; added to its input where that has the same shape."""

    def __init__(self, inputs: int, stage: Stage, stride: int) -> None:
        super().__init__()
        hidden = inputs * stage.expansion
        self.expand = SameConvolution(inputs, hidden) if stage.expansion > 1 else None
        self.depthwise = SameConvolution(hidden, hidden, stage.kernel, stride, groups=hidden)
        self.project = SameConvolution(hidden, stage.channels)
        self.adds = stride == 1 and inputs == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        hidden = x if self.expand is None else F.relu6(self.expand(x))
        found: Tensor = self.project(F.relu6(self.depthwise(hidden)))
        return x + found if self.adds else found


class EfficientNetLite0(nn.Module):
    """Images (n, 3, h, w), from -1 to 1 -> (n, 2280), none of them negative: the mean over places of the last map, and
    the probabilities of ImageNet's 1,000 classes, at a temperature.

    The probabilities say what a thing is like, which helps where there is but one example of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = SameConvolution(3, STEM, 3, 2)
        blocks, channels = [], STEM
        for stage in STAGES:
            for number in range(stage.blocks):
                blocks.append(InvertedResidual(channels, stage, 1 if number else stage.stride))
                channels = stage.channels
        self.blocks = nn.Sequential(*blocks)
        self.head = SameConvolution(channels, WIDTH)
        self.classes = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        features = F.relu6(self.head(self.blocks(F.relu6(self.stem(images))))).mean((2, 3))
        return torch.cat([features, F.softmax(self.classes(features) / TEMPERATURE, 1)], 1)


def _names(network: EfficientNetLite0) -> Iterator[tuple[str, str, str]]:
    """Each convolution of ours, its name in the published weights, and that of its normalisation."""
    yield "stem", "_conv_stem", "_bn0"
    for number, block in enumerate(network.blocks):
        ours, theirs = f"blocks.{number}", f"_blocks.{number}"
        assert isinstance(block, InvertedResidual)
        if block.expand is not None:
            yield f"{ours}.expand", f"{theirs}._expand_conv", f"{theirs}._bn0"
        yield f"{ours}.depthwise", f"{theirs}._depthwise_conv", f"{theirs}._bn1"
        yield f"{ours}.project", f"{theirs}._project_conv", f"{theirs}._bn2"
    yield "head", "_conv_head", "_bn1"


def from_published(published: Mapping[str, Tensor]) -> EfficientNetLite0:
    """The network with the published weights: every tensor of them is used, and none is missing."""
    network = EfficientNetLite0()
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    left, state = dict(published), dict[str, Tensor]()
    for ours, convolution, normal in _names(network):
        taken = [_taken(left, f"{convolution}.weight", shapes[f"{ours}.weight"])]
        taken += [
            _taken(left, f"{normal}.{part}", shapes[f"{ours}.bias"])
            for part in ("weight", "bias", "running_mean", "running_var")
        ]
        left.pop(f"{normal}.num_batches_tracked", None)
        state[f"{ours}.weight"], state[f"{ours}.bias"] = folded(*taken)
    for part in ("weight", "bias"):
        state[f"classes.{part}"] = _taken(left, f"_fc.{part}", shapes[f"classes.{part}"]).float()
    if odd := sorted(left):
        raise UserError(f"The weights have a tensor {quoted(odd[0])}, which EfficientNet-Lite0 has not: use its own.")
    network.load_state_dict(state)
    return network.eval().requires_grad_(False)


def _taken(left: dict[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    """The tensor of this name, when it is as it must be."""
    found: object = left.pop(name, None)
    if not isinstance(found, Tensor):
        raise UserError(f"The weights have no tensor {name}: use those of EfficientNet-Lite0.")
    if found.shape != shape or not found.is_floating_point() or not bool(found.isfinite().all()):
        raise UserError(
            f"The tensor {name} of the weights must be {tuple(shape)} of finite numbers, and is not: use those of "
            "EfficientNet-Lite0."
        )
    return found.double()


def folded(weight: Tensor, scale: Tensor, offset: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution that gives scale * (weight * x - mean) / sqrt(variance + EPSILON) + offset,
    float32."""
    factor = scale / (variance + EPSILON).sqrt()
    return (weight * factor[:, None, None, None]).float(), (offset - mean * factor).float()
