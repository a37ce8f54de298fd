"""Write docs/results-omniglot.md from results/table1.json, table5.json, table6.json and heads.json: nothing is typed.

python benchmarks/results_page.py            write it
python benchmarks/results_page.py --check    say whether it is up to date (exit code 1 when not)
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from kcciol.evaluation.metrics import summarize

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results-omniglot.md"
Cell = dict[str, Any]
Rows = dict[str, dict[str, Cell]]


def page(results: Path = ROOT / "results") -> str:
    """The whole page."""
    one, five, six, heads = (json.loads((results / f"{n}.json").read_text()) for n in NAMES)
    lines = [
        "# Omniglot: what holds of the paper's claims",
        "",
        *ABOUT.splitlines(),
        "",
        "## In plain words",
        "",
        *claims(one["rows"], five["rows"], six["rows"], heads["rows"]),
        "",
        "## Table 1: representations, gradient head",
        "",
        *table(one["rows"], PRINTED, "classes"),
        "",
        *findings1(one["rows"]),
        f"- Seeds of the representations: {seeds_of(one['seeds'])}.",
        "",
        "## The same trajectories for the rivals",
        "",
        *SAME.splitlines(),
        "",
        *table(one["rows"], RIVALS, "classes"),
        "",
        *findings_rivals(one["rows"]),
        "",
        "## What consolidation adds",
        "",
        *table(one["rows"], CONTROLS, "classes"),
        "",
        *findings_controls(one["rows"]),
        "",
        "The rates of Adam that were chosen for each number of classes, by seed, in units of 1e-4:",
        "",
        *rates(one["rows"], ["oml", *CONTROLS]),
        "",
        "## Forgetting",
        "",
        *FORGETTING.splitlines(),
        "",
        *forgotten(
            {n: {c: cell.get("forgetting") for c, cell in row.items()} for n, row in one["rows"].items()},
            ["pretrained", "oml", *CONTROLS],
            "classes",
        ),
        "",
        "Of the learners of Table 5:",
        "",
        *forgotten(
            {n: {c: of_summary(cell) for c, cell in row.items()} for n, row in five["rows"].items()},
            STARTS[:5],
            "learner",
        ),
        "",
        "## Tables 5 and 6: continual learners",
        "",
        *LEARNERS.splitlines(),
        "",
        "50 tasks of one class:",
        "",
        *table(five["rows"], STARTS, "learner", paper=True),
        "",
        "20 tasks of five classes:",
        "",
        *table(six["rows"], STARTS, "learner", paper=True),
        "",
        *findings5(five["rows"], six["rows"]),
        "",
        "What each keeps beside the network after 50 classes, in kB. The budget is "
        f"{200 * 84 * 84 / 1e3:,.0f}; it binds what keeps examples, and what of that keeps more is marked (over):",
        "",
        *kept(five["rows"]),
        "",
        "## Heads",
        "",
    ]
    for n, rows in heads["rows"].items():
        named = {"untrained" if name == "scratch" else name: cells for name, cells in rows.items()}
        lines += [f"After {n} classes:", "", *table(named, HEADS, "representation"), ""]
    lines += ["## Time", "", *times(one, five, six, heads)]
    return "\n".join(lines) + "\n"


def seeds_of(seeds: dict[str, list[int]]) -> str:
    """How many each column has."""
    kinds = sorted({len(found) for found in seeds.values()}, reverse=True)
    if len(kinds) == 1:
        return f"{kinds[0]} in every column"
    return "; ".join(f"{n} of {', '.join(c for c, found in seeds.items() if len(found) == n)}" for n in kinds)


def times(one: dict[str, Any], *others: dict[str, Any]) -> list[str]:
    """Of the device in all, and of each representation and its cells."""
    spent = one.get("device_seconds", [])
    minutes = sum(part["seconds"] for part in spent) / 60
    seconds: dict[str, float] = {}
    for data in (one, *others):
        for column, cells in data["seconds"].items():
            seconds[column] = seconds.get(column, 0.0) + sum(sum(values) for values in cells.values())
    jobs = max((part["jobs"] for part in spent), default=1)
    lines = [
        f"All of it took {minutes:.1f} minutes of one GPU, up to {jobs} processes at a time sharing it, so that the",
        "seconds below, each process's own, add up to more. A column that goes on from another's phases counts its own",
        "steps only. Training: the mean over seeds; measuring: the sum over all cells and seeds.",
        "",
        "| representation | training, s a seed | measuring, s |",
        "| --- | --- | --- |",
    ]
    for column, trained in one["training_seconds"].items():
        mean = sum(trained) / len(trained)
        lines.append(f"| {column} | {mean:.0f} | {seconds[column]:.0f} |")
    return lines


ABOUT = """\
Made by `benchmarks/results_page.py` from `results/`: nothing is typed. Names of representations and learners are
explained in [methods.md](methods.md), the protocol in [protocol.md](protocol.md). Accuracy (%) on held-out images of
novel characters; a *stream* is so many of them, one class after another, 15 images each; 50 streams a seed (Tables 5
and 6: 10). ± is the 95 % interval over all streams of all seeds, given these seeds (how many: below Table 1); of 659
novel characters 600 are nearly all, so there the streams hardly differ.

