"""Tables of results/consolidation.json in Markdown, for docs/consolidation.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paper_tables import RESULTS, markdown_table, read

from kcciol.numbers import half_width
from kcciol.paper.consolidation.encoder_heads import PLAIN as AS_GIVEN
from kcciol.paper.consolidation.encoder_heads import WHITENED
from kcciol.paper.consolidation.encoder_plan import (
    ALONE,
    BOTH,
    FISHER,
    L1_MOVING,
    LONGER,
    MOVING,
    SOFT,
    TOP,
    TRAINED,
)
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
ON_TOP = (TRAINED, LONGER, ALONE, L1, TOP, BOTH, FISHER, SOFT, MOVING, L1_MOVING)
ON_TOP_GAPS = [(name, TRAINED) for name in ON_TOP[1:]] + [(name, ALONE) for name in (L1, TOP, BOTH, FISHER, SOFT)]
Group = Mapping[str, Mapping[str, Any]]  # by condition
Columns = dict[str, Group]  # by what it is called
Choose = Callable[[Mapping[str, Any]], Columns]  # of the file


def with_reset(reset: str) -> Choose:
    """The columns of the main part with this reset."""

    def choose(found: Mapping[str, Any]) -> Columns:
        names = {name: name.split() for name in found["rows"]}
        shown = {f"{data}, {head}": name for name, (data, its, head) in names.items() if its == reset}
        return {column: found["rows"][name] for column, name in shown.items()}

    return choose


def of_encoders(output: str, longest: bool = True) -> Choose:
    """Those of what goes on from our encoders, by what is done to their output; longest: of the longest streams, or
    else of the others."""

    def choose(found: Mapping[str, Any]) -> Columns:
        shown, part = Columns(), found.get("encoders", {"rows": {}, "config": {}})
        for name, group in part["rows"].items():
            data, reset, its_output, head, classes = name.split()
            most = max(part["config"][f"{data} {reset}"]["evaluation"]["classes"])
            if its_output == output and (int(classes) == most) == longest:
                shown[f"{data.removeprefix('encoders-')}, {classes} classes, {head}"] = group
        return shown

    return choose


def cells(conditions: Sequence[str], choose: Choose) -> Callable[[], str]:
    """A row for each condition: mean and interval over seeds, by data set and head."""

    def shown(group: Group, condition: str) -> str:
        cell = group.get(condition)
        if cell is None:
            return ""
        return f"{cell['mean']:.1f}{half_width(cell['ci95'])}{'†' if any(cell['at_edge']) else ''}"

    return made(conditions, choose, "condition", shown)


def gaps(pairs: Sequence[tuple[str, str]], choose: Choose) -> Callable[[], str]:
    """A row for each pair: the difference on the same streams, with its interval over seeds."""
    named = {f"{one} − {other}": (one, other) for one, other in pairs}

    def shown(group: Group, name: str) -> str:
        both = [group.get(condition) for condition in named[name]]
        found = gap(both[0], both[1]) if both[0] is not None and both[1] is not None else None
        return "" if found is None else f"{found.mean:+.1f}{half_width(found.half)}"

    return made(list(named), choose, "difference", shown)


def options(conditions: Sequence[str], choose: Choose) -> Callable[[], str]:
    """What did best on base classes kept out of training, seed by seed."""

    def shown(group: Group, condition: str) -> str:
        return "; ".join(group[condition]["option"]) if condition in group else ""

    return made(conditions, choose, "condition", shown)


def made(names: Sequence[str], choose: Choose, axis: str, shown: Callable[[Group, str], str]) -> Callable[[], str]:
    """A table with a column for each data set and head."""

    def table() -> str:
        columns = choose(read(FILE)) if (RESULTS / FILE).exists() else {}
        if not columns:
            return NOT_YET
        rows = {name: [shown(group, name) for group in columns.values()] for name in names}
        return markdown_table(axis, list(columns), rows)

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
    "stopping": cells(STOPPING, with_reset("zero")),
    "stopping_gaps": gaps(STOPPING_GAPS, with_reset("zero")),
    "stopping_none": cells(STOPPING, with_reset("none")),
    "stopping_none_gaps": gaps(STOPPING_GAPS, with_reset("none")),
    "swapped": cells(SWAPPED, with_reset("zero")),
    "swapped_gaps": gaps(SWAPPED_GAPS, with_reset("zero")),
    "swapped_none": cells(SWAPPED, with_reset("none")),
    "swapped_none_gaps": gaps(SWAPPED_GAPS, with_reset("none")),
    "strengths": chosen,
    "holding": cells(HOLDING, with_reset("zero")),
    "holding_gaps": gaps(HOLDING_GAPS, with_reset("zero")),
    "encoders": cells(ON_TOP, of_encoders(WHITENED)),
    "encoders_gaps": gaps(ON_TOP_GAPS, of_encoders(WHITENED)),
    "encoders_plain": cells(ON_TOP, of_encoders(AS_GIVEN)),
    "encoders_plain_gaps": gaps(ON_TOP_GAPS, of_encoders(AS_GIVEN)),
    "encoders_fewer": cells(ON_TOP, of_encoders(WHITENED, longest=False)),
    "encoders_options": options((ALONE, L1, TOP, MOVING), of_encoders(WHITENED)),
}
