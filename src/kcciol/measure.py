"""From a representation and its data to a result that can be kept: features, Algorithm 4, the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from kcciol.config import EvaluationConfig
from kcciol.data import load as load_data
from kcciol.data.classset import Splits
from kcciol.engine.execute import pick_device, set_precision
from kcciol.engine.record import record
from kcciol.errors import UserError
from kcciol.evaluation import evaluate
from kcciol.representation import Representation
from kcciol.representation import load as load_representation
from kcciol.values import to_dict

Split = Literal["novel", "validation"]


def measure_file(
    path: Path,
    evaluation: EvaluationConfig,
    split: Split = "novel",
    root: str = "",
    device: str = "auto",
    untrained: bool = False,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Evaluate a representation file on the data set it was trained on."""
    where = pick_device(device)
    representation = load_representation(path, where)
    config = representation.config
    data = load_data(dataclasses.replace(config.data, root=root) if root else config.data)
    if untrained:
        representation = Representation.untrained(config, data.base, where)
    result = measure(representation, data, evaluation, split, progress)
    return {"representation": f"{path.parent.name}/{path.name}", "untrained": untrained, **result}


def measure(
    representation: Representation,
    data: Splits,
    evaluation: EvaluationConfig,
    split: Split = "novel",
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Algorithm 4 on novel classes, or on base classes kept out of training; JSON-ready, with the record."""
    classes = data.novel if split == "novel" else data.validation
    if len(classes) == 0:
        raise UserError(f"There are no {split} classes: train with data.{split}_classes above 0.")
    representation.refuse_known(classes, split)
    config = representation.config
    set_precision(dataclasses.replace(config.engine, precision="float32"), representation.Theta.device)
    sizes = evaluation.train_samples, evaluation.test_samples, evaluation.redraw
    known = data.validation if len(data.validation) else data.base
    base = representation.split_features(known, *sizes) if evaluation.rule == "base" else None
    short = base is not None and len(known) < max(evaluation.classes) and known is not data.base
    more = representation.split_features(data.base, *sizes) if short else None
    novel = representation.split_features(classes, *sizes)
    result = evaluate(novel, representation.W, evaluation, base, progress, more)
    return {
        "split": split,
        **result.to_dict(),
        "evaluation": to_dict(evaluation),
        "config": to_dict(config),
        "record": record(),
    }
