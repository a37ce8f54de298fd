"""What a data set says of itself is so."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from torch import Tensor

from kcciol.cli import main
from kcciol.config import preset
from kcciol.data import DATASETS, load
from kcciol.meta.methods import with_method
from kcciol.paper.bench.step import images_of


def border(images: Tensor) -> float:
    """The mean brightness of the outermost pixels."""
    inner = images[..., 1:-1, 1:-1]
    whole, inside = images.double().sum(), inner.double().sum()
    return float((whole - inside) / (images.numel() - inner.numel()))


@pytest.mark.parametrize(
    "name",
    [
        "glyphs",
        *(pytest.param(n, marks=pytest.mark.real_data) for n in ("omniglot", "mini-imagenet", "cifar100", "mnist")),
    ],
)
def test_what_it_says_of_itself(name: str) -> None:
    said = DATASETS[name]
    config = replace(said.defaults, root=os.environ.get("KCCIOL_DATA", ""))
    if said.base is not None:
        config = replace(config, base_classes=0)
    found = load(config)
    assert found.base.image_shape[0] == said.channels
    assert said.base in (None, len(found.base))
    assert said.novel in (None, len(found.novel))
    assert said.images in (None, min(int(part.counts.min()) for part in (found.base, found.novel)))
    some = found.novel.images[:, : int(found.novel.counts.min())]
    if said.polarity != "any":
        assert (border(some) > 200) == (said.polarity == "dark on light")
        assert (border(some) < 20) == (said.polarity == "light on dark")


@pytest.mark.parametrize(
    ("name", "batch", "epoch", "sparsity"),
    [
        ("omniglot-paper", 256, 76, 0.1),  # 963 classes of 20
        ("mini-imagenet", 128, 300, 0.3),  # 64 classes of 600
        ("cifar100", 256, 165, 0.1),  # 70 classes of 600
        ("quickstart", 64, 71, 0.1),  # 300 classes of 15
    ],
)
def test_supervised_training_has_the_sizes_of_the_data_set(name: str, batch: int, epoch: int, sparsity: float) -> None:
    config = with_method(preset(name), "srnn")
    assert config.trajectory.remember == batch
    assert (config.phase1.steps, config.phase2.steps) == (20 * epoch, 10 * epoch)
    assert config.meta.sparsity == sparsity


def test_all_base_classes_are_as_many_as_the_data_set_has() -> None:
    """They were taken for Omniglot's 963 whatever the data set."""
    config = preset("cifar100")
    every = replace(config, data=replace(config.data, base_classes=0))
    assert with_method(every, "pretrained").phase1 == with_method(config, "pretrained").phase1


@pytest.mark.parametrize(("name", "channels"), [("cifar100", 3), ("omniglot", 1)])
def test_timings_draw_as_many_channels(name: str, channels: int) -> None:
    config = preset(name)
    assert images_of(replace(config, data=replace(config.data, base_classes=2))).image_shape[0] == channels


@pytest.mark.parametrize("words", [["data", "--help"], ["train", "quickstart", "--help"]])
def test_help_names_them(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert "omniglot, mini-imagenet, cifar100, mnist, glyphs, folder" in " ".join(capsys.readouterr().out.split())


def test_a_preset_of_a_data_set_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "quickstart", "--data.name", "glphs"]) == 2
    assert "There is no data set 'glphs'; there are: omniglot, " in capsys.readouterr().err
