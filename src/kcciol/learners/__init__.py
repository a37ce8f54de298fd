"""Learners: what happens when one labelled example arrives. One method a file; `LEARNERS` is the list of them."""

from __future__ import annotations

import numpy as np
import torch

from kcciol.errors import UserError
from kcciol.learners.der import DER, DERPP
from kcciol.learners.er import ER
from kcciol.learners.ewc import EWC
from kcciol.learners.gaussian import Gaussian
from kcciol.learners.gss import GSS, GSSIQP
from kcciol.learners.hal import HAL
from kcciol.learners.learner import Learner
from kcciol.learners.mer import MER
from kcciol.learners.merlin import MERLIN
from kcciol.learners.model import Head
from kcciol.learners.ncm import NCM
from kcciol.learners.online import ApproxIID, Online
from kcciol.learners.podnet import PODNet
from kcciol.learners.ridge import Ridge
from kcciol.learners.slda import SLDA

LEARNERS: dict[str, type[Learner]] = {
    "online": Online,
    "approx-iid": ApproxIID,
    "ewc": EWC,
    "er": ER,
    "mer": MER,
    "der": DER,
    "der++": DERPP,
    "hal": HAL,
    "gss": GSS,
    "gss-iqp": GSSIQP,
    "merlin": MERLIN,
    "podnet": PODNet,
    "ncm": NCM,
    "gaussian": Gaussian,
    "slda": SLDA,
    "ridge": Ridge,
}


def fitting(trains: str) -> list[str]:
    """The learners for a head on a frozen network ("head") or for the whole network ("all").

    >>> "podnet" in fitting("head"), "podnet" in fitting("all")
    (False, True)
    """
    return [name for name, learner in LEARNERS.items() if trains in learner.card.trains]


def typical_bytes(name: str, classes: int = 200, width: int = 2304) -> int | None:
    """What a learner keeps after so many classes, a task each; none for one that needs a whole network."""
    method = learner_type(name)
    if "head" not in method.card.trains:
        return None
    quick = {n: 0 for n in ("tune_steps", "anchor_steps", "epochs") if n in method.settings_type.__dataclass_fields__}
    learner, example = method(Head(width), method.settings_type(**quick)), torch.zeros(1, width)
    for label in range(classes):
        learner.observe(example, np.array([label]))
        if name != "merlin":  # whose task ends cost minutes, and add a few numbers
            learner.end_task()
    return sum(learner.memory().values())


def learner_type(name: str) -> type[Learner]:
    """A method by its name."""
    if not isinstance(name, str) or name not in LEARNERS:
        raise UserError(f"There is no learner {name!r}; there are: {', '.join(LEARNERS)}.")
    return LEARNERS[name]
