"""What the paper's figures show, as numbers, and the pictures drawn from them; on Omniglot, but for the first.

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
from kcciol.errors import UserError
from kcciol.meta.mask import get_mask
from kcciol.representation import Representation
from kcciol.reproduce.drawn import Drawn
from kcciol.reproduce.frames import by_classes
from kcciol.reproduce.study import Bench, Cell, search_spec
from kcciol.values import to_dict

# shares of the parameters that phase 3 holds, by column: none, half and all of them are columns of Table 1
DELTAS = {"lambda0": 0.0, "delta-0.25": 0.25, "kcciol": 0.5, "delta-0.75": 0.75, "kcciol-o": 1.0}
BINS = 201
LENGTHS = (50, 200)  # classes


def fixed(**what: Any) -> Any:
    return lambda bench: what | {"sizes": to_dict(bench.sizes)}


# --- cells ------------------------------------------------------------------------------------------------------------


def weights(bench: Bench) -> dict[str, Any]:
    """A histogram of the 5th convolution's weights after phase 2."""
    representation = bench.after_phase(2)
    theta = representation.problem.theta(representation.Theta)
    name = f"conv{min(5, len(bench.config.net.strides))}.weight"
    values = theta[name].flatten().cpu()
    reach = float(values.abs().max())
    counts = torch.histc(values, BINS, -reach, reach)
    numbers = {
        "share of weights below 1e-3": float((values.abs() < 1e-3).double().mean()),
        "mean absolute weight": float(values.abs().mean()),
        "kurtosis": float(((values - values.mean()) ** 4).mean() / values.var() ** 2),
    }
    return {"tensor": name, "reach": reach, "counts": counts.tolist(), "numbers": numbers}


def activations(bench: Bench) -> dict[str, Any]:
    """Features of one image, and their mean over a tenth of the novel classes."""
    data = bench.data.novel
    features = bench.representation.features(data.images[:: max(1, min(10, len(data)))].flatten(0, 1)).cpu()
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


