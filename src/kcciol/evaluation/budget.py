"""How many examples a replay learner may keep in so many bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kcciol.config import EvaluationConfig
from kcciol.evaluation.protocol import Scenario
from kcciol.learners import learner_type


def within_budget(scenario: Scenario, name: str, config: EvaluationConfig, fixed: Mapping[str, Any]) -> dict[str, int]:
    """The number of examples that a replay learner may keep in the bytes of `budget_images` images, all else that it
    keeps counted, but at least one; where all else alone takes more, as many as if it were nothing. For learners that
    keep none, nothing."""
    method = learner_type(name)
    kind, unit, per_class = method.settings_type, method.card.capacity, method.card.per_class
    if not unit or unit in fixed:
        return {}
    classes, budget = max(config.classes), config.budget_images * scenario.image_bytes

    def kept(count: int) -> int:
        """The most bytes that a learner keeps on its way through all tasks, once filled with so many examples."""
        values: dict[str, Any] = {**fixed, **method.idle}
        example = scenario.novel.train[:1, 0]
        learner = method(scenario.model, kind(**values, **{unit: count}), (0,), example.device)
        total, most, before = count * classes if per_class else count, 0, 0
        for i in range(total):
            label = i * classes // total  # class after class, as they come
            if label // config.task_classes != before:
                learner.end_task()
                before = label // config.task_classes
            learner.observe(example, np.array([label]))
            most = max(most, sum(learner.memory().values())) if label == classes - 1 else most
        learner.end_task()
        return max(most, sum(learner.memory().values()))

    few, more = (1, 2) if per_class else (classes, 2 * classes)
    first = kept(few)
    each = max(1, (kept(more) - first) // (more - few))
    besides = first - few * each
    return {unit: max(1, (budget - (besides if besides < budget else 0)) // each - kind(**dict(fixed)).waiting)}
