"""How good an encoder is with what its network gives as it is ("plain"), and as our encoders give it: whitened with the
covariance within base classes, and of unit length ("whitened")."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from kcciol.config import EvaluationConfig
from kcciol.data.classset import Splits
from kcciol.data.examples import Examples
from kcciol.encoders.output import Output
from kcciol.encoders.run import Representation
from kcciol.evaluation.measure import measure_learner
from kcciol.evaluation.protocol import Scenario
from kcciol.learners.model import Head
from kcciol.paper.consolidation.encoder_plan import EncoderSetting
from kcciol.paper.consolidation.heads import HEADS, MEANS, reported, scored

KEPT_OUT = 8  # streams of classes kept out of training, for each choice
FITTED = 100  # images of a base class, at most, that the covariance is measured on
PLAIN, WHITENED = "plain", "whitened"
FIXED: dict[str, dict[str, dict[str, Any]]] = {PLAIN: {}, WHITENED: {MEANS: {"distance": "cosine"}}}


@dataclass(frozen=True)
class EncoderColumn:
    """What accuracies are of: an output of the encoder, a head, and how many classes it learns."""

    output: str
    head: str
    classes: int

    def __str__(self) -> str:
        return f"{self.output} {self.head} {self.classes}"


def columns_of(setting: EncoderSetting) -> dict[str, EncoderColumn]:
    """By name."""
    found = (EncoderColumn(output, head, n) for output in FIXED for head in HEADS for n in setting.lengths())
    return {str(column): column for column in found}


@dataclass(frozen=True)
class Features:
    """What a network gives for images, (classes, images, d) each."""

    base: Tensor
    validation: Tensor
    novel: Tensor
    outputs: dict[str, Output]


@dataclass(frozen=True)
class EncoderMeasurer:
    """Measures what goes on from one encoder, on the streams of one seed."""

    setting: EncoderSetting
    data: Splits
    seed: int

    def kept_out(self, representation: Representation) -> dict[str, Any]:
        """By column: accuracy on classes kept out of training, with the settings that do best there. And class means on
        classes trained on."""
        features, lengths = self._features(representation), self.setting.lengths()
        config = replace(self.setting.streams, classes=tuple(lengths.values()), trajectories=KEPT_OUT)
        heads: dict[str, Any] = {}
        for output in FIXED:
            known = self._examples(features.validation, features.outputs[output])
            for head in HEADS:
                found = self._measure(EncoderColumn(output, head, 0), known, known, representation, config)
                heads |= {str(EncoderColumn(output, head, n)): scored(found[str(kept)]) for n, kept in lengths.items()}
        most = max(config.classes)
        seen = self._examples(features.base[:most], features.outputs[PLAIN])
        means = self._measure(
            EncoderColumn(PLAIN, MEANS, most), seen, seen, representation, replace(config, classes=(most,))
        )
        return {"heads": heads, "seen": means[str(most)]["mean"]}

    def novel(self, representation: Representation, head: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Accuracy on novel classes, with a rate that was chosen before."""
        representation.refuse_known(self.data.novel, "novel")
        column, features = columns_of(self.setting)[head], self._features(representation)
        sets = (features.novel, features.validation)
        novel, known = (self._examples(some, features.outputs[column.output]) for some in sets)
        config = replace(self.setting.streams, classes=(column.classes,))
        if "rate" in settings:
            config = replace(config, rates=(settings["rate"],))
        return reported(self._measure(column, novel, known, representation, config)[str(column.classes)])

    def _features(self, representation: Representation) -> Features:
        """What the network gives, made once."""
        name = representation.identity
        if name not in self._known:
            upright = len(self.data.base) // self.setting.recipe.view.classes
            base = self.data.base.classes(0, upright).first_samples(FITTED)
            z, kept, novel = (representation.features(s.images) for s in (base, self.data.validation, self.data.novel))
            fitted = Output.fit(z.cpu(), self.setting.recipe.output.shrinkage, base.counts).to(z.device)
            self._known[name] = Features(z, kept, novel, {PLAIN: Output(unit_length=False), WHITENED: fitted})
        return self._known[name]

    @functools.cached_property
    def _known(self) -> dict[str, Features]:
        return {}

    def _examples(self, features: Tensor, output: Output) -> Examples:
        """Of the features (classes, images, d) that a network gives those to learn from, and the others."""
        cut, found = self.setting.streams.train_samples, output(features)
        return Examples(found[:, :cut], found[:, cut:])

    def _measure(
        self,
        column: EncoderColumn,
        asked: Examples,
        known: Examples,
        representation: Representation,
        config: EvaluationConfig,
    ) -> dict[str, Any]:
        """By length, what a head does on streams of `asked`, with settings chosen on `known`."""
        scenario = Scenario(asked, Head(asked.width), known, W=representation.W)
        fixed = FIXED[column.output].get(column.head)
        config = replace(config, seed=self.seed)
        found: dict[str, Any] = measure_learner(scenario, HEADS[column.head], config, fixed)["classes"]
        return found
