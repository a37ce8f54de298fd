"""Representations: how theta is learned before the stream begins. Each method is a choice of settings on one trainer.

`REPRESENTATIONS` is the list of them. A method takes a config, of a preset say, and changes what makes the method:
data, net, sizes and rates stay, unless the method has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcciol.config import Config
from kcciol.errors import UserError

if TYPE_CHECKING:
    from kcciol.data import DataSet


@dataclass(frozen=True)
class Method:
    """One way to learn theta."""

    what: str
    paper: str
    change: Callable[[Config], Config]
    marks: Callable[[Config], bool] = lambda config: _is_online(config)
    """Whether a config is one of this method's."""
    trains: bool = True
    """Else theta stays as it was drawn."""


def _is_online(config: Config) -> bool:
    return config.meta.loss == "online" and config.meta.adapts == "W"


def _phases(config: Config) -> int:
    """The last phase that has steps."""
    return max((i for i, phase in enumerate(config.phases, 1) if phase.steps), default=0)


def _one(config: Config) -> bool:
    """Phase 1 only."""
    return _is_online(config) and _phases(config) <= 1


def _kcciol(config: Config) -> Config:
    return config


def _kcciol_o(config: Config) -> Config:
    """All parameters are important."""
    return replace(config, mask=replace(config.mask, delta=1.0))


def _without_l1(config: Config) -> Config:
    return replace(config, phase2=replace(config.phase2, gamma=0.0))


def _without_constraint(config: Config) -> Config:
    return replace(config, phase3=replace(config.phase3, lam=0.0))


def _one_phase(config: Config) -> Config:
    """Phase 1 only."""
    return replace(config, phase2=replace(config.phase2, steps=0), phase3=replace(config.phase3, steps=0))


def _phase1_longer(config: Config) -> Config:
    """Phase 1, and on like it for the steps of the other two. Adam starts anew once, at the end of phase 1, which is
    kcciol's own."""
    more = replace(config.phase1, steps=config.total_steps - config.phase1.steps)
    return replace(config, phase2=more, phase3=replace(config.phase3, steps=0))


def _oml(config: Config) -> Config:
    """W's rows of the trajectory's classes start anew; phase 1 only."""
    reset = config.meta.reset if config.meta.reset != "none" else "draw"
    return replace(_one_phase(config), meta=replace(config.meta, reset=reset))


def _mrcl(config: Config) -> Config:
    """W is never reset; phase 1 only."""
    return replace(_one_phase(config), meta=replace(config.meta, reset="none"))


def _maml_rep(config: Config) -> Config:
    """Few-shot episodes: five classes of five images learned together, five query images each, nothing to remember."""
    trajectory = replace(config.trajectory, classes=5, support=5, query=5, remember=0)
    meta = replace(config.meta, loss="episodes", relabel=True, reset="none", episode_steps=5)
    phase1 = replace(config.phase1, steps=2 * config.phase1.steps)
    return replace(_one_phase(config), trajectory=trajectory, meta=meta, phase1=phase1)


def _anml(config: Config) -> Config:
    """A gate of 112 channels for 256 of the network; the inner loop adapts the network too, first order. Its rates were
    chosen on base classes (benchmarks/omniglot_settings.py): the printed inner rate, 0.1, learns nothing here."""
    gate = max(1, round(config.net.channels * 112 / 256))
    enough = config.data.train_samples == 0 or config.data.train_samples >= 15
    trajectory = replace(config.trajectory, classes=1, support=10, query=5 if enough else 1, remember=64)
    meta = replace(config.meta, order="first", reset="draw", adapts="net")
    return replace(
        _one_phase(config),
        net=replace(config.net, gate=gate),
        trajectory=trajectory,
        meta=meta,
        phase1=replace(config.phase1, alpha=0.0003, beta=1e-3),
        phase3=replace(config.phase3, steps=0, lam=0.0),
    )


def _dataset(config: Config) -> DataSet:
    from kcciol.data import DATASETS  # here, because `kcciol --help` must not wait for numpy

    return DATASETS.find(config.data.name)


def _images(config: Config) -> int:
    """How many images there are to train on; where neither config nor data set knows, as many as Omniglot has."""
    dataset = _dataset(config)
    classes = (config.data.base_classes or dataset.base or 963) - config.data.validation_classes
    return max(classes, 1) * (config.data.train_samples or dataset.images or 20)


def _batch(config: Config) -> int:
    return _dataset(config).batch or (256 if _images(config) > 5000 else 64)


def _epochs(config: Config, epochs: int) -> int:
    """Steps of so many passes over the base images."""
    return epochs * math.ceil(_images(config) / _batch(config))


