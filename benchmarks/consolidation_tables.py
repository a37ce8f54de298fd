"""Tables of results/consolidation.json in Markdown, for docs/consolidation.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paper_tables import RESULTS, markdown_table, read

from kcciol.numbers import half_width
from kcciol.paper.consolidation.heads import HEADS, MEANS
from kcciol.paper.consolidation.plan import CONTROL, HELD, KCCIOL, L1, NOTHING, PHASE1, PLAIN, STRONG
from kcciol.paper.report.consolidation import gap

FILE = "consolidation.json"
NOT_YET = "(Not made yet: `python benchmarks/consolidation.py`.)"
STOPPED = ("plain, stopped early", "control, stopped early", "kcciol, stopped early")
STOPPING = (PHASE1, PLAIN, STOPPED[0], CONTROL, STOPPED[1], KCCIOL, STOPPED[2])
STOPPING_GAPS = [(KCCIOL, STOPPED[0]), (KCCIOL, CONTROL), (KCCIOL, PLAIN), (STOPPED[2], STOPPED[0]), (PLAIN, PHASE1)]
SWAPPED = (PHASE1, NOTHING, L1, "decay", "dropout", "augment")
SWAPPED_GAPS = [(name, NOTHING) for name in SWAPPED[2:]] + [(L1, name) for name in SWAPPED[3:]]
HOLDING = ("lambda 0", "l1 continued", *(f"lambda {lam:g}, {held}" for lam in STRONG for held in HELD))
HOLDING_GAPS = [(name, "lambda 0") for name in HOLDING[1:]]
Rows = dict[str, dict[str, dict[str, Any]]]


def places(rows: Mapping[str, Any], reset: str) -> dict[str, str]:
    """By what a column is called: the key of its group."""
    found = {}
    for name in rows:
        data, its_reset, head = name.split()
        if its_reset == reset:
            found[f"{data}, {head}"] = name
    return found


def cells(conditions: Sequence[str], reset: str) -> Callable[[], str]:
    """A row for each condition: mean and interval over seeds, by data set and head."""

    def shown(rows: Rows, group: str, condition: str) -> str:
        cell = rows[group].get(condition)
        if cell is None:
            return ""
        return f"{cell['mean']:.1f}{half_width(cell['ci95'])}{'†' if any(cell['at_edge']) else ''}"

    return made(conditions, reset, "condition", shown)


def gaps(pairs: Sequence[tuple[str, str]], reset: str) -> Callable[[], str]:
    """A row for each pair: the difference on the same streams, with its interval over seeds."""
    named = {f"{one} − {other}": (one, other) for one, other in pairs}

    def shown(rows: Rows, group: str, name: str) -> str:
        both = [rows[group].get(condition) for condition in named[name]]
        found = gap(both[0], both[1]) if both[0] is not None and both[1] is not None else None
        return "" if found is None else f"{found.mean:+.1f}{half_width(found.half)}"

    return made(list(named), reset, "difference", shown)


def made(names: Sequence[str], reset: str, axis: str, shown: Callable[[Rows, str, str], str]) -> Callable[[], str]:
    """A table with a column for each data set and head."""

    def table() -> str:
        if not (RESULTS / FILE).exists():
            return NOT_YET
        rows = read(FILE)["rows"]
        columns = places(rows, reset)
        return markdown_table(
            axis, list(columns), {name: [shown(rows, group, name) for group in columns.values()] for name in names}
        )

    return table


def along() -> str:
    """Accuracy along plain training: class means, on classes trained on and on base classes kept out of training."""
    if not (RESULTS / FILE).exists():
        return NOT_YET
    curves = read(FILE)["curves"]
    columns, rows = [], dict[str, list[str]]()
    for name, found in curves.items():
        data, reset = name.split()
        columns += [f"{data}, reset {reset}: {which}" for which in ("trained on", "kept out")]
        done = [*found[PHASE1], *({**p, "step": p["step"] + found[PHASE1][-1]["step"]} for p in found[PLAIN])]
        for point in done:
            rows.setdefault(f"{point['step']:,.0f}", []).extend(f"{point[key]:.1f}" for key in ("seen", MEANS))
    return markdown_table("steps", columns, rows)


def chosen() -> str:
    """The strengths that did best on base classes kept out of training, seed by seed."""
    if not (RESULTS / FILE).exists():
        return NOT_YET
    rows = read(FILE)["rows"]
    names = [name for name in SWAPPED if name not in (PHASE1, NOTHING)]
    groups = [name for name in rows if name.split()[2] in HEADS]
    table = {name: ["; ".join(rows[group][name]["option"]) if name in rows[group] else "" for name in names]
             for name, group in ((group, group) for group in groups)}  # fmt: skip
    return markdown_table("data set, reset, head", names, table)


WORTH: dict[str, Callable[[], str]] = {
    "along": along,
    "stopping": cells(STOPPING, "zero"),
    "stopping_gaps": gaps(STOPPING_GAPS, "zero"),
    "stopping_none": cells(STOPPING, "none"),
    "stopping_none_gaps": gaps(STOPPING_GAPS, "none"),
    "swapped": cells(SWAPPED, "zero"),
    "swapped_gaps": gaps(SWAPPED_GAPS, "zero"),
    "swapped_none": cells(SWAPPED, "none"),
    "swapped_none_gaps": gaps(SWAPPED_GAPS, "none"),
    "strengths": chosen,
    "holding": cells(HOLDING, "zero"),
    "holding_gaps": gaps(HOLDING_GAPS, "zero"),
}
