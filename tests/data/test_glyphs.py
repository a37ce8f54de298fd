from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcciol.config import DataConfig
from kcciol.data import Splits, load
from kcciol.data.glyphs import NOVEL, glyphs
from kcciol.errors import UserError


def make(base: int = 3, novel: int = 2, samples: int = 4, seed: int = 0) -> Splits:
    return load(
        DataConfig(name="glyphs", size=20, base_classes=base, novel_classes=novel, samples=samples, seed=seed),
    )


@settings(max_examples=25, deadline=None)
@given(
    class_id=st.integers(0, 2 * NOVEL),
    sample_id=st.integers(0, 10_000),
    seed=st.integers(-5, 2**64 - 1),
    size=st.integers(8, 40),
)
def test_an_image_is_a_pure_function_with_ink_on_white(class_id: int, sample_id: int, seed: int, size: int) -> None:
    image = glyphs([class_id], [sample_id], size, seed)[0, 0]
    assert image.shape == (size, size)
    assert image.dtype == np.uint8
    assert image.max() == 255
    assert image.min() < 200  # at 8 pixels a thin stroke between two rows is grey
    np.testing.assert_array_equal(image, glyphs([class_id], [sample_id], size, seed)[0, 0])


def test_a_batch_is_what_its_images_are_alone() -> None:
    classes, samples = [5, 0, NOVEL + 3], list(range(30))  # more than one chunk
    batch = glyphs(classes, samples, 28, seed=7)
    assert batch.shape == (3, 30, 28, 28)
    for i, c in enumerate(classes):
        for k in (0, 17, 29):
            np.testing.assert_array_equal(batch[i, k], glyphs([c], [samples[k]], 28, seed=7)[0, 0])


def test_all_images_differ() -> None:
    batch = glyphs(range(60), range(5), 28, seed=0).reshape(300, -1)
    assert len(np.unique(batch, axis=0)) == 300
    other = glyphs(range(60), range(5), 28, seed=1).reshape(300, -1)
    assert (batch != other).any(axis=1).all()


def test_the_drawing_has_not_changed() -> None:
    # Results made with glyphs hang on these very pixels: a change here is a change of the data set.
    digest = hashlib.sha256(glyphs([0, 1, NOVEL], range(4), 28, seed=0).tobytes()).hexdigest()
    assert digest[:16] == "28a14d8b910c88d5"


def class_mean_accuracy(images: npt.NDArray[np.uint8], train: int) -> float:
    """How often an image lies nearest to its own class's mean of raw pixels."""
    classes, samples = images.shape[:2]
    pixels = images.reshape(classes, samples, -1).astype(np.float32) / 255
    means = pixels[:, :train].mean(axis=1)
    distances = ((pixels[:, train:, None] - means) ** 2).sum(axis=-1)
    return float((distances.argmin(axis=-1) == np.arange(classes)[:, None]).mean())


def test_raw_pixels_are_about_as_telling_as_omniglots() -> None:
    # Omniglot, 28 x 28, 50 classes, 15 images to learn from and 5 to test: .53
    images = glyphs(range(200), range(20), 28, seed=0)
    accuracies = [class_mean_accuracy(images[i : i + 50], train=15) for i in range(0, 200, 50)]
    assert 0.40 < np.mean(accuracies) < 0.60
    assert 0.88 < images.mean() / 255 < 0.94  # Omniglot: .92


def test_load_gives_base_and_novel() -> None:
    splits = make()
    assert splits.base.images.shape == (3, 4, 1, 20, 20)
    assert splits.novel.images.shape == (2, 4, 1, 20, 20)
    assert splits.base.counts.tolist() == [4, 4, 4]
    assert splits.novel.names == ("glyph 1000000", "glyph 1000001")


def test_novel_classes_do_not_depend_on_the_number_of_base_classes() -> None:
    assert bool((make(base=3).novel.images == make(base=5).novel.images).all())
    assert bool((make(base=3).base.images == make(base=5).base.images[:3]).all())


@pytest.mark.parametrize("key", ["base", "novel"])
@pytest.mark.parametrize("count", [0, NOVEL + 1])
def test_the_number_of_classes_must_be_given(key: str, count: int) -> None:
    with pytest.raises(UserError, match=f"data.{key}_classes is {count}"):
        make(**{key: count})
