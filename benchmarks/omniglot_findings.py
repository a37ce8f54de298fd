"""What the tables on Omniglot say, in sentences: which column is above which, and what holds of the paper's claims."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from kcciol.report.pairs import SEEDS
from kcciol.report.pairs import gap as gap_of

Cell = dict[str, Any]
Rows = dict[str, dict[str, Cell]]
Pairs = list[tuple[str, Cell, Cell]]  # the row, and two cells of it
STARTS = ["scratch", "standard", "pretraining", "oml", "kcciol", "pixels", "untrained"]
# a rival with our trajectories, and as printed; of MRCL the one of the same order
SAME_AS = [("maml-rep-same", "maml-rep-first"), ("maml-rep-same", "maml-rep"), ("mrcl-same", "mrcl-first")]
SAME_AS += [("oml-same", "oml")]
EARLIER = ("pretrained", "srnn", "mrcl-first", "mrcl", "maml-rep-first", "maml-rep", "oml-first", "oml", "anml")
FEW = " †"  # marks what rests on fewer


def shown(cell: Cell | None) -> str:
    """Mean and interval; a star where a setting was chosen at the end of its grid."""
    if cell is None:
        return ""
    edge = any(choice.get("at_edge") for choice in cell.get("choice", []))
    return f"{cell['mean']:.1f}" + (f" ± {cell['ci95']:.1f}" if cell.get("ci95") is not None else "") + "\\*" * edge


# --- two columns ------------------------------------------------------------------------------------------------------


def difference(a: Cell, b: Cell) -> tuple[float, float]:
    """a - b and half of its 95 % interval: on streams that both have; against the paper, from the spread of both."""
    found = gap_of(a, b)
    if found is None:
        return float(a["mean"]) - float(b["mean"]), math.hypot(half(a), half(b))
    return found.mean, found.half or 0.0


def few(pairs: Iterable[tuple[Cell, Cell]]) -> str:
    """A mark where two columns are compared on less than three seeds, and so on these alone."""
    gaps = (gap_of(a, b) for a, b in pairs)
    return FEW if any(found is not None and len(found.by_seed) < SEEDS for found in gaps) else ""


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


def both(rows: Rows, a: str, b: str) -> Pairs:
    return [(n, row[a], row[b]) for n, row in rows.items() if a in row and b in row]


def compared(rows: Rows, a: str, b: str, unit: str = "classes") -> str:
    """One sentence: where a is above b, where below, and by how much."""
    gaps = {n: differs(x, y) for n, x, y in both(rows, a, b)}
    parts = []
    for word, sign in (("above", 1), ("below", -1)):
        if some := {n: sign * g for n, g in gaps.items() if sign * g > 0}:
            parts.append(f"{word} by {spread(some.values())} at {', '.join(some)}")
    if alike := [n for n, g in gaps.items() if not g]:
        parts.append(f"not told apart at {', '.join(alike)}")
    mark = few((x, y) for _, x, y in both(rows, a, b))
    return f"- `{a}` against `{b}` ({unit}): {'; '.join(parts) or 'not measured'}{mark}."


def spread(values: Iterable[float], sign: str = "") -> str:
    found = sorted({f"{v:{sign}.1f}" for v in values}, key=float)
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def verdict(pairs: Pairs) -> str:
    """Whether the first of each pair is better than the second, and in how many."""
    more, alike, less = counts(pairs)
    if not more + alike + less:
        return "Not measured"
    word = "Not seen here" if not more else "Mixed" if less else "Holds in part" if alike else "Holds"
    return f"{word}: {counted(pairs)}"


def counts(pairs: Pairs) -> tuple[int, int, int]:
    """In how many pairs the first is above the second, not told apart from it, and below it."""
    gaps = [differs(x, y) for _, x, y in pairs]
    return sum(g > 0 for g in gaps), sum(g == 0 for g in gaps), sum(g < 0 for g in gaps)


def counted(pairs: Pairs) -> str:
    found = counts(pairs)
    words = [f"{word} in {n}" for word, n in zip(("above", "not told apart", "below"), found, strict=True) if n]
    return f"{', '.join(words)} of {sum(found)} rows{few((x, y) for _, x, y in pairs)}"


def gap(row: dict[str, Cell], a: str, b: str) -> str:
    """By how much a is from b."""
    if not {a, b} <= row.keys():
        return "not measured"
    size, half_ = difference(row[a], row[b])
    return f"{size:+.1f} ± {half_:.1f}{few([(row[a], row[b])])}"


def ends(rows: Rows, column: str) -> str:
    found = [float(cells[column]["mean"]) for cells in rows.values() if {column, "pretraining"} <= cells.keys()]
    return f"{min(found):.1f} and {max(found):.1f}"


# --- claims and tables -----------------------------------------------------------------------------------------------


def claims(one: Rows, five: Rows, six: Rows, heads: dict[str, Rows]) -> list[str]:
    """What the paper says, whether it holds here, and why; each where its cells were measured."""
    row, lines = one["200"], []
    if any(c in row for c in EARLIER) and {"kcciol", "kcciol-paper"} <= row.keys():
        nearest = {n: hardest(cells, "kcciol") for n, cells in one.items()}
        ours = [(n, one[n]["kcciol"], one[n][rival]) for n, rival in nearest.items()]
        as_printed = [(n, cells["kcciol-paper"], cells[hardest(cells, "kcciol-paper")]) for n, cells in one.items()]
        names = dict.fromkeys(nearest.values())
        where = ", ".join(f"`{c}` at {', '.join(n for n in one if nearest[n] == c)}" for c in names)
        lines += [
            "- **The representation learns new characters better than earlier ones.** "
            f"{verdict(ours)} against the one that is hardest to beat in each ({where}), by "
            f"{spread((difference(x, y)[0] for _, x, y in ours), '+')}: after 200 classes "
            f"{shown(row['kcciol'])} against {shown(row[nearest['200']])}. With the paper's own hyper-parameters "
            f"(`kcciol-paper`) {counted(as_printed)}; after 200 classes {shown(row['kcciol-paper'])}; the paper prints "
            f"{shown(row['paper: kcciol'])}, and {shown(row['paper: oml'])} for OML. (Rivals with printed settings, "
            "but for ANML, whose rates were chosen on base characters. `oml` is what `kcciol-paper` is after its phase "
            "1: the latter trains 19,000 steps longer.)"
        ]
    same = [(c, printed) for c, printed in SAME_AS if {c, printed} <= row.keys()]
    if same and {"kcciol", "oml-same"} <= row.keys():
        gains = ", ".join(f"`{c}` from `{printed}` {gap(row, c, printed)}" for c, printed in same)
        lines.append(
            "- **How much of the margin is how phase 1 is trained.** What our trajectories, remember set, reset, outer "
            f"rate and steps, all at once, change in the rivals after 200 classes: {gains}. Against `oml-same`, which "
            f"is phase 1 for all the steps, `kcciol` is {counted(both(one, 'kcciol', 'oml-same'))}, by "
            f"{over(one, 'kcciol', 'oml-same')}."
        )
    if {"control", "kcciol"} <= row.keys():
        lines.append(
            "- **Consolidation (the l1 term of phase 2, the constraint of phase 3) makes it better.** "
            f"{verdict(both(one, 'kcciol', 'control'))} against the same steps and rates without either term "
            f"(`control`), by {over(one, 'kcciol', 'control')}; without the first alone (`gamma0`) by "
            f"{over(one, 'kcciol', 'gamma0')}, without the second (`lambda0`) by {over(one, 'kcciol', 'lambda0')}. "
            "Where two columns were given different rates (below), the difference is of the rates too."
            + with_means(one)
        )
    if {"kcciol-o", "kcciol"} <= row.keys():
        lines.append(
            "- **Holding the important part of the weights is better than holding all (KCCIOL-o).** "
            f"{verdict(both(one, 'kcciol', 'kcciol-o'))}: by {over(one, 'kcciol', 'kcciol-o')}. (Both after the l1 "
            'term; the paper\'s KCCIOL-o is "without knowledge transfer", which may mean without that term too.)'
        )
    paired = [cells for rows in (five, six) for cells in rows.values() if {"kcciol", "pretraining"} <= cells.keys()]
    if paired:
        others = [c for c in STARTS if c != "kcciol"]
        top = sum(all(cells["kcciol"]["mean"] > cells[c]["mean"] for c in others if c in cells) for cells in paired)
        lines.append(
            "- **Every continual learner gains from it (Tables 5 and 6).** "
            f"{'Holds' if top == len(paired) else 'Holds in part' if top else 'Does not hold'} of the starts that the "
            f"paper has: in {top} of {len(paired)} rows `kcciol` has the highest mean, on one seed. In Table 5 the "
            f"learners lie between {ends(five, 'kcciol')} on its features, on OML's between {ends(five, 'oml')}, on "
            f"supervised ones between {ends(five, 'pretraining')}. `oml-same` is not among the starts, so how much of "
            "this is phase 1's is not known."
        )
    return [*lines, *findings_heads(heads)]


def with_means(rows: Rows) -> str:
    """Consolidation again, by heads without a rate."""
    against = {other: both(rows, "kcciol + ncm", f"{other} + ncm") for other in ("control", "kcciol-phase1")}
    if not all(against.values()):
        return ""
    return (
        f" Class means have none; with them it is {counted(against['control'])} against `control`, by "
        f"{over(rows, 'kcciol + ncm', 'control + ncm')}, and {counted(against['kcciol-phase1'])} against its own "
        f"phase 1, by {over(rows, 'kcciol + ncm', 'kcciol-phase1 + ncm')}; against that phase 1, "
        f"`control` is {counted(both(rows, 'control + ncm', 'kcciol-phase1 + ncm'))}, by "
        f"{over(rows, 'control + ncm', 'kcciol-phase1 + ncm')}."
    )


def hardest(row: dict[str, Cell], column: str) -> str:
    """The earlier method that a column is least surely above: it is below it, not told apart, or above by the least."""

    def margin(rival: str) -> tuple[int, float]:
        told = differs(row[column], row[rival])
        return (told > 0) - (told < 0), difference(row[column], row[rival])[0]

    return min((c for c in EARLIER if c in row), key=margin)


def over(rows: Rows, a: str, b: str) -> str:
    """a - b in all rows, the least and the most, and where."""
    gaps = {n: difference(x, y)[0] for n, x, y in both(rows, a, b)}
    if not gaps:
        return "not measured"
    low, high = min(gaps, key=gaps.__getitem__), max(gaps, key=gaps.__getitem__)
    return f"{gap(rows[low], a, b)} (after {low} classes) to {gap(rows[high], a, b)} (after {high})"


def findings1(rows: Rows) -> list[str]:
    lines = [compared(rows, column, "paper: kcciol") for column in ("kcciol", "kcciol-paper")]
    for column in ("scratch", "pretrained", "srnn", "mrcl", "maml-rep", "oml"):
        lines.append(compared(rows, column, f"paper: {column}"))
    return [*lines, compared(rows, "kcciol-paper", "oml"), compared(rows, "kcciol", "oml")]


def findings_rivals(rows: Rows) -> list[str]:
    lines = [compared(rows, same, printed_) for same, printed_ in SAME_AS]
    lines += [compared(rows, name, f"{name}-first") for name in ("maml-rep", "mrcl", "oml")]
    lines.append(compared(rows, "kcciol", "oml-same"))
    return [*lines, compared(rows, "kcciol", "anml"), compared(rows, "kcciol-paper", "anml")]


def findings_controls(rows: Rows) -> list[str]:
    others = ("kcciol-phase1", "kcciol-phase2", "control", "gamma0", "lambda0", "oml-same", "kcciol-o")
    lines = [compared(rows, "kcciol", other) for other in others]
    return [*lines, compared(rows, "control", "kcciol-phase1")]


def findings_means(rows: Rows) -> list[str]:
    pairs = [("kcciol", other) for other in ("kcciol-phase1", "kcciol-phase2", "control")]
    pairs.append(("control", "kcciol-phase1"))
    return [compared(rows, f"{one} + ncm", f"{other} + ncm") for one, other in pairs]


def findings5(five: Rows, six: Rows) -> list[str]:
    lines = []
    for name, rows in (("one class a task", five), ("five classes a task", six)):
        for column in STARTS[1:5]:
            lines.append(compared(rows, column, f"paper: {column}", f"{name}, learners"))
    return lines


def findings_heads(rows: dict[str, Rows]) -> list[str]:
    """A head that the order of the examples cannot harm, and the best pairs of representation and head."""
    lines = []
    for n, columns in rows.items():
        pairs = {(name, head): cell for name, cells in columns.items() for head, cell in cells.items()}
        best = max(pairs, key=lambda pair: float(pairs[pair]["mean"]))
        near = [
            f"`{name}` with `{head}` ({'{:+.1f} ± {:.1f}'.format(*difference(cell, pairs[best]))})"
            for (name, head), cell in pairs.items()
            if (name, head) != best and not differs(pairs[best], cell)
        ]
        both_ = [cells for cells in columns.values() if {"ncm", "online-adam"} <= cells.keys()]
        more = sum(differs(cells["ncm"], cells["online-adam"]) > 0 for cells in both_)
        lines.append(
            f"- **What the head makes of it, after {n} classes.** Class means, to which the order of the examples is "
            f"nothing, are above the online Adam head on {more} of {len(both_)} representations"
            + few((cells["ncm"], cells["online-adam"]) for cells in both_)
            + (f" (on `kcciol` {gap(columns['kcciol'], 'ncm', 'online-adam')})" if "kcciol" in columns else "")
            + f"; the best pair is `{best[0]}` with `{best[1]}`, {shown(pairs[best])}"
            + few((pairs[best], cell) for cell in pairs.values())
            + (f", not told apart from {', '.join(near)}" if near else "")
            + "."
        )
    return lines
