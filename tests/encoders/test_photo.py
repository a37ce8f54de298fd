"""Photographs become what a network takes; odd ones are told of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from kcciol.encoders.photo import Photo
from kcciol.encoders.pictures import Pixels
from kcciol.encoders.preprocessing import preprocessing_of
from kcciol.errors import UserError

RNG = np.random.default_rng(0)
SHARP: Pixels = np.kron(RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8), np.ones((4, 4, 1), np.uint8))  # 80 x 120


def blurred(radius: float) -> Pixels:
    """Large squares out of focus."""
    large = Image.fromarray(SHARP[:80:8, :120:8]).resize((200, 150), Image.Resampling.NEAREST)
    return np.asarray(large.filter(ImageFilter.GaussianBlur(radius)))


def test_a_picture_of_the_size_is_only_scaled() -> None:
    picture = RNG.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    found = Photo(32)([picture, picture[:, :, 0]])
    assert found.shape == (2, 3, 32, 32)
    assert found.dtype == torch.float32
    assert np.allclose(found[0].permute(1, 2, 0).numpy(), (picture.astype(float) - 127) / 128)
    assert torch.equal(found[1, 0], found[1, 2])
    assert torch.equal(found[1, 0], found[0, 0])
    grey = Photo(32, mean=(10.0,), scale=(2.0,))([picture])
    assert grey.shape == (1, 1, 32, 32)


def test_it_is_cut_or_squashed() -> None:
    picture = np.zeros((40, 120), np.uint8)
    picture[:, 40:80] = 255  # white in the middle third
    cut, squashed = (Photo(20, fit=fit, mean=(0.0,), scale=(255.0,))([picture]) for fit in ("crop", "squash"))
    assert float(cut.min()) > 0.9  # what is finer than a pixel is taken out over the edge of the square too
    assert 0.3 < float(squashed.mean()) < 0.37
    assert Photo(8)([np.zeros((1, 100_000), np.uint8)]).shape == (1, 3, 8, 8)
    assert Photo(8)([]).shape == (0, 3, 8, 8)


def test_what_is_made_smaller_is_smoothed_first() -> None:
    stripes = np.tile(np.array([0, 255], np.uint8), (128, 64))
    found = Photo(16, mean=(0.0,), scale=(255.0,))([stripes])
    assert bool(((found > 0.45) & (found < 0.55)).all())


@pytest.mark.parametrize(
    ("picture", "says"),
    [
        (SHARP, []),
        (SHARP[:24, :24], []),
        (SHARP[:10, :10], ["tiny, 10 x 10"]),
        (SHARP[:30], ["120 x 30 pixels, and only the square"]),
        (np.full((50, 50), 7, np.uint8), ["empty"]),
        (np.full((50, 50, 3), 255, np.uint8), ["empty"]),
        (blurred(0.1), []),
        (blurred(6), ["blurred"]),
        (np.zeros((1, 1), np.uint8), ["tiny", "empty"]),
    ],
)
def test_what_is_odd_is_told(picture: Pixels, says: list[str]) -> None:
    found = Photo().remarks(picture)
    assert len(found) == len(says), found
    assert all(part in said for part, said in zip(says, found, strict=True))


def test_a_file_keeps_its_settings() -> None:
    photo = Photo(96, mean=(1.0, 2.0, 3.0), fit="squash")
    assert preprocessing_of(photo.settings) == photo
    assert photo.settings["kind"] == "photo"
    wrong: Any
    for wrong in (
        None,
        {},
        {"kind": 3},
        {"kind": "nobody's"},
        {"kind": "photo", "colour": 1},
        {"kind": "photo", "size": 0},
    ):
        with pytest.raises(UserError):
            preprocessing_of(wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"size": 0}, {"size": 10_000}, {"mean": (1.0, 2.0)}, {"scale": (0.0, 1.0, 1.0)}, {"mean": (float("nan"),) * 3}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Photo(**wrong)
