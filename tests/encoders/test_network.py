"""Any network as an encoder: features that are each image's own, whatever threads and training do; clear refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from kcciol.encoders import Encoder
from kcciol.encoders.network import NetworkEncoder
from kcciol.encoders.output import PLAIN, Output
from kcciol.encoders.photo import Photo
from kcciol.errors import UserError
from kcciol.learner import OnlineLearner
from kcciol.random import torch_seeded
from kcciol.testing import check_encoder
from kcciol.testing.case import near
from tests.encoders.networks import IMAGES, SIZE, WIDTH, Odd, encoder, small


def test_it_is_an_encoder() -> None:
    made: Encoder = encoder()
    check_encoder(made, IMAGES)
    assert made.width == WIDTH
    learner = OnlineLearner("ncm", encoder=made)
    learner.learn_one(made.features(IMAGES[0]), "a").learn_one(made.features(IMAGES[1]), "b")
    assert learner.encoder == made.identity
    assert learner.predict_one(made.features(IMAGES[1])) == "b"


def test_one_picture_is_a_row_and_several_are_rows(tmp_path: Path) -> None:
    made = encoder()
    pixels = IMAGES[0].permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(tmp_path / "a.png")
    one = made.features(tmp_path / "a.png")
    assert one.shape == (WIDTH,)
    assert one.dtype == torch.float32
    for form in (IMAGES[0], pixels, Image.fromarray(pixels), str(tmp_path / "a.png"), IMAGES[0] / 255):
        assert torch.equal(made.features(form), one)
    assert made.features([tmp_path / "a.png", pixels, Image.new("L", (9, 30))]).shape == (3, WIDTH)
    assert made.features([]).shape == (0, WIDTH)
    assert made.features(IMAGES[None]).shape == (1, 7, WIDTH)
    assert not one.is_inference()


def test_batches_change_nothing() -> None:
    made = encoder()
    whole = made.features(IMAGES)
    for batch in (1, 2, 3, 100):
        assert near(made.features(IMAGES, batch=batch), whole, 1e-5)
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(UserError, match="batch is"):
            made.features(IMAGES, batch=wrong)  # type: ignore[arg-type]


def test_large_images_go_one_by_one_through_a_cpu() -> None:
    made = NetworkEncoder(small(), Photo(224))
    alone = torch.stack([made.features(image) for image in IMAGES[:3]])
    assert torch.equal(made.features(IMAGES[:3]), alone)  # in the same bits


def test_threads_get_the_same_bits_as_one() -> None:
    made = encoder()
    alone = [made.features(image) for image in IMAGES]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(made.features, [IMAGES[i % 7] for i in range(200)]))
    assert all(torch.equal(one, alone[i % 7]) for i, one in enumerate(found))


def test_training_the_network_elsewhere_changes_nothing() -> None:
    network = small()
    made = NetworkEncoder(network.train(), Photo(SIZE))
    before, identity = made.features(IMAGES), made.identity
    assert network.training
    network(torch.randn(4, 3, SIZE, SIZE)).sum().backward()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    assert torch.equal(made.features(IMAGES), before)
    assert made.identity == identity
    assert not before.requires_grad


def test_the_identity_is_of_all_that_decides_the_features() -> None:
    made = encoder()
    assert made.identity == encoder().identity
    network = small()
    moved = small()
    moved.state_dict()["1.running_mean"].add_(1e-6)
    others = [
        NetworkEncoder(network, Photo(SIZE)),
        NetworkEncoder(small(1), Photo(SIZE)),
        NetworkEncoder(moved, Photo(SIZE)),
        NetworkEncoder(network, Photo(SIZE, mean=(1.0, 2.0, 3.0))),
        NetworkEncoder(network, Photo(SIZE, fit="squash")),
        NetworkEncoder(network, Photo(SIZE), Output(power=0.5)),
        NetworkEncoder(network, Photo(SIZE), replace(PLAIN, mean=torch.ones(WIDTH))),
        made,
    ]
    assert len({one.identity for one in others}) == len(others)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("maps", r"gives \(1, 3, 16, 16\) of torch.float32 for 1 images, .* put a pooling"),
        ("fewer", "a row of numbers for each image"),
        ("tuple", "gives a tuple, but features must be one tensor"),
        ("whole numbers", "of torch.int64 for 1 images"),
        ("nan", "gives NaN or infinite numbers"),
        ("infinite", "gives NaN or infinite numbers"),
    ],
)
def test_a_network_that_gives_no_features_is_refused(what: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        NetworkEncoder(Odd(what), Photo(SIZE))


def test_other_mistakes_are_one_sentence() -> None:
    with pytest.raises(UserError, match="gives 6 numbers for an image, and gave 5 before"):
        NetworkEncoder(Odd("wider"), Photo(SIZE)).features(IMAGES)
    with pytest.raises(UserError, match=r"Linear cannot take images \(3, 16, 16\) \(RuntimeError"):
        NetworkEncoder(nn.Linear(5, 5), Photo(SIZE))
    with pytest.raises(UserError, match="cannot be used"):
        NetworkEncoder("no network", Photo(SIZE))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="its output is made for 5"):
        NetworkEncoder(small(), Photo(SIZE), Output(torch.zeros(5)))
    wrong: Any
    for wrong in (b"no image", None, [IMAGES[0], "nothing.png"], np.zeros((4, 4))[0]):
        with pytest.raises(UserError):
            encoder().features(wrong)


def test_a_network_that_views_its_maps_is_taken() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            maps: torch.Tensor = self.conv(x)
            return maps.view(len(x), -1)

    with torch_seeded(0):
        network = Views()
    made = NetworkEncoder(network, Photo(5))
    inputs = Photo(5)([IMAGES[0].permute(1, 2, 0).numpy()])
    assert near(made.features(IMAGES[0]), PLAIN(network(inputs))[0].detach(), 1e-5)


def test_remarks_come_from_the_preprocessing() -> None:
    made = encoder()
    assert made.remarks(IMAGES[0]) == ("The picture is tiny, 24 x 20 pixels: use one of 24 or more a side.",)
    assert len(made.remarks(np.zeros((9, 9), np.uint8))) == 2
