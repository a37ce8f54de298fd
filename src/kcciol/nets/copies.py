"""The encoder's convolutions for copies that each have a theta of their own; autograd differentiates them.

Two ways to the same maps: `grouped` is the definition, one convolution in which each copy is a group of channels;
`by_patches` is a matrix product over 3x3 patches for each copy, which is how a GPU runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch.nn.functional as F
from torch import Tensor


def maps(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    """The output of each convolution, (B, m, channels, h, w), of images x (B, m, c, h, w) scaled to 0..1.

    theta's tensors are (B, ...).
    """
    return (by_patches if x.is_cuda else grouped)(theta, x, strides)


def grouped(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    copies = len(x)
    a = x.transpose(0, 1).flatten(1, 2)  # (m, B c, h, w)
    for layer, stride in enumerate(strides, 1):
        w, b = theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"]
        a = F.relu(F.conv2d(a, w.flatten(0, 1), b.flatten(), stride, groups=copies))
        yield a.view(len(a), copies, -1, *a.shape[2:]).transpose(0, 1)


def by_patches(theta: Mapping[str, Tensor], x: Tensor, strides: tuple[int, ...]) -> Iterator[Tensor]:
    a = x.permute(0, 1, 3, 4, 2)  # channels last
    for layer, stride in enumerate(strides, 1):
        w, b = theta[f"conv{layer}.weight"], theta[f"conv{layer}.bias"]
        views = a.unfold(2, 3, stride).unfold(3, 3, stride)  # (B, m, h', w', c, 3, 3)
        patches = views.permute(0, 1, 2, 3, 5, 6, 4).flatten(4).flatten(1, 3)  # (B, m h' w', 9 c)
        matrix = w.permute(0, 3, 4, 2, 1).flatten(1, 3)  # (B, 9 c, channels)
        a = F.relu(patches.bmm(matrix) + b[:, None]).view(*views.shape[:4], -1)
        yield a.permute(0, 1, 4, 2, 3)
