"""Settings of every learner, all of them, so that changed defaults move no pin."""

from __future__ import annotations

from typing import Any

_GRADIENT: dict[str, Any] = {"rate": 0.02, "optimizer": "sgd", "reserve": 3, "outputs": 0}
_MEMORY: dict[str, Any] = {**_GRADIENT, "slots": 9, "replay": 4}
_REPLAY: dict[str, Any] = {**_MEMORY, "weighting": "joint", "replay_weight": 0.8}
_DER: dict[str, Any] = {**_MEMORY, "alpha": 0.1, "weighting": "additive", "logits": "before"}
_TUNED: dict[str, Any] = {"tune_steps": 6, "tune_batch": 4}

SETTINGS: dict[str, dict[str, Any]] = {
    "online": {**_GRADIENT, "optimizer": "adam", "rate": 0.01},
    "approx-iid": _GRADIENT,
    "ewc": {**_GRADIENT, "strength": 2.0, "fisher": "stream"},
    "er": _REPLAY,
    "mer": {**_MEMORY, "batches": 2, "within": 0.9, "across": 0.6},
    "der": {**_DER, "beta": 0.0},
    "der++": {**_DER, "beta": 0.5},
    "hal": {
        **_GRADIENT,
        "ring": 2,
        "replay": 4,
        "weighting": "joint",
        "replay_weight": 0.8,
        "strength": 0.3,
        "closeness": 0.1,
        "anchors": 3,
        **_TUNED,
        "anchor_steps": 5,
        "anchor_rate": 0.01,
    },
    "gss": {**_REPLAY, "passes": 2, "compared": 4},
    "gss-iqp": {**_REPLAY, "passes": 1, "recent": 5, "restarts": 3},
    "merlin": {
        "slots": 12,
        "generator": "vae",
        "rate": 0.05,
        "updates": 2,
        "chunk": 40,
        "hidden": 10,
        "latent": 2,
        "place": 4,
        "epochs": 3,
        "generator_rate": 0.01,
        "replayed": 2,
        "draws": 2,
        "members": 3,
        **_TUNED,
        "tune_rate": 0.01,
    },
    "podnet": {
        "slots": 9,
        "rate": 0.02,
        "replay": 4,
        "weighting": "joint",
        "replay_weight": 0.8,
        "proxies": 3,
        "margin": 0.2,
        "spatial": 3.0,
        "flat": 1.0,
        "first_teacher": "none",
        "old_proxies": "frozen",
        "spread": 0.1,
        "tune_passes": 1,
        "tune_rate": 0.01,
    },
    "ncm": {"distance": "euclidean"},
    "gaussian": {"alpha": 20.0, "beta": 1.5, "form": "exact"},
    "slda": {"shrinkage": 0.1},
    "ridge": {"units": 64, "penalty": 0.1},
}
# The same learners with what else they can be told, where that is another way through the code.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "online, sgd, no reserve": ("online", {**_GRADIENT, "reserve": 0}),
    "online, so many rows": ("online", {**_GRADIENT, "reserve": 0, "outputs": 20}),
    "ewc, adam, label": ("ewc", {**SETTINGS["ewc"], "optimizer": "adam", "rate": 0.01, "fisher": "label"}),
    "er, additive": ("er", {**_REPLAY, "weighting": "additive"}),
    "der, after": ("der", {**SETTINGS["der"], "logits": "after", "weighting": "joint"}),
    "merlin, none": ("merlin", {**SETTINGS["merlin"], "generator": "none"}),
    "ncm, cosine": ("ncm", {"distance": "cosine"}),
    "gaussian, map": ("gaussian", {**SETTINGS["gaussian"], "form": "map"}),
    "ridge, no units": ("ridge", {"units": 0, "penalty": 0.1}),
}


def words(settings: dict[str, Any]) -> list[str]:
    """Settings as the command line has them."""
    return [f"{name}={value}" for name, value in settings.items()]
