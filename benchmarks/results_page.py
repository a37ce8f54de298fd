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
    counts = list(one["seeds"].values())
    lines = [
        "# Omniglot: what holds of the paper's claims",
        "",
        *ABOUT.format(seeds=max(map(len, counts))).splitlines(),
        "",
        "## In short",
        "",
        *in_short(one["rows"], five["rows"], heads["rows"]),
        "",
        "## Table 1: representations, gradient head",
        "",
        *table(one["rows"], PRINTED, "classes"),
        "",
        *findings1(one["rows"]),
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
        f"What each keeps beside the network after 50 classes, in kB (the budget is {200 * 84 * 84 / 1e3:,.0f}):",
        "",
        *kept(five["rows"]),
        "",
        "## Heads",
        "",
    ]
    for n, rows in heads["rows"].items():
        lines += [f"After {n} classes:", "", *table(rows, HEADS, "representation"), ""]
    lines += ["## Time", "", *times(one, five, six, heads)]
    return "\n".join(lines) + "\n"


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
        "seconds below, each process's own, add up to more. Means over seeds for training; the sum of all cells.",
        "",
        "| representation | training, s a seed | measuring, s |",
        "| --- | --- | --- |",
    ]
    for column, trained in one["training_seconds"].items():
        mean = sum(trained) / len(trained)
        lines.append(f"| {column} | {mean:.0f} | {seconds[column]:.0f} |")
    return lines


ABOUT = """\
Made by `benchmarks/results_page.py` from `results/`. Accuracy (%) on held-out images of novel characters; ± is the 95
% interval over all streams of all seeds (up to {seeds} representations a column), given these seeds. "Above", "below"
and "level" are by the seeds, and against the paper by the spread of both (where it prints none, its number is taken
as exact). Representations are trained on 863 base characters. Rates and settings are chosen on the other 100, never
on novel ones: of the gradient head for each number of classes, on streams of that length, filled up with characters
trained on where 100 are too few (every rate is tried for 10 classes, then those around the last choice, until two
worse ones have been tried on either side of the best); of the other learners once, on streams of up to 100
characters (of whole networks, which are costly, on 20, with a smaller grid).
"""
SAME = """\
`-same` has our trajectories, remember set, reset and number of steps. What is left of OML is then phase 1 alone; of
MRCL its first-order gradient; of MAML-Rep that the images of a trajectory are learned together. `-first` is first
order.
"""
LEARNERS = """\
The printed number in brackets. `standard`: supervised, the whole network learns; `pretraining`: the same, frozen, as
`oml` and `kcciol`; `scratch`: random, the whole network learns. Replay learners keep what fits into the bytes of 200
images, or 200 examples where it says so. SGD or Adam, whichever did better on base classes. 10 streams, one seed.
`pixels` and `untrained` are the floors: class means on raw pixels and on the features of a random network.
"""
STARTS = ["scratch", "standard", "pretraining", "oml", "kcciol", "pixels", "untrained"]
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
    return f"{cell['mean']:.1f}" + (f" ± {cell['ci95']:.1f}" if cell.get("ci95") is not None else "")


def printed(cell: Cell | None) -> str:
    return "" if cell is None else f" ({cell['mean']:.1f})"


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


def differs(a: Cell, b: Cell) -> float:
    """a - b when it can be told from zero, else 0. Methods are told apart by their seeds: the differences of the seeds'
    means where both have the same two or more; with one seed, and against the paper, the intervals over streams."""
    gap = float(a["mean"]) - float(b["mean"])
    ours, theirs = a.get("by_seed", []), b.get("by_seed", [])
    if len(ours) > 1 and a.get("seeds") == b.get("seeds"):
        found = summarize(torch.tensor(ours) - torch.tensor(theirs))
        return gap if abs(gap) > (found.ci95 or 0.0) else 0.0
    return gap if abs(gap) > math.hypot(half(a), half(b)) else 0.0


def half(cell: Cell) -> float:
    """Half of a 95 % interval: of ours over streams, or over seeds where that is wider; of the paper's from its spread,
    zero where it prints none."""
    if "ci95" in cell:
        return max(cell["ci95"] or 0.0, cell.get("ci95_seeds") or 0.0)
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


def in_short(one: Rows, five: Rows, heads: dict[str, Rows]) -> list[str]:
    """Three sentences, where their cells were measured."""
    lines, row = [], one["200"]
    if {"oml", "oml-same", "control", "kcciol"} <= row.keys():
        oml, same, control, ours = (float(row[c]["mean"]) for c in ("oml", "oml-same", "control", "kcciol"))
        lines.append(
            f"- After 200 classes `kcciol` is {ours - oml:+.1f} points from OML as printed. OML with our trajectories, "
            f"remember set, reset and steps (`oml-same`) is {same - oml:+.1f} from it; the two terms of phases 2 and 3 "
            f"(`kcciol` against `control`) make {ours - control:+.1f}"
            + (" (not to be told from zero)." if not differs(row["kcciol"], row["control"]) else ".")
        )
    kcciol = {r: cells for r, cells in five.items() if {"kcciol", "pretraining"} <= cells.keys()}
    if kcciol:
        spread = [max(float(cells[c]["mean"]) for cells in kcciol.values()) for c in ("pretraining", "kcciol")]
        low = [min(float(cells[c]["mean"]) for cells in kcciol.values()) for c in ("pretraining", "kcciol")]
        lines.append(
            f"- On `kcciol`'s features all {len(kcciol)} rows of Table 5 lie between {low[1]:.1f} and {spread[1]:.1f}; "
            f"on supervised ones between {low[0]:.1f} and {spread[0]:.1f}: the start matters more than the learner."
        )
    return [*lines, *findings_heads(heads)]


def findings1(rows: Rows) -> list[str]:
    lines = [compared(rows, column, "paper: kcciol") for column in ("kcciol", "kcciol-paper")]
    for column in ("scratch", "pretrained", "srnn", "mrcl", "maml-rep", "oml"):
        lines.append(compared(rows, column, f"paper: {column}"))
    return [*lines, compared(rows, "kcciol-paper", "oml"), compared(rows, "kcciol", "oml")]


def findings_rivals(rows: Rows) -> list[str]:
    lines = [compared(rows, f"{name}-same", name) for name in ("maml-rep", "mrcl", "oml")]
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
    lines = []
    for n, columns in rows.items():
        best = max(
            ((head, name, cell) for name, cells in columns.items() for head, cell in cells.items()),
            key=lambda item: float(item[2]["mean"]),
        )
        lines.append(f"- After {n} classes the best pair is `{best[1]}` with `{best[0]}`: {shown(best[2])}.")
        wins = [c for c, cells in columns.items() if {"ncm", "online-adam"} <= cells.keys()]
        beaten = [c for c in wins if differs(columns[c]["ncm"], columns[c]["online-adam"]) > 0]
        lines.append(
            f"- After {n} classes class means beat the online Adam head on {len(beaten)} of {len(wins)} representations"
            + (f" ({', '.join(beaten)})." if beaten else ".")
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
