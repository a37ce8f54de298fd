"""What the tables on Omniglot say, in sentences: which column is above which, and what holds of the paper's claims."""

from __future__ import annotations

import math
from typing import Any

import torch

from kcciol.evaluation.metrics import summarize

Cell = dict[str, Any]
Rows = dict[str, dict[str, Cell]]
STARTS = ["scratch", "standard", "pretraining", "oml", "kcciol", "pixels", "untrained"]
# a rival with our trajectories, and as printed; of MRCL the one of the same order
SAME_AS = [("maml-rep-same", "maml-rep-first"), ("maml-rep-same", "maml-rep"), ("mrcl-same", "mrcl-first")]
SAME_AS += [("oml-same", "oml")]
SEEDS = 3  # with fewer, their spread says next to nothing


def shown(cell: Cell | None) -> str:
    """Mean and interval; a star where a setting was chosen at the end of its grid."""
    if cell is None:
        return ""
    edge = any(choice.get("at_edge") for choice in cell.get("choice", []))
    return f"{cell['mean']:.1f}" + (f" ± {cell['ci95']:.1f}" if cell.get("ci95") is not None else "") + "\\*" * edge


# --- two columns ------------------------------------------------------------------------------------------------------


def difference(a: Cell, b: Cell) -> tuple[float, float]:
    """a - b and half of its 95 % interval: of the seeds that both have, over the seeds where there are three, else over
    their streams, each with its like; against the paper, from the spread of both."""
    ours, theirs = streams(a), streams(b)
    seeds = [seed for seed in ours if seed in theirs and len(ours[seed]) == len(theirs[seed])]
    if not seeds:
        return float(a["mean"]) - float(b["mean"]), math.hypot(half(a), half(b))
    gaps = torch.tensor([[x - y for x, y in zip(ours[s], theirs[s], strict=True)] for s in seeds])
    found = summarize(gaps.mean(1) if len(seeds) >= SEEDS else gaps.flatten())
    return float(gaps.mean()), found.ci95 or 0.0


def streams(cell: Cell) -> dict[int, list[float]]:
    """The accuracies of each seed."""
    seeds, flat = cell.get("seeds", []), cell.get("by_trajectory", [])
    size = len(flat) // max(1, len(seeds))
    return {seed: flat[i * size : (i + 1) * size] for i, seed in enumerate(seeds)}


def differs(a: Cell, b: Cell) -> float:
    """a - b when it can be told from zero, else 0."""
    gap, half_ = difference(a, b)
    return gap if abs(gap) > half_ else 0.0


def half(cell: Cell) -> float:
    """Half of a 95 % interval: of ours over streams, or over three seeds or more where that is wider; of the paper's
    from its spread, zero where it prints none."""
    if "ci95" in cell:
        enough = len(cell.get("by_seed", [])) >= SEEDS
        return max(cell["ci95"] or 0.0, (cell.get("ci95_seeds") or 0.0) if enough else 0.0)
    return 2.0 * float(cell.get("std") or 0.0) / math.sqrt(cell.get("n", 50))


def both(rows: Rows, a: str, b: str) -> list[tuple[str, Cell, Cell]]:
    return [(n, row[a], row[b]) for n, row in rows.items() if a in row and b in row]


def compared(rows: Rows, a: str, b: str, unit: str = "classes") -> str:
    """One sentence: where a is above b, where below, and by how much."""
    gaps = {n: differs(x, y) for n, x, y in both(rows, a, b)}
    parts = []
    for word, sign in (("above", 1), ("below", -1)):
        if some := {n: sign * g for n, g in gaps.items() if sign * g > 0}:
            low, high = min(some.values()), max(some.values())
            spread = f"{low:.1f}" if len(some) == 1 else f"{low:.1f} to {high:.1f}"
            parts.append(f"{word} by {spread} at {', '.join(some)}")
    if level := [n for n, g in gaps.items() if not g]:
        parts.append(f"level at {', '.join(level)}")
    return f"- `{a}` against `{b}` ({unit}): {'; '.join(parts) or 'not measured'}."


def verdict(rows: Rows, a: str, b: str) -> str:
    """Whether a is better than b, and in how many rows."""
    more, level, less = counts(rows, a, b)
    if not more + level + less:
        return "Not measured"
    word = "Not seen here" if not more else "Mixed" if less else "Holds in part" if level else "Holds"
    return f"{word}: {counted(rows, a, b)}"


def counts(rows: Rows, a: str, b: str) -> tuple[int, int, int]:
    """In how many rows a is above b, level with it, and below it."""
    gaps = [differs(x, y) for _, x, y in both(rows, a, b)]
    return sum(g > 0 for g in gaps), sum(g == 0 for g in gaps), sum(g < 0 for g in gaps)


def counted(rows: Rows, a: str, b: str) -> str:
    found = counts(rows, a, b)
    words = [f"{word} in {n}" for word, n in zip(("above", "level", "below"), found, strict=True) if n]
    return f"{', '.join(words)} of {sum(found)} rows"


def gap(row: dict[str, Cell], a: str, b: str) -> str:
    """By how much a is from b."""
    if not {a, b} <= row.keys():
        return "not measured"
    size, half_ = difference(row[a], row[b])
    return f"{size:+.1f} ± {half_:.1f}"


def ends(rows: Rows, column: str) -> str:
    found = [float(cells[column]["mean"]) for cells in rows.values() if {column, "pretraining"} <= cells.keys()]
    return f"{min(found):.1f} and {max(found):.1f}"


# --- claims and tables -----------------------------------------------------------------------------------------------


