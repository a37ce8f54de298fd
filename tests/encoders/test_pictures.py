"""Whatever an image is, it becomes the same picture; what is none is told of in one sentence."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from kcciol.encoders.pictures import picture_of, several_of
from kcciol.errors import UserError

COLOUR = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
GREY = COLOUR[:, :, 0].copy()


def png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_every_form_is_the_same_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(COLOUR))
    first = torch.from_numpy(COLOUR).permute(2, 0, 1)
    forms: list[Any] = [path, str(path), png(COLOUR), bytearray(png(COLOUR)), io.BytesIO(png(COLOUR)), COLOUR, first]
    forms += [Image.fromarray(COLOUR), first.float() / 255, COLOUR / 255, first.numpy(), COLOUR[::-1][::-1]]
    forms += [
        torch.from_numpy(COLOUR),
        (first / 255).requires_grad_(),
        np.dstack([COLOUR, np.full((20, 30), 255, "u1")]),
    ]
    for form in forms:
        assert np.array_equal(picture_of(form), COLOUR)
        assert several_of(form).shape == ()
    with path.open("rb") as file:
        assert np.array_equal(picture_of(file), COLOUR)
    greys: list[Any] = [png(GREY), GREY, GREY[None], GREY[:, :, None], torch.from_numpy(GREY)[None], GREY / 255]
    greys += [torch.from_numpy(GREY).to(torch.float64) / 255]
    for form in greys:
        assert np.array_equal(picture_of(form), GREY)
    assert np.array_equal(picture_of(GREY > 100), np.where(GREY > 100, 255, 0))
    assert picture_of((torch.from_numpy(GREY) / 255).bfloat16()).shape == GREY.shape


def test_transparency_orientation_and_depth() -> None:
    clear = np.zeros((8, 9, 4), np.uint8)
    assert (picture_of(clear) == 255).all()
    assert (picture_of(Image.fromarray(clear)) == 255).all()
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    file = io.BytesIO()
    Image.fromarray(COLOUR).save(file, "JPEG", exif=exif)
    assert picture_of(file.getvalue()).shape == (30, 20, 3)
    deep = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    assert np.array_equal(picture_of(Image.fromarray(deep)), np.arange(256).reshape(16, 16))


@pytest.mark.parametrize(
    ("shape", "several", "each"),
    [
        ((5, 3, 20, 30), (5,), (20, 30, 3)),
        ((5, 20, 30, 3), (5,), (20, 30, 3)),
        ((5, 20, 30, 4), (5,), (20, 30, 3)),
        ((5, 1, 20, 30), (5,), (20, 30)),
        ((2, 5, 3, 20, 30), (2, 5), (20, 30, 3)),
        ((5, 20, 30), (5,), (20, 30)),
        ((3, 20, 30), (), (20, 30, 3)),
        ((1, 20, 30), (), (20, 30)),
        ((20, 30, 1), (), (20, 30)),
        ((20, 30), (), (20, 30)),
        ((0, 3, 20, 30), (0,), ()),
    ],
)
def test_the_rule_of_arrays(shape: tuple[int, ...], several: tuple[int, ...], each: tuple[int, ...]) -> None:
    for images in (np.zeros(shape, np.uint8), torch.zeros(shape)):
        found = several_of(images)
        assert found.shape == several
        pictures = found.read(0, 100)
        assert len(pictures) == int(np.prod(several))
        assert all(picture.shape == each for picture in pictures)


def test_lists_are_several() -> None:
    found = several_of([GREY, png(COLOUR), Image.fromarray(COLOUR)])
    assert found.shape == (3,)
    assert [picture.ndim for picture in found.read(0, 2)] == [2, 3]
    assert [picture.ndim for picture in found.read(2, 2)] == [3]
    assert several_of(iter([GREY])).shape == several_of((GREY,)).shape == (1,)
    assert several_of([]).shape == (0,)


WRONG: list[tuple[Any, str]] = [
    (None, "An image must be a path"),
    ([[0, 1], [1, 0]], "make an array of its numbers"),
    ({"a": 1}, "not a dict"),
    (b"no image", "no image of a format that kcciol reads"),
    ("no such file.png", "There is no file no such file.png"),
    (io.StringIO("text"), "gives a str"),
    (GREY.astype(np.int64), "int64 does not say how bright"),
    (GREY.astype(np.uint16), "uint16 does not say how bright"),
    (GREY.astype(str), "does not say how bright"),
    (GREY * 1.0, "one is 255: scale them"),
    (GREY / 255 - 1, "one is -1: scale them"),
    (np.full((9, 9), np.nan), "one is NaN"),
    (np.full((9, 9), np.inf), "one is inf"),
    (np.zeros((0, 5), np.uint8), "has no pixels"),
    (np.zeros(5, np.uint8), "is no image"),
    (np.zeros((2, 20, 30), np.uint8), "has no axis of channels"),
    (np.zeros((3, 20, 4), np.uint8), "first or last"),
    (np.ma.array(GREY, mask=GREY > 100), "must be whole"),
    (torch.zeros(3, 4, 4).to_sparse(), "must be whole"),
    (torch.zeros(3, 4, 4, device="meta"), "must be whole"),
    (Image.new("F", (5, 5)), "do not say what is white"),
]


@pytest.mark.parametrize(("image", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_is_no_image_is_one_sentence(image: Any, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        picture_of(image)
    assert "\n" not in str(caught.value)


def test_which_of_several_is_wrong_is_said() -> None:
    with pytest.raises(UserError, match=r"The image of index 2 cannot be used: .*no image of a format"):
        several_of([GREY, GREY, b"nothing"]).read(0, 9)
    with pytest.raises(UserError, match="no axis of channels"):
        several_of(np.zeros((5, 2, 20, 30), np.uint8))


@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.sampled_from([None, 1, 3, 4]),
    st.sampled_from(["uint8", "bool", "float32", "float16"]),
    st.integers(0, 2**32 - 1),
)
def test_any_array_is_a_picture_or_a_sentence(
    sides: tuple[int, int], channels: int | None, kind: str, seed: int
) -> None:
    shape = sides if channels is None else (*sides, channels)
    pixels = np.random.default_rng(seed).random(shape)
    image = (
        (pixels * 255).astype(kind) if kind == "uint8" else (pixels > 0.5 if kind == "bool" else pixels.astype(kind))
    )
    try:
        found = picture_of(image)
    except UserError as error:
        assert "channels first or last" in str(error)  # noqa: PT017  (a picture of a few pixels)
        return
    assert found.dtype == np.uint8
    assert found.ndim == 2 or (found.ndim == 3 and found.shape[2] == 3)