Two columns are compared on the seeds that both have, stream by stream: "above" and "below" are differences whose 95 %
interval over the seeds leaves out zero where there are three, else that over the streams, which knows nothing of
other seeds; the rest is "level". Against the paper: by the spread of both (where it prints none, its number is taken
as exact).

Representations are trained on 863 base characters. Rates and settings are chosen on the other 100, never on novel
ones: of the gradient head for each number of classes, on 200 streams of 10 down to 4 of 600, filled up with
characters trained on where 100 are too few (every rate is tried for 10 classes, then those around the last choice,
until two worse ones have been tried on either side of the best); of the other learners once, on streams of up to 100
characters (of whole networks, which are costly, on 20 with a smaller grid, in Table 1 on 50). * marks a choice at the
end of its grid. The tables of the README and of protocol.md are of representations trained on all 963 base
characters, with rates chosen on the training streams, so their numbers differ from these by a point or so.
"""
SAME = """\
`-same` has what our preset has: trajectories of five classes of five images (printed: one class of ten), 64
remembered images (10), rows of W reset to zero (drawn anew), an outer rate of 3e-4 (1e-4) and 39,000 steps. What is
left of OML is then phase 1 alone; of MRCL its first-order gradient; of MAML-Rep that the images of a trajectory are
learned together. Which of these changes does it is not taken apart here. `-first` is first order.
"""
LEARNERS = """\
The printed number in brackets. `standard`: supervised, the whole network learns; `pretraining`: the same, frozen, as
`oml` and `kcciol`; `scratch`: random, the whole network learns. Replay learners keep what fits into the bytes of 200
images, or 200 examples where it says so. SGD or Adam, whichever did better on base classes. 10 streams, one seed.
`er-reservoir` is the learner `er`. `pixels` and `untrained` are the floors: class means on raw pixels and on the
features of a random network.
"""
STARTS = ["scratch", "standard", "pretraining", "oml", "kcciol", "pixels", "untrained"]
FORGETTING = """\
Points of accuracy that a class has lost since it was known best, the mean over all classes but the last one; where it
is below zero, classes have gained since. A head that learns slowly forgets little: accuracy says what that is worth.
"""
# a rival with our trajectories, and as printed; of MRCL the one of the same order
SAME_AS = [("maml-rep-same", "maml-rep-first"), ("maml-rep-same", "maml-rep"), ("mrcl-same", "mrcl-first")]
SAME_AS += [("oml-same", "oml")]
SEEDS = 3  # with fewer, their spread says next to nothing
NAMES = ("table1", "table5", "table6", "heads")
PRINTED = ["pixels + ncm", "untrained + ncm", "scratch", "pretrained", "srnn", "mrcl", "maml-rep", "oml"]
PRINTED += ["kcciol-paper", "kcciol", "paper: kcciol"]
RIVALS = [
    "maml-rep-first",
    "maml-rep",
    "maml-rep-same",
    "mrcl-first",
    "mrcl",
    "mrcl-same",
    "oml-first",
    "oml",
    "oml-same",
]
RIVALS += ["anml", "kcciol"]
CONTROLS = ["oml-same", "control", "gamma0", "lambda0", "kcciol", "kcciol-o"]
HEADS = ["online-sgd", "online-adam", "ncm", "gaussian", "slda", "ridge", "pixels"]


# --- tables -----------------------------------------------------------------------------------------------------------


def table(rows: Rows, columns: list[str], axis: str, paper: bool = False) -> list[str]:
    """Markdown; with paper, the printed number in brackets."""
    used = [c for c in columns if any(c in row for row in rows.values())]
    lines = ["| " + " | ".join([axis, *used]) + " |", "| --- " * (len(used) + 1) + "|"]
    for name, row in rows.items():
        if any(c in row for c in used):
            cells = [shown(row.get(c)) + (printed(row.get(f"paper: {c}")) if paper else "") for c in used]
            lines.append("| " + " | ".join([name, *cells]) + " |")
    return lines


def shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    edge = any(choice.get("at_edge") for choice in cell.get("choice", []))
    return f"{cell['mean']:.1f}" + (f" ± {cell['ci95']:.1f}" if cell.get("ci95") is not None else "") + "\\*" * edge


def printed(cell: Cell | None) -> str:
    return "" if cell is None else f" ({cell['mean']:.1f})"


def rates(rows: Rows, columns: list[str]) -> list[str]:
    used = [c for c in columns if any(c in row for row in rows.values())]
    lines = ["| classes | " + " | ".join(used) + " |", "| --- " * (len(used) + 1) + "|"]
    for n, row in rows.items():
        chosen = [[c["chosen"] for c in row[column]["choice"]] if column in row else [] for column in used]
        lines.append(f"| {n} | " + " | ".join(", ".join(f"{1e4 * r:.2g}" for r in some) for some in chosen) + " |")
    return lines


def forgotten(rows: dict[str, dict[str, float | None]], columns: list[str], axis: str) -> list[str]:
    used = [c for c in columns if any(row.get(c) is not None for row in rows.values())]
    lines = [f"| {axis} | " + " | ".join(used) + " |", "| --- " * (len(used) + 1) + "|"]
    for name, row in rows.items():
        values = [row.get(c) for c in used]
        if any(v is not None for v in values):
            lines.append(f"| {name} | " + " | ".join("" if v is None else f"{v:.1f}" for v in values) + " |")
    return lines


def of_summary(cell: Cell) -> float | None:
    found = (cell.get("summary") or {}).get("forgetting") or {}
    return found.get("mean")


def kept(rows: Rows) -> list[str]:
    """Bytes by learner and start; those that replay and keep more than the budget are marked."""
    lines = ["| learner | " + " | ".join(STARTS[:5]) + " |", "| --- " * 6 + "|"]
    for name, row in rows.items():
        cells = []
        for start in STARTS[:5]:
            cell = row.get(start)
            size = "" if cell is None else f"{sum(cell['bytes'].values()) / 1000:,.0f}"
            cells.append(size + (" (over)" if cell and cell["replay"] and not cell.get("within_budget", True) else ""))
        if any(cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


# --- findings ---------------------------------------------------------------------------------------------------------


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
    pairs = both(rows, a, b)
    above = [(n, differs(x, y)) for n, x, y in pairs if differs(x, y) > 0]
    below = [(n, differs(x, y)) for n, x, y in pairs if differs(x, y) < 0]
    parts = []
    for words, some in (("above", above), ("below", below)):
        if some:
            gaps = [abs(g) for _, g in some]
            spread = f"{min(gaps):.1f}" if len(gaps) == 1 else f"{min(gaps):.1f} to {max(gaps):.1f}"
            parts.append(f"{words} by {spread} at {', '.join(n for n, _ in some)}")
    if len(above) + len(below) < len(pairs):
        level = [n for n, x, y in pairs if not differs(x, y)]
        parts.append(f"level at {', '.join(level)}")
    return f"- `{a}` against `{b}` ({unit}): {'; '.join(parts) or 'not measured'}."


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
        top = sum(all(above(cells["kcciol"], cells[c]) for c in others if c in cells) for cells in paired)
        lines.append(
            "- **Every continual learner gains from it (Tables 5 and 6).** "
            f"{'Holds' if top == len(paired) else 'Holds in part' if top else 'Does not hold'}: in {top} of "
            f"{len(paired)} rows `kcciol` is the highest. In Table 5 the learners lie "
            f"between {ends(five, 'kcciol')} on its features, on OML's between {ends(five, 'oml')}, on supervised "
            f"ones between {ends(five, 'pretraining')}."
        )
    return [*lines, *findings_heads(heads)]


def verdict(rows: Rows, a: str, b: str) -> str:
    """Whether a is better than b, and in how many rows."""
    gaps = [differs(x, y) for _, x, y in both(rows, a, b)]
    if not gaps:
        return "Not measured"
    more, less = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    word = "Holds" if more == len(gaps) else "Not seen here" if not more else "Mixed" if less else "Holds in part"
    return f"{word}: {counted(rows, a, b)}"


def counted(rows: Rows, a: str, b: str) -> str:
    signs = [differs(x, y) for _, x, y in both(rows, a, b)]
    words = {
        "above": sum(d > 0 for d in signs),
        "level": sum(d == 0 for d in signs),
        "below": sum(d < 0 for d in signs),
    }
    return ", ".join(f"{word} in {n}" for word, n in words.items() if n) + f" of {len(signs)} rows"


def gap(row: dict[str, Cell], a: str, b: str) -> str:
    """By how much a is from b."""
    if not {a, b} <= row.keys():
        return "not measured"
    size, half_ = difference(row[a], row[b])
    return f"{size:+.1f} ± {half_:.1f}"


def above(a: Cell, b: Cell) -> bool:
    return float(a["mean"]) > float(b["mean"])


def ends(rows: Rows, column: str) -> str:
    found = [float(cells[column]["mean"]) for cells in rows.values() if {column, "pretraining"} <= cells.keys()]
    return f"{min(found):.1f} and {max(found):.1f}"


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


def main() -> int:
    new = page()
    if "--check" in sys.argv:
        old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
