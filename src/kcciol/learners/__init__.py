"""Learners: what happens when one labelled example arrives. One method a file; `LEARNERS` is the list of them.

Importing this imports no torch: a learner is imported when it is asked for, and its card is read from its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcciol.learners.card import Card, card_in
from kcciol.plugins import Registry

if TYPE_CHECKING:
    from kcciol.learners.base import Learner


def _require_learner(found: object) -> None:
    from kcciol.learners.base import Learner

    if not isinstance(found, type) or not issubclass(found, Learner):
        raise TypeError("it is no class that derives from kcciol.learners.base.Learner")
    if not isinstance(getattr(found, "card", None), Card):
        raise TypeError("it has no card, which says what it is")


LEARNERS: Registry[type[Learner]] = Registry(
    "kcciol.learners",
    "learner",
    {
        "online": "kcciol.learners.online:Online",
        "approx-iid": "kcciol.learners.online:ApproxIID",
        "ewc": "kcciol.learners.ewc:EWC",
        "er": "kcciol.learners.er:ER",
        "mer": "kcciol.learners.mer:MER",
        "der": "kcciol.learners.der:DER",
        "der++": "kcciol.learners.der:DERPP",
        "hal": "kcciol.learners.hal:HAL",
        "gss": "kcciol.learners.gss:GSS",
        "gss-iqp": "kcciol.learners.gss:GSSIQP",
        "merlin": "kcciol.learners.merlin:MERLIN",
        "podnet": "kcciol.learners.podnet:PODNet",
        "ncm": "kcciol.learners.ncm:NCM",
        "gaussian": "kcciol.learners.gaussian:Gaussian",
        "slda": "kcciol.learners.slda:SLDA",
        "ridge": "kcciol.learners.ridge:Ridge",
    },
    _require_learner,
)


def learner_type(name: str) -> type[Learner]:
    """A method by its name."""
    return LEARNERS.find(name)


def card_of(name: str) -> Card:
    """The card of a method, which is imported only if the card is not written out in its class."""
    return card_in(LEARNERS.definition(name)) or LEARNERS.find(name).card


def fitting(trains: str) -> list[str]:
    """The learners for a head on a frozen network ("head") or for the whole network ("all").

    >>> "podnet" in fitting("head"), "podnet" in fitting("all")
    (False, True)
    """
    return [name for name, card in LEARNERS.survey(card_of)[0].items() if trains in card.trains]
