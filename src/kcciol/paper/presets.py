"""The problems whose runs train side by side, and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcciol.config import preset_values
from kcciol.errors import UserError
from kcciol.paper.gan.settings import GenerationConfig
from kcciol.paper.sine.settings import RegressionConfig
from kcciol.serialization import from_dict

PROBLEMS: dict[str, type[RegressionConfig] | type[GenerationConfig]] = {
    "regression": RegressionConfig,
    "generation": GenerationConfig,
}


def member(values: Mapping[str, Any]) -> RegressionConfig | GenerationConfig:
    """The config that a file or a preset with a `problem` says.

    >>> member({"problem": "regression", "seed": 3}).seed
    3
    """
    problem = values.get("problem")
    if not isinstance(problem, str) or problem not in PROBLEMS:
        raise UserError(f"There is no problem {problem!r}; there are: {', '.join(PROBLEMS)}.")
    return from_dict(PROBLEMS[problem], values)


def regression_preset(name: str) -> RegressionConfig:
    """A preset for sine functions."""
    return from_dict(RegressionConfig, preset_values(name))


def generation_preset(name: str) -> GenerationConfig:
    """A preset for digits."""
    return from_dict(GenerationConfig, preset_values(name))
