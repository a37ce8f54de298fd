"""Encoders trained from the command line, on drawn characters and on pictures of one's own."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import kcciol
from kcciol.cli import main
from kcciol.encoders.network import PictureEncoder
from kcciol.serialization import to_toml
from tests.recipes.small import COLOUR, INK

NETWORK = "--net.stem 4 --net.widths 4 6 --net.strides 1 2"
TINY = f"{NETWORK} --rate.steps 6 --rate.batch 8 --engine.device cpu --engine.log-every 3 --quiet".split()
DRAWN = "--data.name glyphs --data.size 24 --data.base-classes 5 --data.novel-classes 3"
GLYPHS = [*f"{DRAWN} --net.size 16".split(), *TINY]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KCCIOL_DATA", raising=False)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    return found.out + found.err


def test_from_a_preset_to_features(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "characters-small", *GLYPHS, "--seed", "3"]) == 0
    run = Path("runs/characters-small-seed3")
    assert f"kcciol.open_encoder('{run}/encoder.safetensors') makes features with it" in said(capsys)
    identity = kcciol.open_encoder(run).identity
    (run / "encoder.safetensors").unlink()
    assert main(["train", str(run), "--resume", "--quiet"]) == 0
    assert kcciol.open_encoder(run).identity == identity
    said(capsys)
    assert main(["train", str(run), "--quiet"]) == 2
    assert "There is a run in runs/characters-small-seed3 already" in said(capsys)
    assert main(["train", str(run), "--resume", "--rate.rate", "0.5"]) == 2
    assert "was started with --rate.rate = 0.002, now it is 0.5" in said(capsys)
    assert main(["evaluate", str(run)]) == 2
    assert "is the run of an encoder's recipe" in said(capsys)
    assert main(["evaluate", str(run / "encoder.safetensors")]) == 2
    assert "but a saved encoder: kcciol.open_encoder opens it." in said(capsys)
    assert main(["train", "quickstart", "--start", str(run / "encoder.safetensors"), "--out", "x"]) == 2
    assert "but a saved encoder" in said(capsys)
    assert main(["encoders", str(run)]) == 0
    assert "64 features an image" in said(capsys)


def test_a_file_of_ones_own_is_a_recipe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.toml").write_text(to_toml(INK))
    assert main(["train", "mine.toml", "--rate.steps", "2"]) == 0
    assert "training: 2 steps, loss" in said(capsys)
    assert Path("runs/mine-seed0/encoder.safetensors").exists()


def pictures(root: Path) -> None:
    """Three classes of a novel and five of a base, drawn grey, and one of them in colour."""
    numbers = np.random.default_rng(0)
    for split, count in (("base", 5), ("novel", 3)):
        for number in range(count):
            folder = root / split / f"{split}{number}"
            folder.mkdir(parents=True)
            for sample in range(3):
                picture = np.full((20, 30, 3), 250, np.uint8)
                picture[4:16, 5 + 3 * number : 8 + 3 * number] = numbers.integers(0, 90, 3)
                picture[number + 5 : number + 8, 4 : 20 + sample] = 10
                Image.fromarray(picture).save(folder / f"{sample}.png")


@pytest.mark.parametrize("name", ["characters", "small-images"])
def test_pictures_of_ones_own(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures(here / "mine")
    size = ["--data.size", "32", "--net.size", "32"]
    words = ["--data.name", "folder", "--data.root", "mine", "--data.base-classes", "0", *size, *TINY, "--out", "run"]
    assert main(["train", name, *words]) == 0, said(capsys)
    encoder = kcciol.open_encoder("./run")
    assert isinstance(encoder, PictureEncoder)
    files = [str(path) for path in sorted(Path("mine/novel").glob("*/*.png"))]
    assert encoder.features(files).shape == (9, encoder.width)
    assert main(["train", name, *words[:-1], "mine/run"]) == 2
    assert "lies in the data root" in said(capsys)


def test_the_page_on_training_is_true(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its example in Python, with a smaller recipe, on eight classes of pictures."""
    pictures(here)
    (here / "my-images").mkdir()
    for folder in [*(here / "base").iterdir(), *(here / "novel").iterdir()]:
        folder.rename(here / "my-images" / folder.name)
    page = (Path(__file__).parents[2] / "docs" / "training-encoders.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    monkeypatch.setattr(kcciol, "recipe", lambda name: INK, raising=False)
    exec(example, {})
    assert "of 5 are right" in said(capsys)
    assert main(["train", "runs/mine", "--resume", "--quiet"]) == 0


WRONG = [
    ("characters", "The data root 'data' does not exist: run `kcciol data get omniglot"),
    ("small-images", "The data root 'data' does not exist: run `kcciol data get cifar100"),
    ("characters --start x", "Unrecognized options: --start"),
    ("characters --representation oml", "Unrecognized options: --representation"),
    ("characters --net.widths 4", "--net.widths is (4,), but must be one for each of the 3 --net.strides"),
    ("characters --view.turns 3", "--view.turns is 3, but must be 1, 2 or 4"),
    ("characters --out .", "--out is empty, or this folder itself: name a folder for the run"),
    (f"characters --resume --out nowhere {DRAWN}", "There is no run in nowhere to resume"),
    ("small-images --net.size 40", "--net.size is 40, but must be --data.size, 32"),
]


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[words for words, _ in WRONG])
def test_mistakes_are_one_sentence(words: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *words.split()]) == 2
    (line,) = said(capsys).splitlines()
    assert line.startswith("kcciol: ")
    assert says in line
    assert list(here.iterdir()) == []


def test_torchrun_is_refused(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "characters", *GLYPHS]) == 2
    assert "An encoder trains in one process: call kcciol without torchrun" in said(capsys)


def test_presets_of_encoders_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "presets"]) == 0
    text = " ".join(said(capsys).split())
    assert "characters-small Encoder of characters, smaller" in text
    assert COLOUR.recipe in text


def test_the_help_has_every_setting_and_the_data_sets(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["train", "characters", "--help"])
    assert end.value.code == 0
    text = said(capsys)
    for flag in ("--view.evened", "--loss.margin", "--rate.average", "--output.shrinkage", "--engine.keep", "--resume"):
        assert flag in text
    assert "Data sets: omniglot" in text
