"""What the names of rows and columns mean, for a reader who has only the page."""

from __future__ import annotations

from collections.abc import Iterable

COLUMNS = {  # of tables alone; representations and learners say themselves what they are
    "scratch": "all of a random network learns online",
    "kcciol": "the method, with the settings of our preset",
    "kcciol-paper": "the method, with the printed settings",
    "kcciol-phase1": "kcciol where its phase 1 ends",
    "kcciol-phase2": "kcciol where its phase 2 ends",
    "kcciol-o": "kcciol, but phase 3 holds all parameters instead of the important half",
    "kcciol-o-plain": "kcciol-o, but without the l1 term in phase 2",
    "standard": "a supervised network, all of which learns online",
    "pretraining": "a supervised network, of which the head learns",
}
ENDS = {
    "-first": "with first-order gradients",
    "-same": "with the trajectories and steps of kcciol",
    " + ncm": "with class means as the head; pixels + ncm and untrained + ncm are floors",
    " + gaussian": "with a Bayesian Gaussian for each class as the head",
}


def explained(names: Iterable[str]) -> dict[str, str]:
    """Words for those of the names that are known, and for how names end.

    >>> explained(["lambda0", "mrcl-same", "what"])["-same"]
    'with the trajectories and steps of kcciol'
    """
    from kcciol.learners import LEARNERS
    from kcciol.meta.methods import REPRESENTATIONS

    methods = {name: method.what for name, method in REPRESENTATIONS.items()}
    known = methods | {name: learner.card.what for name, learner in LEARNERS.items()} | COLUMNS
    every = list(dict.fromkeys(names))
    found = {name: known[name] for name in every if name in known}
    return found | {end: words for end, words in ENDS.items() if any(name.endswith(end) for name in every)}