def tsne(bench: Bench) -> dict[str, Any]:
    """Ten novel classes in the plane, and the ratio of distances between and within classes."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise UserError("t-SNE needs scikit-learn: run `pip install 'kcciol[plots]'`.") from None
    data = bench.data.novel
    images = data.images[torch.arange(0, len(data), max(1, len(data) // 10))[:10], : int(data.counts.min())]
    features = bench.representation.features(images).double().cpu()  # (10, samples, d)
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


def pruned_by(bench: Bench) -> MaskConfig:
    """The half that phase 3 holds."""
    return replace(bench.config.mask, delta=0.5)


def prune(bench: Bench) -> dict[str, Any]:
    """Algorithm 4 after phase 2 on all of theta, on its important half, and on the other half."""
    whole = bench.after_phase(2)
    length, layout = whole.problem.theta_length, whole.problem.layout
    mask = get_mask(layout, whole.Theta, pruned_by(bench))
    kept = {"all": torch.ones_like(mask), "important half": mask, "other half": 1 - mask}
    found: dict[str, Any] = {}
    for name, half in kept.items():
        for part_of, view in layout.views(half, "theta.").items():
            if part_of.endswith("bias"):
                view.fill_(1)  # what is asked is where the weights' knowledge is
        Theta = whole.Theta.clone()
        Theta[:length] *= half[:length]
        found[name] = on_classes(bench, Representation(whole.config, whole.problem, Theta, whole.base_names))
    return {"kept": found}


def on_classes(bench: Bench, representation: Representation | None = None) -> dict[str, Any]:
    """Algorithm 4 with Adam at the lengths of the figures."""
    found = bench.algorithm4(bench.evaluations(LENGTHS, "adam"), representation)["classes"]
    return {n: {**cell["test"], "rate": cell["rate"]["chosen"]} for n, cell in found.items()}


def masking(bench: Bench) -> dict[str, Any]:
    return {"classes": on_classes(bench)}


def searched(figure: str) -> Callable[[Bench], dict[str, Any]]:
    """The specification of a figure that Algorithm 4 is in."""
    return lambda bench: {
        "figure": figure,
        **({"mask": to_dict(pruned_by(bench))} if figure == "prune" else {}),
        **search_spec(bench.evaluations(LENGTHS, "adam")),
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
HELD = ("kcciol", "kcciol-o", "kcciol-o-plain")


def part(column: str) -> Mapping[str, Cell]:
    return FIGURES.get(column, {})


def histogram(column: str) -> Mapping[str, Cell]:
    """Of the columns in HISTOGRAM."""
    return {"weights": Cell(fixed(figure="weights", bins=BINS), weights)}


# --- pictures ---------------------------------------------------------------------------------------------------------

NAMES = {"oml": "OML", "kcciol": "KCCIOL", "gamma0": "without l1", "control": "without l1"}
STREAMS = "Bars are 95 % intervals over the streams of one training."
RECIPES = "OML is trained as printed, KCCIOL with our preset, so that more than consolidation sets them apart."
ABOUT = {
    "weights": (
        "Weights of the 5th convolution",
        "mini-ImageNet, after phase 2, with the l1 term (KCCIOL) and without it: how densely they lie, on a log scale. "
        "One training each.",
    ),
    "activations": (
        "Activations",
        "2304 features: of one image (left), and their mean over a tenth of the novel set. One training each. "
        f"{RECIPES}",
    ),
    "tsne": (
        "Ten novel classes",
        f"The features of all their images, laid out by t-SNE; colours are classes. {RECIPES} One training each.",
    ),
    "prune": (
        "Where the knowledge is",
        "Accuracy after phase 2 with some weights of the encoder set to zero. The important half, the one that phase 3 "
        "holds, is the larger half of all weights, those of the head included; biases are left in every case. "
        f"{STREAMS}",
    ),
    "masking": (
        "Share of parameters held",
        f"Accuracy against delta, the share of the parameters that phase 3 holds. {STREAMS}",
    ),
}


def draw(found: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> list[Drawn]:
    """Figures of all that is there (cells by column and name), of the seeds that all columns of a figure have."""
    by_name: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for column, cells in found.items():
        for name, measured in cells.items():
            by_name.setdefault(name, {})[column] = measured
    drawn = []
    for name, every in by_name.items():
        common = set.intersection(*({r["config"]["seed"] for r in measured} for measured in every.values()))
        if not common:
            continue
        results = {c: [r for r in measured if r["config"]["seed"] in common] for c, measured in every.items()}
        columns = {column: measured[0] for column, measured in results.items()}  # what is drawn
        numbers: dict[str, float] = {}
        for column, measured in results.items():
            label = f"delta {DELTAS[column]:g}" if name == "masking" else NAMES.get(column, column)
            each = [_numbers(name, result) for result in measured]
            numbers |= {f"{label}: {key}": sum(values[key] for values in each) / len(each) for key in each[0]}
        data = {column: _data(result) for column, result in columns.items()}
        size = (4.5 * len(columns), {"activations": 2.6, "tsne": 4.0}[name]) if name in SIDE_BY_SIDE else (4.5, 4.0)
        title, caption = ABOUT[name]
        if len(common) > 1:
            several = f"Numbers are means over {len(common)} trainings each, the picture is of the first."
            caption = caption.replace("One training each.", several)
        drawn.append(Drawn(name, title, caption, numbers, data, results, size, _painter(PICTURES[name], columns)))
    return drawn


def constrained(found: Mapping[str, Mapping[str, list[dict[str, Any]]]], name: str, what: str) -> list[Drawn]:
    """Accuracy over classes of `kcciol`, which holds the important parameters, and of those that hold all of them."""
    results = {c: found[c]["adam"] for c in HELD if "adam" in found.get(c, {})}
    rows = by_classes(results)
    if not rows or any(len(row) < 2 for row in rows.values()):
        return []
    plain = "; kcciol-o-plain: all of them, after a phase 2 without the l1 term" if "kcciol-o-plain" in results else ""
    trainings = ", ".join(f"{column} {len(measured)}" for column, measured in results.items())
    caption = (
        "Accuracy on held-out images of novel classes. Phase 3 holds the important half of the parameters (kcciol) or "
        f"all of them (kcciol-o) after the same phases 1 and 2{plain}. Bars are 95 % intervals over the streams of all "
        f"trainings ({trainings}); how much these differ is in the table."
    )
    numbers = {f"{c}, {n} classes": cell["mean"] for n, row in rows.items() for c, cell in row.items()}
    kept = ("mean", "ci95", "n", "by_seed")
    data = {n: {c: {k: cell[k] for k in kept} for c, cell in row.items()} for n, row in rows.items()}
    title = f"Half or all of the parameters held, {what}"
    return [Drawn(name, title, caption, numbers, data, results, (4.5, 4.0), _painter(_lines, rows))]


def _data(result: Mapping[str, Any]) -> dict[str, Any]:
    left_out = ("config", "record", "spec", "cell_seconds", "trained_seconds", "numbers")
    return {k: v for k, v in result.items() if k not in left_out}


def _numbers(name: str, result: Mapping[str, Any]) -> dict[str, float]:
    if name == "prune":
        return {f"{kept}, {n} classes": c["mean"] for kept, rows in result["kept"].items() for n, c in rows.items()}
    if name == "masking":
        return {f"{n} classes": cell["mean"] for n, cell in result["classes"].items()}
    return dict(result["numbers"])


def _painter(paint: Callable[[Any, Mapping[str, Mapping[str, Any]]], None], columns: Mapping[str, Any]) -> Any:
    wide = len(columns) if paint in (_activations, _tsne) else 1
    return lambda figure: paint(figure.subplots(1, wide, squeeze=False)[0], columns)


def _lines(axes: Any, rows: Mapping[str, Mapping[str, Any]]) -> None:
    for column in next(iter(rows.values())):
        cells = [row[column] for row in rows.values()]
        means, spread = [c["mean"] for c in cells], [c["ci95"] or 0 for c in cells]
        axes[0].errorbar([int(n) for n in rows], means, yerr=spread, marker="o", capsize=3, label=column)
    axes[0].set(xlabel="classes", ylabel="accuracy, %", xticks=[int(n) for n in rows])
    axes[0].legend()


def _weights(axes: Any, columns: Mapping[str, Mapping[str, Any]]) -> None:
    for column, result in columns.items():
        counts, width = torch.tensor(result["counts"]), 2 * result["reach"] / len(result["counts"])
        places = torch.linspace(-result["reach"] + width / 2, result["reach"] - width / 2, len(counts)).tolist()
        density = (counts / (counts.sum() * width)).tolist()
        axes[0].plot(places, density, drawstyle="steps-mid", label=NAMES.get(column, column))
    axes[0].set(yscale="log", xlabel="weight", ylabel="density")
    axes[0].legend()


def _activations(axes: Any, columns: Mapping[str, Mapping[str, Any]]) -> None:
    for axis, (column, result) in zip(axes, columns.items(), strict=True):
        one, mean = torch.tensor(result["one"]), torch.tensor(result["mean"])
        side = int(len(one) ** 0.5)
        pair = torch.stack([t[: side * side].view(side, side) / t.max().clamp_min(1e-9) for t in (one, mean)])
        axis.imshow(torch.cat([pair[0], torch.ones(side, 2), pair[1]], 1).numpy(), cmap="magma", vmin=0, vmax=1)
        axis.set(title=NAMES.get(column, column), xticks=[], yticks=[])


def _tsne(axes: Any, columns: Mapping[str, Mapping[str, Any]]) -> None:
    for axis, (column, result) in zip(axes, columns.items(), strict=True):
        x, y = zip(*result["places"], strict=True)
        axis.scatter(x, y, c=result["labels"], cmap="tab10", s=14)
        axis.set(title=NAMES.get(column, column), xticks=[], yticks=[])


def _prune(axes: Any, columns: Mapping[str, Mapping[str, Any]]) -> None:
    kinds = list(next(iter(columns.values()))["kept"])
    for i, (column, result) in enumerate(columns.items()):
        last = [list(result["kept"][kind].values())[-1] for kind in kinds]
        places = [k + 0.4 * i for k in range(len(kinds))]
        label = NAMES.get(column, column)
        axes[0].bar(places, [c["mean"] for c in last], 0.38, yerr=[c["ci95"] or 0 for c in last], label=label)
    axes[0].set(xticks=[k + 0.2 for k in range(len(kinds))], xticklabels=kinds, ylabel="accuracy, %")
    axes[0].legend()


def _masking(axes: Any, columns: Mapping[str, Mapping[str, Any]]) -> None:
    by_delta = sorted(((DELTAS[column], result) for column, result in columns.items()), key=lambda pair: pair[0])
    for n in by_delta[0][1]["classes"]:
        cells = [result["classes"][n] for _, result in by_delta]
        deltas, means, spread = [d for d, _ in by_delta], [c["mean"] for c in cells], [c["ci95"] or 0 for c in cells]
        axes[0].errorbar(deltas, means, yerr=spread, marker="o", capsize=3, label=f"{n} classes")
    axes[0].set(xlabel="delta", ylabel="accuracy, %")
    axes[0].legend()


PICTURES = {
    "weights": _weights,
    "activations": _activations,
    "tsne": _tsne,
    "prune": _prune,
    "masking": _masking,
}
SIDE_BY_SIDE = ("activations", "tsne")