def _supervised(config: Config, loss: str) -> Config:
    trajectory = replace(config.trajectory, classes=0, remember=_batch(config), count=1)
    sparsity = _dataset(config).sparsity or config.meta.sparsity
    return replace(
        _one_phase(config),
        trajectory=trajectory,
        meta=replace(config.meta, loss=loss, reset="none", sparsity=sparsity),  # type: ignore[arg-type]
        phase1=replace(config.phase1, steps=_epochs(config, 30), beta=1e-4),
    )


def _pretrained(config: Config) -> Config:
    """Cross-entropy over the base classes, Adam 1e-4, 30 epochs."""
    return _supervised(config, "supervised")


def _srnn(config: Config) -> Config:
    """The same with the penalty; Adam starts anew at a tenth of the rate for the last ten epochs."""
    sparse = _supervised(config, "sparse")
    first, second = (replace(sparse.phase1, steps=_epochs(config, n)) for n in (20, 10))
    return replace(sparse, phase1=first, phase2=replace(second, beta=1e-5))


def _scratch(config: Config) -> Config:
    """Nothing is trained."""
    return replace(_one_phase(config), phase1=replace(config.phase1, steps=0))


REPRESENTATIONS: dict[str, Method] = {
    "scratch": Method("a random network", "-", _scratch, lambda c: c.total_steps == 0, trains=False),
    "pretrained": Method(
        "supervised training on the base classes",
        "Javed and White 2019",
        _pretrained,
        lambda c: c.meta.loss == "supervised" and _phases(c) <= 1,
    ),
    "srnn": Method(
        "supervised, with sparse features (Set-KL)",
        "Liu et al. 2019",
        _srnn,
        lambda c: c.meta.loss == "sparse" and _phases(c) <= 2,
    ),
    "maml-rep": Method(
        "few-shot episodes, only W adapts",
        "Javed and White 2019",
        _maml_rep,
        lambda c: c.meta.loss == "episodes" and _phases(c) <= 1,
    ),
    "mrcl": Method(
        "online trajectories, W never reset",
        "Javed and White 2019 (first version)",
        _mrcl,
        lambda c: _one(c) and c.meta.reset == "none",
    ),
    "oml": Method(
        "online trajectories, rows of W start anew",
        "Javed and White 2019",
        _oml,
        lambda c: _one(c) and c.meta.reset != "none",
    ),
    "anml": Method(
        "a gated network, all of it adapts in training",
        "Beaulieu et al. 2020",
        _anml,
        lambda c: c.net.gate > 0 and _phases(c) <= 1,
    ),
    "kcciol": Method("three phases of knowledge consolidation", "Karim et al. 2021", _kcciol),
    "kcciol-o": Method(
        "the same, all parameters constrained",
        "Karim et al. 2021",
        _kcciol_o,
        lambda c: _is_online(c) and c.mask.delta == 1,
    ),
    "phase1": Method(
        "control: phase 1 for the steps of all three",
        "-",
        _phase1_longer,
        lambda c: _is_online(c) and c.phase3.steps == 0 and replace(c.phase2, steps=0) == replace(c.phase1, steps=0),
    ),
    "gamma0": Method(
        "control: no l1 term in phase 2",
        "-",
        _without_l1,
        lambda c: _is_online(c) and c.phase2.gamma == 0,
    ),
    "lambda0": Method(
        "control: no constraint in phase 3",
        "-",
        _without_constraint,
        lambda c: _is_online(c) and c.phase3.lam == 0,
    ),
    "control": Method(
        "neither of the two terms, the same steps",
        "-",
        lambda c: _without_constraint(_without_l1(c)),
        lambda c: _is_online(c) and c.phase2.gamma == c.phase3.lam == 0,
    ),
}


def representation(name: str) -> Method:
    """A method by its name."""
    if name not in REPRESENTATIONS:
        raise UserError(f"There is no representation {name!r}; there are: {', '.join(REPRESENTATIONS)}.")
    return REPRESENTATIONS[name]


def check_label(config: Config) -> None:
    """Refuse a config whose settings are not those of the representation it names."""
    if not representation(config.representation).marks(config):
        raise UserError(
            f"representation is {config.representation!r}, but the settings are not that method's: leave those of its "
            "phases, loss, reset and mask as `kcciol train PRESET --representation NAME` sets them."
        )


def with_method(config: Config, name: str) -> Config:
    """The config, of three phases, changed to learn theta by this method.

    >>> from kcciol.config import preset
    >>> with_method(preset("omniglot-paper"), "mrcl").meta.reset
    'none'
    """
    method = representation(name)
    if config.representation != Config().representation:
        raise UserError(
            f"The config is of representation {config.representation!r} already, so it cannot become {name!r}: start "
            "from a preset."
        )
    return replace(method.change(config), representation=name)
