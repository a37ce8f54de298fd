"""A package that is installed beside kcciol: what it brings is listed, trains, is evaluated and passes the checks."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcciol.cli import main
from kcciol.data import load
from kcciol.encoders import ENCODERS
from kcciol.encoders.run import Representation
from kcciol.learner import OnlineLearner
from kcciol.meta.phases import train
from kcciol.testing import check_encoder, check_learner
from tests.learners.battery import tiny

SOURCE = Path(__file__).parent / "plugin"
PROJECT: dict[str, Any] = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
POINTS: dict[str, dict[str, str]] = PROJECT["entry-points"]


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package installed by pip, for the tests of this file only."""
    folder = tmp_path_factory.mktemp("packages")
    install = ["install", "--quiet", "--no-index", "--no-deps", "--target", str(folder / "site"), str(wheel(folder))]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=120)
    before = set(sys.modules)
    sys.path.insert(0, str(folder / "site"))
    yield
    sys.path.remove(str(folder / "site"))
    for name in set(sys.modules) - before:
        if name.startswith("kcciol_example"):
            del sys.modules[name]


def wheel(folder: Path) -> Path:
    """What `pip wheel tests/plugin` makes, without the network that it would ask for hatchling."""
    name, version = PROJECT["name"].replace("-", "_"), PROJECT["version"]
    files = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.glob("*/*.py"))}
    info = f"{name}-{version}.dist-info"
    points = [line for group in POINTS for line in (f"[{group}]", *(f"{k} = {v}" for k, v in POINTS[group].items()))]
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join([*points, ""]),
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path


@pytest.mark.parametrize("kind", ["learners", "encoders", "data"])
def test_what_it_brings_is_listed(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", kind]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for name in POINTS[f"kcciol.{kind}"]:
        assert f"{name} comes from the package {PROJECT['name']}." in captured.out


@pytest.mark.parametrize("name", POINTS["kcciol.learners"])
def test_a_learner_passes_the_checks(name: str) -> None:
    check_learner(name)


@pytest.mark.parametrize("name", POINTS["kcciol.learners"])
def test_a_learner_is_evaluated(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny(base=12, held_out=0, novel=6, samples=8)
    steps = {f"phase{i}": replace(phase, steps=2) for i, phase in enumerate(config.phases, 1)}
    train(replace(config, **steps), load(config.data).base, tmp_path / "run", quiet=True)  # type: ignore[arg-type]
    words = ["--classes", "3", "6", "--trajectories", "2", "--train-samples", "5", "--test-samples", "3"]
    assert main(["evaluate", str(tmp_path / "run"), *words, "--compare", name, "ncm"]) == 0
    assert f"\n{name} " in capsys.readouterr().out


@pytest.mark.parametrize("name", POINTS["kcciol.encoders"])
def test_an_encoder_makes_features_that_are_learned(name: str) -> None:
    data = load(tiny(base=4, held_out=0, novel=4, samples=8).data)
    images = data.novel.images
    encoder = ENCODERS.find(name)("x".join(map(str, data.novel.image_shape)))
    check_encoder(encoder, images)
    features, learner = encoder.features(images), OnlineLearner("ncm", encoder.width)
    for label, examples in enumerate(features):
        learner.learn_many(examples, [label] * len(examples))
    assert learner.predict_one(features[2, 0]) == 2


@pytest.mark.parametrize("name", POINTS["kcciol.data"])
def test_a_data_set_is_trained_on_and_evaluated(name: str, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    sizes = ["--data.name", name, "--data.base-classes", "0", "--data.novel-classes", "0", "--data.size", "16"]
    sizes += ["--net.channels", "4", "--net.strides", "2", "2", "--trajectory.classes", "2", "--engine.device", "cpu"]
    steps = [word for i in (1, 2, 3) for word in (f"--phase{i}.steps", "2")]
    assert main(["train", "quickstart", *sizes, *steps, "--out", run, "--quiet"]) == 0
    words = ["--classes", "3", "--trajectories", "2", "--train-samples", "5", "--test-samples", "3"]
    assert main(["evaluate", run, *words, "--learner", "ncm"]) == 0


def test_a_representation_is_an_encoder_too() -> None:
    config = tiny(base=4, held_out=0, novel=4, samples=4)
    data = load(config.data)
    check_encoder(Representation.untrained(config, data.base), data.novel.images)