def claims(one: Rows, five: Rows, six: Rows, heads: dict[str, Rows]) -> list[str]:
    """What the paper says, whether it holds here, and why; each where its cells were measured."""
    row, lines = one["200"], []
    printed_ = ("pretrained", "srnn", "mrcl-first", "mrcl", "maml-rep-first", "maml-rep", "oml-first", "oml")
    rivals = [c for c in printed_ if c in row]
    if rivals and {"kcciol", "kcciol-paper"} <= row.keys():
        best = max(rivals, key=lambda c: float(row[c]["mean"]))
        lines += [
            "- **The representation learns new characters better than earlier ones.** "
            f"{verdict(one, 'kcciol', best)} against the best of them with printed settings (`{best}`): after 200 "
            f"classes {shown(row['kcciol'])} against {shown(row[best])}. With the paper's own hyper-parameters "
            f"(`kcciol-paper`) {shown(row['kcciol-paper'])}; the paper prints {shown(row['paper: kcciol'])}, and "
            f"{shown(row['paper: oml'])} for OML. (`oml` is what `kcciol-paper` is after "
            "its phase 1: the latter trains 19,000 steps longer.)"
        ]
    pairs = [(same, c) for same, c in SAME_AS if {same, c} <= row.keys()]
    if pairs and {"kcciol", "oml-same"} <= row.keys():
        gains = ", ".join(f"`{same}` from `{c}` {gap(row, same, c)}" for same, c in pairs)
        lines.append(
            "- **What explains the margin: how phase 1 is trained.** What our trajectories, remember set, reset, outer "
            f"rate and steps change in the rivals after 200 classes: {gains}. Against `oml-same`, which is "
            f"phase 1 for all the steps, `kcciol` is {counted(one, 'kcciol', 'oml-same')}; after 200 classes "
            f"{gap(row, 'kcciol', 'oml-same')}."
        )
    if {"control", "kcciol"} <= row.keys():
        lines.append(
            "- **Consolidation (the l1 term of phase 2, the constraint of phase 3) makes it better.** "
            f"{verdict(one, 'kcciol', 'control')} against the same steps and rates without either term (`control`): "
            f"after 200 classes {gap(row, 'kcciol', 'control')}; without the first alone (`gamma0`) "
            f"{gap(row, 'kcciol', 'gamma0')}, without the second (`lambda0`) {gap(row, 'kcciol', 'lambda0')}. Where "
            "two columns were given different rates (below), the difference is of the rates too."
        )
    if {"kcciol-o", "kcciol"} <= row.keys():
        lines.append(
            "- **Holding the important part of the weights is better than holding all (KCCIOL-o).** "
            f"{verdict(one, 'kcciol', 'kcciol-o')}: after 200 classes {gap(row, 'kcciol', 'kcciol-o')}."
        )
    paired = [cells for rows in (five, six) for cells in rows.values() if {"kcciol", "pretraining"} <= cells.keys()]
    if paired:
        others = [c for c in STARTS if c != "kcciol"]
        top = sum(all(cells["kcciol"]["mean"] > cells[c]["mean"] for c in others if c in cells) for cells in paired)
        lines.append(
            "- **Every continual learner gains from it (Tables 5 and 6).** "
            f"{'Holds' if top == len(paired) else 'Holds in part' if top else 'Does not hold'}: in {top} of "
            f"{len(paired)} rows `kcciol` is the highest. In Table 5 the learners lie "
            f"between {ends(five, 'kcciol')} on its features, on OML's between {ends(five, 'oml')}, on supervised "
            f"ones between {ends(five, 'pretraining')}."
        )
    return [*lines, *findings_heads(heads)]


def findings1(rows: Rows) -> list[str]:
    lines = [compared(rows, column, "paper: kcciol") for column in ("kcciol", "kcciol-paper")]
    for column in ("scratch", "pretrained", "srnn", "mrcl", "maml-rep", "oml"):
        lines.append(compared(rows, column, f"paper: {column}"))
    return [*lines, compared(rows, "kcciol-paper", "oml"), compared(rows, "kcciol", "oml")]


def findings_rivals(rows: Rows) -> list[str]:
    lines = [compared(rows, same, printed_) for same, printed_ in SAME_AS]
    lines += [compared(rows, name, f"{name}-first") for name in ("maml-rep", "mrcl", "oml")]
    return [*lines, compared(rows, "kcciol", "oml-same"), compared(rows, "kcciol", "anml")]


def findings_controls(rows: Rows) -> list[str]:
    return [compared(rows, "kcciol", other) for other in ("control", "gamma0", "lambda0", "oml-same", "kcciol-o")]


def findings5(five: Rows, six: Rows) -> list[str]:
    lines = []
    for name, rows in (("one class a task", five), ("five classes a task", six)):
        for column in STARTS[1:5]:
            lines.append(compared(rows, column, f"paper: {column}", f"{name}, learners"))
    return lines


def findings_heads(rows: dict[str, Rows]) -> list[str]:
    """How much of what is lost is the head's."""
    lines = []
    for n, columns in rows.items():
        pairs = [(name, head, cell) for name, cells in columns.items() for head, cell in cells.items()]
        name, head, cell = max(pairs, key=lambda pair: float(pair[2]["mean"]))
        both_ = [cells for cells in columns.values() if {"ncm", "online-adam"} <= cells.keys()]
        more = sum(differs(cells["ncm"], cells["online-adam"]) > 0 for cells in both_)
        lines.append(
            f"- **How much of the forgetting is the head's, after {n} classes.** Class means, which cannot forget, are "
            f"above the online Adam head on {more} of {len(both_)} representations"
            + (f" (on `kcciol` {gap(columns['kcciol'], 'ncm', 'online-adam')})" if "kcciol" in columns else "")
            + f"; the best pair is `{name}` with `{head}`, {shown(cell)}."
        )
    return lines
