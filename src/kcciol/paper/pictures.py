"""The pictures of the paper's figures, drawn from their cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kcciol.paper.figures import DELTAS
from kcciol.paper.plot import Plot
from kcciol.paper.tables import by_classes

HELD = ("kcciol", "kcciol-o", "kcciol-o-plain")
NAMES = {"oml": "OML", "kcciol": "KCCIOL", "gamma0": "without l1", "control": "without l1"}
STREAMS = "Bars are 95 % intervals over the streams of one training."
Paint = Callable[[Any, Mapping[str, Mapping[str, Any]]], None]
RECIPES = "OML is trained as printed, KCCIOL with our preset, so that more than consolidation sets them apart."


def draw(found: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> list[Plot]:
    """Figures of all that is there (cells by column and name), of the seeds that all columns of a figure have."""
    by_name: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for column, cells in found.items():
        for name, measured in cells.items():
            by_name.setdefault(name, {})[column] = measured
    drawn = []
    for name, every in by_name.items():
        picture = PICTURES[name]
        common = set.intersection(*({r["config"]["seed"] for r in measured} for measured in every.values()))
        if not common:
            continue
        results = {c: [r for r in measured if r["config"]["seed"] in common] for c, measured in every.items()}
        columns = {column: measured[0] for column, measured in results.items()}  # what is drawn
        numbers: dict[str, float] = {}
        for column, measured in results.items():
            label = picture.label(column)
            each = [picture.numbers(result) for result in measured]
            numbers |= {f"{label}: {key}": sum(values[key] for values in each) / len(each) for key in each[0]}
        data = {column: _data(result) for column, result in columns.items()}
        caption = picture.caption
        if len(common) > 1:
            several = f"Numbers are means over {len(common)} trainings each, the picture is of the first."
            caption = caption.replace("One training each.", several)
        size = (4.5 * len(columns) if picture.side_by_side else 4.5, picture.height)
        painter = _painter(picture.paint, columns, len(columns) if picture.side_by_side else 1)
        drawn.append(Plot(name, picture.title, caption, numbers, data, results, size, painter))
    return drawn


def constrained(found: Mapping[str, Mapping[str, list[dict[str, Any]]]], name: str, what: str) -> list[Plot]:
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
    return [Plot(name, title, caption, numbers, data, results, (4.5, 4.0), _painter(_lines, rows))]


def _data(result: Mapping[str, Any]) -> dict[str, Any]:
    left_out = ("cell", "config", "record", "spec", "cell_seconds", "trained_seconds", "numbers")
    return {k: v for k, v in result.items() if k not in left_out}


def _painter(paint: Paint, columns: Mapping[str, Any], wide: int = 1) -> Any:
    return lambda figure: paint(figure.subplots(1, wide, squeeze=False)[0], columns)


def _lines(axes: Any, rows: Mapping[str, Mapping[str, Any]]) -> None:
    for column in next(iter(rows.values())):
        cells = [row[column] for row in rows.values()]
        _bars(axes[0], [int(n) for n in rows], cells, column)
    axes[0].set(xlabel="classes", ylabel="accuracy, %", xticks=[int(n) for n in rows])
    axes[0].legend()


def _bars(axis: Any, places: Sequence[float], cells: Sequence[Mapping[str, Any]], label: str) -> None:
    means, spread = [c["mean"] for c in cells], [c["ci95"] or 0 for c in cells]
    axis.errorbar(places, means, yerr=spread, marker="o", capsize=3, label=label)


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
        _bars(axes[0], [delta for delta, _ in by_delta], cells, f"{n} classes")
    axes[0].set(xlabel="delta", ylabel="accuracy, %")
    axes[0].legend()


def _named(column: str) -> str:
    return NAMES.get(column, column)


def _by_delta(column: str) -> str:
    return f"delta {DELTAS[column]:g}"


def _own_numbers(result: Mapping[str, Any]) -> dict[str, float]:
    return dict(result["numbers"])


def _accuracies(result: Mapping[str, Any]) -> dict[str, float]:
    return {f"{n} classes": cell["mean"] for n, cell in result["classes"].items()}


def _accuracies_by_kept(result: Mapping[str, Any]) -> dict[str, float]:
    return {f"{kept}, {n} classes": c["mean"] for kept, rows in result["kept"].items() for n, c in rows.items()}


@dataclass(frozen=True)
class Picture:
    """A figure of the paper, by what its cells are called."""

    title: str
    caption: str
    paint: Paint
    numbers: Callable[[Mapping[str, Any]], dict[str, float]] = _own_numbers
    """What is said beside it of a result."""
    label: Callable[[str], str] = _named
    """What a column is called."""
    side_by_side: bool = False
    height: float = 4.0


PICTURES = {
    "weights": Picture(
        "Weights of the 5th convolution",
        "mini-ImageNet, after phase 2, with the l1 term (KCCIOL) and without it: how densely they lie, on a log scale. "
        "One training each.",
        _weights,
    ),
    "activations": Picture(
        "Activations",
        "2304 features: of one image (left), and their mean over a tenth of the novel set. One training each. "
        f"{RECIPES}",
        _activations,
        side_by_side=True,
        height=2.6,
    ),
    "tsne": Picture(
        "Ten novel classes",
        f"The features of all their images, laid out by t-SNE; colours are classes. {RECIPES} One training each.",
        _tsne,
        side_by_side=True,
    ),
    "prune": Picture(
        "Where the knowledge is",
        "Accuracy after phase 2 with some weights of the encoder set to zero. The important half, the one that phase 3 "
        "holds, is the larger half of all weights, those of the head included; biases are left in every case. "
        f"{STREAMS}",
        _prune,
        _accuracies_by_kept,
    ),
    "masking": Picture(
        "Share of parameters held",
        f"Accuracy against delta, the share of the parameters that phase 3 holds. {STREAMS}",
        _masking,
        _accuracies,
        _by_delta,
    ),
}
