"""Write docs/results-omniglot.md from results/table1.json, table5.json, table6.json and heads.json: nothing is typed.

python benchmarks/results_page.py            write it
python benchmarks/results_page.py --check    say whether it is up to date (exit code 1 when not)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from omniglot_findings import (
    STARTS,
    Cell,
    Rows,
    claims,
    findings1,
    findings5,
    findings_controls,
    findings_means,
    findings_rivals,
    shown,
)

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results-omniglot.md"


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
        "With class means instead of the head, which have no rate:",
        "",
        *table(one["rows"], MEANS, "classes"),
        "",
        *findings_means(one["rows"]),
        "",
        "## Forgetting",
        "",
        *FORGETTING.splitlines(),
        "",
        *forgotten(one["rows"], ["pretrained", "oml", *CONTROLS], "classes"),
        "",
        "Of the learners of Table 5:",
        "",
        *forgotten(five["rows"], STARTS[:5], "learner"),
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
    trained = {c: [t for t in each if t is not None] for c, each in one["training_seconds"].items()}
    spans = {c: [f"{sum(t) / len(t):.0f}" if t else "", f"{seconds[c]:.0f}"] for c, t in trained.items()}
    return [
        f"What is on this page took {minutes:.1f} minutes of one GPU, up to {jobs} processes at a time sharing it, so",
        "that the seconds below, each process's own, add up to more. A column that goes on from another's phases has",
        "its own steps only; `gamma0` was trained when phase 2, which `control` shares with it, was its own. Training:",
        "the mean over seeds; measuring: the sum over all cells and seeds.",
        "",
        *markdown("representation", ["training, s a seed", "measuring, s"], spans),
    ]


ABOUT = """\
Made by `benchmarks/results_page.py` from `results/`: nothing is typed. Names of representations and learners are
explained in [methods.md](methods.md), the protocol in [protocol.md](protocol.md). Accuracy (%) on held-out images of
novel characters; a *stream* is so many of them, one class after another, 15 images each; 50 streams a seed (Tables 5
and 6: 10). ± is the 95 % interval over all streams of all seeds, given these seeds (how many: below Table 1); of 659
novel characters 600 are nearly all, so there the streams hardly differ.

Two columns are compared on the seeds that both have, stream by stream. The ± of a difference is its 95 % interval over
the seeds, of which there are three (wide, with so few); † marks those that rest on fewer, where it is over the streams
and knows nothing of other seeds. "Above" and "below" are differences whose interval leaves out zero; the rest is "not
told apart", which may be large where seeds differ. Against the paper: by the spread of both (where it prints none, its
number is taken as exact).

Representations are trained on 863 base characters. Rates and settings are chosen on the other 100, never on novel
ones: of the gradient head for each number of classes, on 200 streams of 10 down to 4 of 600, filled up with
characters trained on where 100 are too few (every rate is tried for 10 classes, then those around the last choice,
until two worse ones have been tried on either side of the best); of the other learners once, on streams of up to 100
characters (of whole networks, which are costly, on 20 with a smaller grid, in Table 1 on 50). * marks a choice at the
end of its grid. The tables of protocol.md are of representations trained on all 963 base
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
FORGETTING = """\
Points of accuracy that a class has lost since it was known best, the mean over all classes but the last one; where it
is below zero, classes have gained since. A head that learns slowly forgets little: accuracy says what that is worth.
"""
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
CONTROLS = ["kcciol-phase1", "kcciol-phase2", "oml-same", "control", "gamma0", "lambda0", "kcciol", "kcciol-o"]
MEANS = [f"{column} + ncm" for column in ("kcciol-phase1", "kcciol-phase2", "control", "kcciol")]
HEADS = ["online-sgd", "online-adam", "ncm", "gaussian", "slda", "ridge", "pixels"]


# --- tables -----------------------------------------------------------------------------------------------------------


def markdown(axis: str, columns: list[str], rows: dict[str, list[str]]) -> list[str]:
    """Rows of cells; those with none are left out."""
    lines = ["| " + " | ".join([axis, *columns]) + " |", "| --- " * (len(columns) + 1) + "|"]
    return lines + ["| " + " | ".join([name, *cells]) + " |" for name, cells in rows.items() if any(cells)]


def there(rows: Rows, columns: list[str]) -> list[str]:
    """Those of the columns that have a cell."""
    return [c for c in columns if any(c in row for row in rows.values())]


def table(rows: Rows, columns: list[str], axis: str, paper: bool = False) -> list[str]:
    """With paper, the printed number in brackets."""
    used = there(rows, columns)
    return markdown(
        axis,
        used,
        {
            name: [shown(row.get(c)) + (printed(row.get(f"paper: {c}")) if paper else "") for c in used]
            for name, row in rows.items()
        },
    )


def printed(cell: Cell | None) -> str:
    return "" if cell is None else f" ({cell['mean']:.1f})"


def rates(rows: Rows, columns: list[str]) -> list[str]:
    """What was chosen for each seed, in units of 1e-4."""
    used = there(rows, columns)

    def chosen(cell: Cell | None) -> str:
        return ", ".join(f"{1e4 * choice['chosen']:.2g}" for choice in (cell or {}).get("choice", []))

    return markdown("classes", used, {n: [chosen(row.get(c)) for c in used] for n, row in rows.items()})


def forgotten(rows: Rows, columns: list[str], axis: str) -> list[str]:
    used = there(rows, columns)
    return markdown(axis, used, {name: [forgetting_of(row.get(c)) for c in used] for name, row in rows.items()})


def forgetting_of(cell: Cell | None) -> str:
    """Of a gradient head in the cell itself, of a learner in the summary of its course."""
    own = (cell or {}).get("forgetting", ((cell or {}).get("summary") or {}).get("forgetting", {}).get("mean"))
    return "" if own is None else f"{own:.1f}"


def kept(rows: Rows) -> list[str]:
    """Bytes by learner and start; those that replay and keep more than the budget are marked."""

    def size(cell: Cell | None) -> str:
        if cell is None:
            return ""
        over = " (over)" if cell["replay"] and not cell.get("within_budget", True) else ""
        return f"{sum(cell['bytes'].values()) / 1000:,.0f}{over}"

    return markdown("learner", STARTS[:5], {n: [size(row.get(s)) for s in STARTS[:5]] for n, row in rows.items()})


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
