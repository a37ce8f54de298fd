"""Ink is found whatever it is drawn on, and kept in a form that hardly knows how it was drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from kcciol.data import ink
from kcciol.data.ink import BOX, GRID, REACH, STROKE, distances, draw, fields, find_ink, stroke_width

Pixels = NDArray[np.uint8]
SHAPE = ((10, 12), (30, 70), (50, 20), (80, 85))  # a zigzag


def character(side: int = 100, wide: int = 5, points: Sequence[tuple[int, int]] = SHAPE, light: bool = False) -> Pixels:
    """A line through points of a canvas of 100 x 100, drawn four times as large and brought to so many pixels."""
    large = Image.new("L", (4 * side, 4 * side), 255)
    places = [(x * side / 25, y * side / 25) for x, y in points]
    ImageDraw.Draw(large).line(places, 0, 4 * wide, joint="curve")
    found = np.asarray(large.resize((side, side), Image.Resampling.BOX))
    return 255 - found if light else found


def apart(one: Pixels, other: Pixels) -> float:
    """How far the fields of two pictures are from each other on average, in places."""
    first, second = distances(fields([one, other]))
    return float((first - second).abs().mean())


# --- finding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("light", [False, True])
def test_ink_is_found_in_either_polarity(light: bool) -> None:
    found = find_ink(character(light=light))
    assert found.light_on_dark == light
    assert 73 <= found.pixels <= 82  # from row 12 to row 85, and half a stroke at each end
    assert (found.darkness.min(), found.darkness.max()) == (0, 1)
    assert found.darkness[:, 0].max() < 0.5  # a margin of paper
    assert len(found.remarks) == light


@pytest.mark.parametrize("place", [(0, 0), (0, 150), (90, 30), (200, 200)])
def test_ink_is_found_anywhere(place: tuple[int, int]) -> None:
    picture, sheet = character(60, 3), np.full((300, 300), 255, np.uint8)
    sheet[place[0] : place[0] + 60, place[1] : place[1] + 60] = picture
    assert find_ink(sheet).pixels == find_ink(picture).pixels
    assert apart(sheet, picture) < 0.02  # more paper, so its mean grey is another


def test_thin_strokes_on_a_huge_sheet_stay() -> None:
    small, large = character(90, 3), np.full((3000, 2000), 240, np.uint8)
    large[2800:2890, 50:140] = small.clip(0, 240)
    assert find_ink(large).pixels == pytest.approx(find_ink(small).pixels, abs=2)
    assert apart(large, small) < 0.2
    assert apart(character(2000, 100), character(100, 5)) < 0.2  # reduced


NO_INK: dict[str, Pixels] = {
    "white": np.full((40, 50), 255, np.uint8),
    "black": np.zeros((40, 50), np.uint8),
    "a pixel": np.zeros((1, 1), np.uint8),
    "nearly grey": np.tile(np.array([100, 110], np.uint8), (20, 10)),
    "in colour": np.full((9, 9, 3), (200, 30, 30), np.uint8),
}


@pytest.mark.parametrize("name", NO_INK)
def test_what_holds_no_ink_is_said_to_be_empty(name: str) -> None:
    found = find_ink(NO_INK[name])
    assert (found.pixels, found.darkness.shape, found.light_on_dark) == (0, (1, 1), False)
    assert found.remarks == ("There is no ink in this picture: it is empty, or nearly of one colour.",)
    assert draw(fields([NO_INK[name]]), 20).abs().max() == 0


@pytest.mark.parametrize("shape", [(1, 2), (1, 30), (30, 1), (2, 2)])
def test_pictures_of_a_row_or_a_column(shape: tuple[int, int]) -> None:
    picture = np.full(shape, 255, np.uint8)
    picture[0, 0] = 0
    for one in (picture, 255 - picture):
        assert find_ink(one).darkness.size >= 1
        assert fields([one]).shape == (1, GRID, GRID)


def test_what_is_odd_is_said() -> None:
    assert find_ink(character(9, 1)).remarks == ("The ink is only 7 pixels large: draw or photograph it larger.",)
    for side, by in ((100, 3), (100, 8), (400, 12)):
        soft = np.asarray(Image.fromarray(character(side, side // 25)).filter(ImageFilter.GaussianBlur(by)))
        assert find_ink(soft).remarks == ("The strokes are blurred: a sharper picture is recognised better.",)
    assert find_ink(character(24, 1)).remarks == ()  # as sharp as so small a picture can be
    assert find_ink(character(light=True)).remarks[0].startswith("The ink is lighter than the paper")
    assert find_ink(character()).remarks == ()


def test_colours_are_seen_as_greys() -> None:
    grey = character()
    assert torch.equal(fields([np.repeat(grey[:, :, None], 3, 2)]), fields([grey]))
    blue = np.full((*grey.shape, 3), 255, np.uint8)
    blue[..., :2] = grey[..., None]  # blue ink on white
    assert apart(blue, grey) < 0.1


# --- fields -----------------------------------------------------------------------------------------------------------

PLACE = st.integers(5, 95)
LINES = st.lists(st.tuples(PLACE, PLACE), min_size=2, max_size=5).filter(
    lambda points: max(max(axis) - min(axis) for axis in zip(*points, strict=True)) > 40
)
CHANGES: dict[str, Callable[[Pixels, int], Pixels]] = {
    "inverted": lambda picture, n: 255 - picture,
    "paler": lambda picture, n: 255 - (255 - picture) // 2,
    "padded": lambda picture, n: np.pad(picture, ((n, 3 * n), (2 * n, 0)), constant_values=255),
    "moved": lambda picture, n: np.roll(np.pad(picture, n, constant_values=255), (n, -n), (0, 1)),
    "scaled": lambda picture, n: picture.repeat(n, 0).repeat(n, 1),
}


@pytest.mark.parametrize("name", CHANGES)
@given(points=LINES, wide=st.integers(3, 8), n=st.integers(2, 5))
@settings(max_examples=15)
def test_a_field_hardly_knows_how_the_picture_was_made(
    name: str, points: list[tuple[int, int]], wide: int, n: int
) -> None:
    picture = character(80, wide, points)
    assert apart(CHANGES[name](picture, n), picture) < 0.5  # of another character: 2 or more


@pytest.mark.parametrize("wide", [4, 6, 9, 12])
def test_strokes_are_brought_to_one_width(wide: int) -> None:
    picture = character(120, wide)
    own, half, even = (draw(fields([picture], evened=evened), GRID)[:, 0] for evened in (0, 0.5, 1))
    before = wide * BOX / find_ink(picture).pixels  # places
    assert float(stroke_width(own)) == pytest.approx(before, rel=0.2)
    assert float(stroke_width(even)) == pytest.approx(STROKE, rel=0.15)
    assert float(stroke_width(half)) == pytest.approx((before * STROKE) ** 0.5, rel=0.15)


def test_a_whole_canvas_is_not_cut() -> None:
    picture = character(96, 6)
    drawn = draw(fields([picture], whole=True, evened=0), 96)[0, 0]
    assert (drawn - torch.from_numpy(1 - picture / 255)).abs().mean() < 0.02


def test_bytes_hold_a_field() -> None:
    placed = torch.from_numpy(ink.placed(find_ink(character()).darkness))[None]
    exact = ink.signed_distance(placed)
    kept = distances(fields([character()], evened=0))
    assert (kept - exact).abs().max() <= REACH / 127 / 2 + 1e-5
    assert exact.abs().max() == REACH


def test_distances_are_those_to_the_edge() -> None:
    bar = torch.zeros(1, GRID, GRID)
    bar[:, :, 20:30] = 1
    found = ink.signed_distance(bar)[0, 32]
    away = torch.minimum((torch.arange(GRID) + 0.5 - 20).abs(), (torch.arange(GRID) + 0.5 - 30).abs())
    within = (torch.arange(GRID) >= 20) & (torch.arange(GRID) < 30)
    assert torch.allclose(found, torch.where(within, -away, away).clamp(-REACH, REACH))
    assert float(stroke_width(bar)) == pytest.approx(10, rel=0.02)


def test_many_at_once_are_as_one_by_one() -> None:
    pictures = [character(40 + 30 * i, 2 + i, light=i % 2 == 1) for i in range(4)] + [NO_INK["white"]]
    together = fields(pictures)
    assert together.dtype == torch.uint8
    assert torch.equal(together, torch.cat([fields([one]) for one in pictures]))
    assert torch.allclose(draw(together, 24), torch.cat([draw(one[None], 24) for one in together]), atol=1e-6)
    assert fields([]).shape == (0, GRID, GRID)


# --- drawing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 28, 48, 105, 200])
def test_the_same_is_drawn_at_any_size(size: int) -> None:
    kept = fields([character()])
    drawn = draw(kept, size)
    assert drawn.shape == (1, 1, size, size)
    assert 0 <= drawn.min() < drawn.max() <= 1
    assert drawn.mean().item() == pytest.approx(draw(kept, 400).mean().item(), rel=0.03)


def test_strokes_can_be_drawn_thicker() -> None:
    kept = fields([character()]).expand(3, -1, -1)
    drawn = draw(kept, 2 * GRID, thicker=torch.tensor([-1.0, 0.0, 3.0]))
    assert torch.allclose(stroke_width(drawn[:, 0]) / 2, torch.tensor([STROKE - 1, STROKE, STROKE + 3]), rtol=0.15)
    assert torch.equal(drawn[1:2], draw(kept[:1], 2 * GRID))


def test_a_quarter_turn_is_exact() -> None:
    kept = fields([character()])
    turned = draw(kept, 40, torch.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]]))
    assert torch.allclose(turned, draw(kept, 40).rot90(1, (2, 3)), atol=1e-5)
