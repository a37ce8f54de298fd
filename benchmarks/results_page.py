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
% interval over all streams of all seeds, given these seeds (how many: below Table 1). "Above", "below" and "level"
are by the seeds where both sides have three, else by the streams, and against the paper by the spread of both (where
it prints none, its number is taken as exact). Representations are trained on 863 base characters. Rates and settings
are chosen on the other 100, never on novel ones: of the gradient head for each number of classes, on streams of that
length, filled up with characters trained on where 100 are too few (every rate is tried for 10 classes, then those
around the last choice, until two worse ones have been tried on either side of the best); of the other learners once,
on streams of up to 100 characters (of whole networks, which are costly, on 20, with a smaller grid).
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
    means where both have the same three or more; with fewer, and against the paper, the intervals over streams."""
    gap = float(a["mean"]) - float(b["mean"])
    ours, theirs = a.get("by_seed", []), b.get("by_seed", [])
    if len(ours) >= SEEDS and a.get("seeds") == b.get("seeds"):
        found = summarize(torch.tensor(ours) - torch.tensor(theirs))
        return gap if abs(gap) > (found.ci95 or 0.0) else 0.0
    return gap if abs(gap) > math.hypot(half(a), half(b)) else 0.0


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
    rivals = [c for c in ("pretrained", "srnn", "mrcl", "maml-rep", "oml") if c in row]
    if rivals and {"kcciol", "kcciol-paper"} <= row.keys():
        best = max(rivals, key=lambda c: float(row[c]["mean"]))
        lines += [
            "- **The representation learns new characters better than earlier ones.** "
            f"{verdict(one, 'kcciol', best)} against the best of them with printed settings (`{best}`): after 200 "
            f"classes {shown(row['kcciol'])} against {shown(row[best])} (paper {shown(row['paper: kcciol'])} against "
            f"{shown(row[f'paper: {best}'])}). With the paper's own hyper-parameters (`kcciol-paper`): "
            f"{shown(row['kcciol-paper'])}."
        ]
    same = [c for c in ("maml-rep", "mrcl", "oml") if {c, f"{c}-same"} <= row.keys()]
    if same and "kcciol" in row:
        gains = ", ".join(f"`{c}` {float(row[f'{c}-same']['mean']) - float(row[c]['mean']):+.1f}" for c in same)
        lines.append(
            "- **What explains the margin: the trajectories.** Rivals that are given our trajectories, remember set, "
            f"reset and steps change after 200 classes by: {gains}. Against `oml-same`, which is phase 1 for all the "
            f"steps, `kcciol` is {counted(one, 'kcciol', 'oml-same')}; after 200 classes "
            f"{gap(row, 'kcciol', 'oml-same')}."
        )
    if {"control", "kcciol"} <= row.keys():
        lines.append(
            "- **Consolidation (the l1 term of phase 2, the constraint of phase 3) keeps it from forgetting.** "
            f"{verdict(one, 'kcciol', 'control')} against the same steps and rates without either term (`control`): "
            f"after 200 classes {gap(row, 'kcciol', 'control')}; without the first alone (`gamma0`) "
            f"{gap(row, 'kcciol', 'gamma0')}, without the second (`lambda0`) {gap(row, 'kcciol', 'lambda0')}."
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
            f"{len(paired)} rows `kcciol` is above every other start. In Table 5 the learners lie between "
            f"{ends(five, 'kcciol')} on its features, between {ends(five, 'oml')} on OML's and between "
            f"{ends(five, 'pretraining')} on supervised ones: the start matters more than the learner."
        )
    return [*lines, *findings_heads(heads)]


def verdict(rows: Rows, a: str, b: str) -> str:
    """Whether a is better than b, and in how many rows."""
    pairs = both(rows, a, b)
    more = sum(differs(x, y) > 0 for _, x, y in pairs)
    word = "Holds" if more == len(pairs) else "Holds in part" if more else "Not seen here"
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
    size = f"{float(row[a]['mean']) - float(row[b]['mean']):+.1f}"
    return size if differs(row[a], row[b]) else f"{size} (not to be told from zero)"


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
