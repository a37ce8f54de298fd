"""Views: what is drawn is a function of its keys; turned classes are exact; plain ones are what encoders see."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kcciol.data.classset import ClassSet
from kcciol.data.ink import coarse
from kcciol.encoders.ink import Ink
from kcciol.random import keyed
from kcciol.recipes.config import Recipe, ViewConfig
from kcciol.recipes.views import KINDS, Views, views_of
from tests.recipes.small import COLOUR, CPU, INK, RECIPES, changed, classes_for, glyphs, patches

STILL = ViewConfig(turns=4, mirrored=True, angle=0, zoom=0, shear=0, shift=0, light=0)
UNMOVED = {
    "ink": replace(INK, view=STILL),
    "colour": replace(changed(COLOUR, loss__turned=0.0), view=replace(STILL, kind="colour")),
}


def views_for(recipe: Recipe) -> Views:
    return views_of(recipe, classes_for(recipe), CPU)


def keys(count: int, seed: int = 0) -> Tensor:
    return keyed(torch.arange(count), seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", range(8))
def test_turned_and_mirrored_classes_are_exact(kind: str, variant: int) -> None:
    views = views_for(UNMOVED[kind])
    index = torch.tensor([0, 5, 9])
    found = views.seen(index, torch.full((3,), variant), keys(3))
    plain = views.plain(index)
    wanted = (plain.flip(3) if variant >= 4 else plain).rot90(variant % 4, (2, 3))
    assert torch.allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("kind", RECIPES)
def test_keys_decide_everything(kind: str) -> None:
    views = views_for(RECIPES[kind])
    x, y = views.draw(keys(20))
    again, labels = views.draw(keys(20))
    assert torch.equal(x, again)
    assert torch.equal(y, labels)
    parts = [views.draw(part) for part in torch.split(keys(20), 7)]
    assert torch.allclose(torch.cat([part for part, _ in parts]), x, atol=1e-5)
    assert torch.equal(torch.cat([part for _, part in parts]), y)
    other, _ = views.draw(keys(20, seed=1))
    assert not torch.allclose(other, x, atol=0.1)


@pytest.mark.parametrize("kind", RECIPES)
def test_every_class_is_drawn_and_each_time_otherwise(kind: str) -> None:
    recipe = RECIPES[kind]
    views = views_for(recipe)
    assert views.labels.tolist() == [c for c, n in enumerate(classes_for(recipe).counts) for _ in range(n)]
    _, y = views.draw(keys(2000))
    assert sorted(set(y.tolist())) == list(range(5 * recipe.view.classes))
    one = views.seen(torch.zeros(30, dtype=torch.int64), torch.zeros(30, dtype=torch.int64), keys(30))
    assert one.std(0).mean() > 0.02
    assert one.isfinite().all()


@pytest.mark.parametrize("kind", RECIPES)
def test_plain_views_are_what_the_encoder_makes_of_the_picture(kind: str) -> None:
    recipe = RECIPES[kind]
    classes = classes_for(recipe)
    images = [image for row, count in zip(classes.images, classes.counts, strict=True) for image in row[:count]]
    pictures = [image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy() for image in images]
    made = KINDS[kind].preprocessing(recipe)(pictures)
    assert torch.allclose(views_for(recipe).plain(torch.arange(len(images))), made, atol=1e-6)


@pytest.mark.parametrize("kind", RECIPES)
def test_grey_images_and_coloured_ones_do_for_both(kind: str) -> None:
    """As its preprocessing takes both."""
    recipe, grey = RECIPES[kind], glyphs(16)
    colour = ClassSet(grey.images.expand(-1, -1, 3, -1, -1), grey.counts, grey.names)
    one, other = (views_of(recipe, classes, CPU).draw(keys(9))[0] for classes in (grey, colour))
    assert one.shape[1] == recipe.net.channels
    assert torch.equal(one, other)


def test_whole_canvases_are_not_cut() -> None:
    whole = changed(UNMOVED["ink"], view__whole=True, view__evened=0.0, net__size=24)
    found = views_for(whole).plain(torch.arange(4))
    assert (found - (1 - glyphs().images[0] / 255)).abs().mean() < 0.05


def test_half_of_the_images_are_flipped() -> None:
    recipe = replace(UNMOVED["colour"], view=replace(STILL, kind="colour", turns=1, mirrored=False, flips=True))
    views, first = views_for(recipe), torch.zeros(200, dtype=torch.int64)
    found, plain = views.seen(first, first, keys(200)), views.plain(first[:1])
    as_it_is = (found - plain).abs().amax((1, 2, 3)) < 1e-3
    mirrored = (found - plain.flip(3)).abs().amax((1, 2, 3)) < 1e-3
    assert (as_it_is | mirrored).all()
    assert 70 < int(mirrored.sum()) < 130


def test_crops_are_whole_pixels() -> None:
    recipe = replace(UNMOVED["colour"], view=replace(STILL, kind="colour", turns=1, mirrored=False, crop=2))
    views, first = views_for(recipe), torch.zeros(100, dtype=torch.int64)
    found, plain = views.seen(first, first, keys(100))[..., 2:-2, 2:-2], views.plain(first[:1])
    moved = torch.stack([plain[0, :, i : i + 12, j : j + 12] for i in range(5) for j in range(5)])
    apart = (found[:, None] - moved).abs().amax((2, 3, 4))
    assert (apart.min(1).values < 1e-3).all()
    assert len(set(apart.argmin(1).tolist())) > 15  # of 25 places


def test_a_share_of_the_images_is_blotted_out() -> None:
    recipe = replace(UNMOVED["colour"], view=replace(STILL, kind="colour", turns=1, mirrored=False, erase=0.3))
    views, first = views_for(recipe), torch.zeros(300, dtype=torch.int64)
    found, plain = views.seen(first, first, keys(300)), views.plain(first[:1])
    other = (found - plain).abs().amax(1) > 1e-3  # (300, 16, 16)
    assert 60 < int(other.flatten(1).any(1).sum()) < 120
    assert (found.amax(1)[other] == 0).all()  # the middle of all greys
    assert other.float().mean((1, 2)).max() < 0.3


def test_light_changes_colours_and_not_shapes() -> None:
    recipe = replace(UNMOVED["colour"], view=replace(STILL, kind="colour", turns=1, mirrored=False, light=0.4))
    views, first = views_for(recipe), torch.zeros(50, dtype=torch.int64)
    found, plain = views.seen(first, first, keys(50)), views.plain(first[:1])
    assert (found.mean((1, 2, 3)) - plain.mean()).abs().max() > 0.3
    likeness = torch.corrcoef(torch.cat([plain, found]).mean(1).flatten(1))[0]
    assert likeness.min() > 0.8


def test_images_of_the_data_are_left_alone() -> None:
    before = patches().images.clone()
    views_for(COLOUR).draw(keys(10))
    assert torch.equal(patches().images, before)


def test_some_are_seen_as_on_a_small_canvas() -> None:
    classes = glyphs(48)
    recipe = replace(INK, data=replace(INK.data, size=48), view=replace(STILL, coarse=0.5))
    views = views_of(recipe, classes, CPU)
    index = torch.arange(12).repeat(10)
    found, plain = views.seen(index, torch.zeros_like(index), keys(120)), views.plain(index)
    small = Ink(recipe.net.size)([coarse(picture.numpy()) for picture in classes.images.flatten(0, 2)[index]])
    as_it_is, reduced = (torch.isclose(found, wanted, atol=1e-4).flatten(1).all(1) for wanted in (plain, small))
    assert (as_it_is | reduced).all()
    assert 30 < int(reduced.sum()) < 90


def test_some_are_drawn_by_a_broad_pen() -> None:
    index = torch.arange(12)
    recipe = replace(INK, view=STILL)
    thin = views_for(recipe).seen(index, torch.zeros_like(index), keys(12))
    bold = views_for(replace(recipe, view=replace(STILL, bold=1.0)))
    wide = bold.seen(index, torch.zeros_like(index), keys(12))
    ratio = wide.sum((1, 2, 3)) / thin.sum((1, 2, 3))
    assert 1.5 < ratio.mean() < 2.5
    assert (wide >= thin - 1e-5).all()
