"""Representations: how theta is learned before the stream begins. Each method is a choice of settings on one trainer.

`REPRESENTATIONS` is the list of them. A method takes a config, of a preset say, and changes what makes the method:
data, net, sizes and rates stay, unless the method has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from kcciol.config import Config
from kcciol.errors import UserError


@dataclass(frozen=True)
class Method:
    """One way to learn theta."""

    what: str
    paper: str
    change: Callable[[Config], Config]


def _kcciol(config: Config) -> Config:
    return config


def _kcciol_o(config: Config) -> Config:
    """All parameters are important."""
    return replace(config, mask=replace(config.mask, delta=1.0))


def _without(config: Config, **zero: bool) -> Config:
    gamma = 0.0 if zero.get("gamma") else config.phase2.gamma
    lam = 0.0 if zero.get("lam") else config.phase3.lam
    return replace(config, phase2=replace(config.phase2, gamma=gamma), phase3=replace(config.phase3, lam=lam))


def _one_phase(config: Config) -> Config:
    """Phase 1 only."""
    return replace(config, phase2=replace(config.phase2, steps=0), phase3=replace(config.phase3, steps=0))


def _phase1_longer(config: Config) -> Config:
    """Phase 1 only, for the steps of all three."""
    return replace(_one_phase(config), phase1=replace(config.phase1, steps=config.total_steps))


def _oml(config: Config) -> Config:
    """W's rows of the trajectory's classes start anew; phase 1 only."""
    reset = config.meta.reset if config.meta.reset != "none" else "draw"
    return replace(_one_phase(config), meta=replace(config.meta, reset=reset))


def _mrcl(config: Config) -> Config:
    """W is never reset; phase 1 only."""
    return replace(_one_phase(config), meta=replace(config.meta, reset="none"))


def _maml_rep(config: Config) -> Config:
    """Few-shot episodes: five classes of five images learned together, five query images each, nothing to remember."""
    if config.net.hidden:
        raise UserError("maml-rep is for a linear W: set net.hidden to 0.")
    trajectory = replace(config.trajectory, classes=5, support=5, query=5, remember=0)
    meta = replace(config.meta, loss="episodes", relabel=True, reset="none", episode_steps=5)
    phase1 = replace(config.phase1, steps=2 * config.phase1.steps)
    return replace(_one_phase(config), trajectory=trajectory, meta=meta, phase1=phase1)


def _anml(config: Config) -> Config:
    """A gate of 112 channels for 256 of the network; the inner loop adapts the network too, first order."""
    gate = max(1, round(config.net.channels * 112 / 256))
    enough = config.data.train_samples == 0 or config.data.train_samples >= 15
    trajectory = replace(config.trajectory, classes=1, support=10, query=5 if enough else 1, remember=64)
    meta = replace(config.meta, order="first", reset="draw", adapts="net")
    return replace(
        _one_phase(config),
        net=replace(config.net, gate=gate),
        trajectory=trajectory,
        meta=meta,
        phase3=replace(config.phase3, steps=0, lam=0.0),
    )


_BATCH = 256


def _epochs(config: Config, epochs: int) -> int:
    """Steps of so many passes over the base images."""
    classes = config.data.base_classes - config.data.validation_classes
    samples = config.data.train_samples or config.data.samples
    return epochs * math.ceil(max(classes, 1) * samples / _BATCH) if config.data.base_classes else 60 * epochs


def _supervised(config: Config, loss: str) -> Config:
    size = _BATCH if config.data.base_classes > 100 else 64
    trajectory = replace(config.trajectory, classes=0, remember=size, count=1)
    return replace(
        _one_phase(config),
        trajectory=trajectory,
        meta=replace(config.meta, loss=loss, reset="none"),  # type: ignore[arg-type]
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
    "scratch": Method("a random network", "-", _scratch),
    "pretrained": Method("supervised training on the base classes", "Javed and White 2019", _pretrained),
    "srnn": Method("supervised, with sparse features (Set-KL)", "Liu et al. 2019", _srnn),
    "maml-rep": Method("few-shot episodes, only W adapts", "Javed and White 2019", _maml_rep),
    "mrcl": Method("online trajectories, W never reset", "Javed and White 2019 (first version)", _mrcl),
    "oml": Method("online trajectories, rows of W start anew", "Javed and White 2019", _oml),
    "anml": Method("a gated network, all of it adapts in training", "Beaulieu et al. 2020", _anml),
    "kcciol": Method("three phases of knowledge consolidation", "Karim et al. 2021", _kcciol),
    "kcciol-o": Method("the same, all parameters constrained", "Karim et al. 2021", _kcciol_o),
    "phase1": Method("control: phase 1 for the steps of all three", "-", _phase1_longer),
    "gamma0": Method("control: no l1 term in phase 2", "-", lambda c: _without(c, gamma=True)),
    "lambda0": Method("control: no constraint in phase 3", "-", lambda c: _without(c, lam=True)),
    "control": Method("control: neither of the two", "-", lambda c: _without(c, gamma=True, lam=True)),
}


def representation(name: str) -> Method:
    """A method by its name."""
    if name not in REPRESENTATIONS:
        raise UserError(f"There is no representation {name!r}; there are: {', '.join(REPRESENTATIONS)}.")
    return REPRESENTATIONS[name]


def with_method(config: Config, name: str) -> Config:
    """The config changed to learn theta by this method.

    >>> from kcciol.config import preset
    >>> with_method(preset("omniglot-paper"), "mrcl").meta.reset
    'none'
    """
    return replace(representation(name).change(config), representation=name)
