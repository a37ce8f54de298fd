"""Teach a model new classes online, one example at a time, from few examples, with nothing that has to be stored.

config = kcciol.preset("quickstart")
data = kcciol.load_data(config.data)
kcciol.train(config, data.base, "runs/mine")
encoder = kcciol.load("runs/mine/phase3.safetensors")
result = kcciol.evaluate(encoder.split_features(data.novel, 15, 5), encoder.W, config.evaluation)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kcciol.config import preset
    from kcciol.data import load as load_data
    from kcciol.encoders import open_encoder
    from kcciol.encoders.run import load
    from kcciol.errors import UserError
    from kcciol.evaluation import evaluate
    from kcciol.learner import OnlineLearner
    from kcciol.meta.phases import train
    from kcciol.recipes.config import recipe
    from kcciol.recipes.train import train_encoder

__all__ = [
    "OnlineLearner",
    "UserError",
    "__version__",
    "evaluate",
    "load",
    "load_data",
    "open_encoder",
    "preset",
    "recipe",
    "train",
    "train_encoder",
]

_HOMES = {
    "preset": ("kcciol.config", "preset"),
    "load_data": ("kcciol.data", "load"),
    "evaluate": ("kcciol.evaluation", "evaluate"),
    "train": ("kcciol.meta.phases", "train"),
    "load": ("kcciol.encoders.run", "load"),
    "recipe": ("kcciol.recipes.config", "recipe"),
    "train_encoder": ("kcciol.recipes.train", "train_encoder"),
    "open_encoder": ("kcciol.encoders", "open_encoder"),
    "OnlineLearner": ("kcciol.learner", "OnlineLearner"),
    "UserError": ("kcciol.errors", "UserError"),
}


def __getattr__(name: str) -> Any:
    """The names above, imported when first used: `kcciol --help` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kcciol' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
