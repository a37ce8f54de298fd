"""A representation is an encoder: its width, and an identity that changes when its features would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kcciol.data import load
from kcciol.encoders import Encoder
from kcciol.encoders.run import Representation
from kcciol.errors import UserError
from kcciol.nets.classification import Classification
from tests.learners.battery import tiny


def test_the_identity_is_of_what_decides_the_features() -> None:
    config = tiny(base=6, held_out=0, novel=4, samples=4)
    data = load(config.data)
    untrained = Representation.untrained(config, data.base)
    encoder: Encoder = untrained
    assert encoder.features(data.novel.images[:, :2]).shape == (4, 2, encoder.width)
    assert encoder.identity == Representation.untrained(config, data.base).identity

    again = Representation.untrained(config, data.base)
    again.W["weight"].add_(1)  # W is no part of the features
    more = Representation.untrained(replace(config, net=replace(config.net, outputs=50)), data.base)
    assert again.identity == encoder.identity
    for key, tensor in more.problem.theta(more.Theta).items():
        tensor.copy_(untrained.problem.theta(untrained.Theta)[key])
    assert more.identity == encoder.identity

    moved = Representation.untrained(config, data.base)
    moved.problem.theta(moved.Theta)["conv1.bias"][0] += 1e-6
    other = Representation.untrained(replace(config, seed=config.seed + 1), data.base)
    strides = replace(config, net=replace(config.net, strides=(2, 1)))
    stepped = Representation.untrained(strides, data.base)
    for key, tensor in stepped.problem.theta(stepped.Theta).items():
        tensor.copy_(untrained.problem.theta(untrained.Theta)[key])
    wider = Representation(config, Classification(config.net, (1, 28, 29), 6), untrained.Theta, data.base.names)
    found = {r.identity for r in (untrained, moved, other, stepped, wider)}
    assert len(found) == 5
    assert torch.equal(again.features(data.novel.images), untrained.features(data.novel.images))


def test_arrays_of_any_layout_are_images_and_others_are_refused() -> None:
    config = tiny(base=6, held_out=0, novel=4, samples=4)
    data = load(config.data)
    encoder = Representation.untrained(config, data.base)
    images = data.novel.images[:, 0].numpy()
    mirrored = torch.from_numpy(np.ascontiguousarray(images[..., ::-1]))
    assert torch.equal(encoder.features(images[..., ::-1]), encoder.features(mirrored))
    frozen = images.copy()
    frozen.flags.writeable = False
    assert torch.equal(encoder.features(frozen), encoder.features(images))
    others: list[Any] = [images.astype(str), images.astype(np.uint16), images.astype(object), images / 255]
    for wrong in others:
        with pytest.raises(UserError, match="must be bytes from 0 to 255"):
            encoder.features(wrong)
    pixels = torch.from_numpy(images)
    masked = np.ma.array(images, mask=images > 200)
    others = [pixels.to_sparse(), pixels[0, 0].to_sparse_csr(), torch.empty_like(pixels, device="meta"), masked]
    for wrong in others:
        with pytest.raises(UserError, match="must be whole"):
            encoder.features(wrong)


def test_how_many_examples_may_be_a_number_of_numpy() -> None:
    config = tiny(base=6, held_out=0, novel=4, samples=4)
    data = load(config.data)
    encoder = Representation.untrained(config, data.base)
    counts: Any = np.int64(2), np.int32(1)
    one, other = encoder.split_features(data.novel, 2, 1), encoder.split_features(data.novel, *counts)
    assert torch.equal(one.train, other.train)
    wrong: Any
    for wrong in (0, True, 1.0, "1"):
        with pytest.raises(UserError, match="There must be 1 or more images"):
            encoder.split_features(data.novel, wrong, 1)
