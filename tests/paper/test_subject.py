"""What a representation is measured with, and on what."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kcciol.data.classset import ClassSet
from kcciol.errors import UserError
from kcciol.evaluation import evaluate
from kcciol.paper import study as study_module
from kcciol.paper.study import Subject, Workspace
from tests.paper.example import OMNIGLOT


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return Subject(OMNIGLOT, "scratch", 0, Workspace(runs=tmp_path, tiny=True))


def test_algorithm_4_computes_in_whole_float32(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    around: list[str] = []
    seen: list[list[str]] = []

    @contextlib.contextmanager
    def precision(name: str, device: torch.device) -> Iterator[None]:
        around.append(name)
        yield
        around.pop()

    def recorder(*arguments: Any, **more: Any) -> Any:
        seen.append(list(around))
        return evaluate(*arguments, **more)

    monkeypatch.setattr(study_module, "precision", precision)
    monkeypatch.setattr(study_module, "evaluate", recorder)
    subject.algorithm4(subject.evaluations((3, 6), "adam"))
    assert seen == [["float32"], ["float32"]]


def test_images_as_features_are_of_28_by_28_pixels(subject: Subject) -> None:
    images = torch.randint(0, 256, (2, 8, 3, 56, 56), dtype=torch.uint8)
    found = subject._pixels(ClassSet(images, torch.tensor([8, 8]), ("a", "b")))
    assert found.train.shape == (2, 5, 3 * 784)
    assert found.test.shape == (2, 3, 3 * 784)
    corner = images[1, 5, 2, :2, :2].double().mean() / 255  # the first of the last channel: a mean of four
    assert float(found.test[1, 0].view(3, 28, 28)[2, 0, 0]) == pytest.approx(float(corner), abs=1e-6)
    assert subject.pixels.novel.width == 784


def test_classes_that_were_trained_on_are_not_novel(subject: Subject) -> None:
    base = subject.data.base
    subject.data = replace(subject.data, novel=replace(base, names=(base.names[0], *map(str, range(1, len(base))))))
    with pytest.raises(UserError, match="were trained on, so they are not novel classes"):
        subject.features("validation")
