"""What the paper's figures show, as numbers; on Omniglot, but for the first. `pictures` draws them.

weights       are weights driven to zero by the l1 term: the 5th convolution on mini-ImageNet, after phase 2, with the
              term and without
activations   which features answer to an image: one image, and the mean over a tenth of the novel set
tsne          ten novel classes as t-SNE lays them out, and how far apart they lie in the features themselves
prune         is the knowledge in the important half: accuracy after phase 2 with one half of the weights set to zero
masking       accuracy against delta, the share of the parameters that phase 3 holds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kcciol.config import MaskConfig
from kcciol.encoders.run import Representation
from kcciol.errors import UserError
from kcciol.meta.mask import get_mask
from kcciol.paper.study import Cell, Subject, search_spec
from kcciol.serialization import to_dict

# shares of the parameters that phase 3 holds, by column: none, half and all of them are columns of Table 1
DELTAS = {"lambda0": 0.0, "delta-0.25": 0.25, "kcciol": 0.5, "delta-0.75": 0.75, "kcciol-o": 1.0}
BINS = 201
LENGTHS = (50, 200)  # classes


def fixed(**what: Any) -> Any:
    return lambda subject: what | {"sizes": to_dict(subject.sizes)}


def weights(subject: Subject) -> dict[str, Any]:
    """A histogram of the 5th convolution's weights after phase 2."""
    representation = subject.after_phase(2)
    theta = representation.problem.theta(representation.Theta)
    name = f"conv{min(5, len(subject.config.net.strides))}.weight"
    values = theta[name].flatten().cpu()
    reach = float(values.abs().max())
    counts = torch.histc(values, BINS, -reach, reach)
    numbers = {
        "share of weights below 1e-3": float((values.abs() < 1e-3).double().mean()),
        "mean absolute weight": float(values.abs().mean()),
        "kurtosis": float(((values - values.mean()) ** 4).mean() / values.var() ** 2),
    }
    return {"tensor": name, "reach": reach, "counts": counts.tolist(), "numbers": numbers}


def activations(subject: Subject) -> dict[str, Any]:
    """Features of one image, and their mean over a tenth of the novel classes."""
    data = subject.data.novel
    features = subject.representation.features(data.images[:: max(1, min(10, len(data)))].flatten(0, 1)).cpu()
    mean = features.mean(0)
    top = float(mean.max()) or 1.0
    numbers = {
        "share of units that no image moves": float((features.amax(0) == 0).double().mean()),
        "share of units active for an image, mean": float((features > 0).double().mean()),
        "share of units whose mean is above a tenth of the largest": float((mean > 0.1 * top).double().mean()),
    }
    return {"one": _rounded(features[0]), "mean": _rounded(mean), "numbers": numbers}


def _rounded(values: Tensor) -> list[float]:
    return [round(v, 4) for v in values.tolist()]


def tsne(subject: Subject) -> dict[str, Any]:
    """Ten novel classes in the plane, and the ratio of distances between and within classes."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise UserError("t-SNE needs scikit-learn: run `pip install 'kcciol[plots]'`.") from None
    data = subject.data.novel
    images = data.images[torch.arange(0, len(data), max(1, len(data) // 10))[:10], : int(data.counts.min())]
    features = subject.representation.features(images).double().cpu()  # (10, samples, d)
    flat, labels = features.flatten(0, 1), torch.arange(len(images)).repeat_interleave(images.shape[1])
    places = TSNE(perplexity=min(15, len(flat) // 4), init="pca", random_state=0).fit_transform(flat.numpy())
    far = torch.cdist(flat, flat)
    same = labels[:, None] == labels
    within = far[same & ~torch.eye(len(flat), dtype=torch.bool)].mean()
    numbers = {
        "distance between classes over that within": float(far[~same].mean() / within),
        "silhouette": silhouette(far, labels),
    }
    return {"places": [[round(float(v), 3) for v in p] for p in places], "labels": labels.tolist(), "numbers": numbers}


def silhouette(far: Tensor, labels: Tensor) -> float:
    """Of points with these distances (n, n): the mean of (b - a) / max(a, b), with a the mean distance to the others of
    its class and b that to the nearest other class.

    >>> far = torch.tensor([[0.0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 9, 1, 0]])
    >>> round(silhouette(far, torch.tensor([0, 0, 1, 1])), 3)
    0.889
    """
    hot = torch.nn.functional.one_hot(labels).to(far.dtype)
    sums, counts = far @ hot, hot.sum(0)
    own = (sums * hot).sum(1) / (counts[labels] - 1).clamp_min(1)
    other = (sums / counts).masked_fill(hot.bool(), torch.inf).amin(1)
    return float(((other - own) / torch.maximum(own, other)).mean())


def pruned_by(subject: Subject) -> MaskConfig:
    """The half that phase 3 holds."""
    return replace(subject.config.mask, delta=0.5)


def prune(subject: Subject) -> dict[str, Any]:
    """Algorithm 4 after phase 2 on all of theta, on its important half, and on the other half."""
    whole = subject.after_phase(2)
    length, layout = whole.problem.theta_length, whole.problem.layout
    mask = get_mask(layout, whole.Theta, pruned_by(subject))
    kept = {"all": torch.ones_like(mask), "important half": mask, "other half": 1 - mask}
    found: dict[str, Any] = {}
    for name, half in kept.items():
        for part_of, view in layout.views(half, "theta.").items():
            if part_of.endswith("bias"):
                view.fill_(1)  # what is asked is where the weights' knowledge is
        Theta = whole.Theta.clone()
        Theta[:length] *= half[:length]
        found[name] = on_classes(subject, Representation(whole.config, whole.problem, Theta, whole.base_names))
    return {"kept": found}


def on_classes(subject: Subject, representation: Representation | None = None) -> dict[str, Any]:
    """Algorithm 4 with Adam at the lengths of the figures."""
    found = subject.algorithm4(subject.evaluations(LENGTHS, "adam"), representation)["classes"]
    return {n: {**cell["test"], "rate": cell["choice"]["settings"]["rate"]} for n, cell in found.items()}


def masking(subject: Subject) -> dict[str, Any]:
    return {"classes": on_classes(subject)}


def searched(figure: str) -> Callable[[Subject], dict[str, Any]]:
    """The specification of a figure that Algorithm 4 is in."""
    return lambda subject: {
        "figure": figure,
        **({"mask": to_dict(pruned_by(subject))} if figure == "prune" else {}),
        **search_spec(subject.evaluations(LENGTHS, "adam")),
    }


FIGURES: dict[str, Mapping[str, Cell]] = {  # by column
    "oml": {"activations": Cell(fixed(figure="activations"), activations), "tsne": Cell(fixed(figure="tsne"), tsne)},
    "kcciol": {
        "activations": Cell(fixed(figure="activations"), activations),
        "tsne": Cell(fixed(figure="tsne"), tsne),
        "prune": Cell(searched("prune"), prune),
    },
    "gamma0": {"prune": Cell(searched("prune"), prune)},
}
for _column in DELTAS:
    FIGURES[_column] = {**FIGURES.get(_column, {}), "masking": Cell(searched("masking"), masking)}
HISTOGRAM = ("kcciol", "control")


def part(column: str) -> Mapping[str, Cell]:
    return FIGURES.get(column, {})


def histogram(column: str) -> Mapping[str, Cell]:
    """Of the columns in HISTOGRAM."""
    return {"weights": Cell(fixed(figure="weights", bins=BINS), weights)}
