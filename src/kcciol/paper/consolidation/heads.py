"""How good a representation is: the paper's head, class means, Gaussians; on base classes kept out, and novel ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from kcciol.data.classset import ClassSet, Splits
from kcciol.data.examples import Examples
from kcciol.encoders.run import Representation
from kcciol.evaluation.measure import measure_learner
from kcciol.evaluation.protocol import Scenario
from kcciol.learners.model import Head
from kcciol.paper.consolidation.plan import Setting

HEADS = {"adam": "online", "ncm": "ncm", "gaussian": "gaussian"}  # by what they are called here
MEANS = "ncm"  # nothing is chosen for it, so it tells features alone


class Measures(Protocol):
    """What tells how good a representation is; a head is one of its names."""

    def kept_out(self, representation: Representation, /) -> dict[str, Any]:
        """Of base classes kept out of training."""

    def novel(self, representation: Representation, head: str, settings: dict[str, Any], /) -> dict[str, Any]:
        """Of novel classes, by one head with settings that were chosen before."""


@dataclass(frozen=True)
class Measurer:
    """Measures representations of one setting, on the streams of one seed."""

    setting: Setting
    data: Splits
    seed: int

    def kept_out(self, representation: Representation) -> dict[str, Any]:
        """By head: accuracy on held-out images of base classes kept out of training, with the settings that do best
        there. And class means on classes trained on, which tells how far training has learned these by heart."""
        validation = self._examples(representation, self.data.validation)
        found = {head: self._measure(representation, name, validation, validation) for head, name in HEADS.items()}
        heads = {head: scored(result) for head, result in found.items()}
        seen = self._examples(representation, self.data.base.classes(0, self.setting.classes))
        return {"heads": heads, "seen": self._measure(representation, HEADS[MEANS], seen, validation)["mean"]}

    def novel(self, representation: Representation, head: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Accuracy on held-out images of novel classes, with a rate that was chosen before."""
        representation.refuse_known(self.data.novel, "novel")
        novel, validation = (self._examples(representation, some) for some in (self.data.novel, self.data.validation))
        result = self._measure(representation, HEADS[head], novel, validation, settings.get("rate"))
        return reported(result)

    def _examples(self, representation: Representation, classes: ClassSet) -> Examples:
        streams = self.setting.streams
        return representation.split_features(classes, streams.train_samples, streams.test_samples)

    def _measure(
        self, representation: Representation, name: str, asked: Examples, known: Examples, rate: float | None = None
    ) -> dict[str, Any]:
        config = replace(self.setting.streams, seed=self.seed)
        if rate is not None:
            config = replace(config, rates=(rate,))
        scenario = Scenario(asked, Head(asked.width), known, W=representation.W)
        found: dict[str, Any] = measure_learner(scenario, name, config)["classes"][str(self.setting.classes)]
        return found


def scored(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a measurement on classes kept out of training."""
    choice = result["choice"]
    return {"score": result["mean"], "settings": choice["settings"], "at_edge": choice["at_edge"]}


def reported(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a measurement on novel classes."""
    return {key: result[key] for key in ("mean", "ci95", "by_trajectory")}
