"""Tables and pictures of all that is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kcciol.errors import UserError
from kcciol.files import read_json, write_json
from kcciol.files.documents import Document
from kcciol.paper.formats import FIGURE, PAPER, TABLE
from kcciol.paper.plan import EXPERIMENTS, RunPlan
from kcciol.paper.plot import Plot
from kcciol.paper.rehearsal import is_rehearsal, rehearsed
from kcciol.paper.store import stored_cells
from kcciol.paper.tables import Found, Result


def gather(plan: RunPlan, name: str) -> dict[str, Found]:
    """All cells of an experiment that are there, by part."""
    found: dict[str, dict[str, dict[str, list[Result]]]] = {part: {} for part in EXPERIMENTS[name].parts}
    for made in stored_cells(plan, name):
        found[made.part].setdefault(made.column, {}).setdefault(made.name, []).append(made.read())
    return dict(found)


def write_tables(plan: RunPlan, out: Path, seconds: float) -> tuple[list[Path], list[str]]:
    """Tables of whatever is there: those written, and a sentence on each that was asked for, but would have lost
    something, and is left as it was. The time it took is added up over calls, but for one that made nothing (0)."""
    written, left = [], []
    out.mkdir(parents=True, exist_ok=True)
    for name in plan.parts:
        try:
            made, drawn = made_of(plan, name)
        except (KeyError, TypeError, IndexError) as error:
            raise UserError(
                f"A cell of {name} in {plan.workspace.runs / 'cells'} is not whole ({type(error).__name__}: {error}): "
                f"move it away, also out of {out / 'cells'} if it lies there too, and it is made again."
            ) from None
        spent = _spent(plan, name, seconds, [out / f"{table}.json" for table in made])
        for figure in drawn:
            path = out / "figures" / f"{figure.name}.json"
            if why := _why_left(path, FIGURE, "columns or seeds", figure.lost):
                left.append(why)
            else:
                written.append(figure.write(path.parent, plan.workspace.tiny))
        for table, values in made.items():
            path = out / f"{table}.json"
            new = (rehearsed(values) if plan.workspace.tiny else values) | {"device_seconds": spent}
            if not (why := _why_left(path, TABLE, "cells", partial(lost, new=new))):
                TABLE.write(path, new)
                written.append(path)
            elif table in plan.parts[name]:  # of the others there need not be all that there was
                left.append(why)
    return written, left


def made_of(plan: RunPlan, name: str) -> tuple[dict[str, Any], list[Plot]]:
    """The tables and figures of an experiment, from all of its cells that are there."""
    found = gather(plan, name)
    return EXPERIMENTS[name].tables(found), EXPERIMENTS[name].draw(found)


def _why_left(path: Path, kind: Document, what: str, missed: Callable[[dict[str, Any]], list[str]]) -> str:
    """Why the table or figure that lies there must stay; nothing where there is none, or it may be replaced.
    missed: what it has that the new one has not."""
    old = _read(path, kind)
    if old is None and path.exists():
        return f"{path} is left as it is, but cannot be read: move it away, and it is written anew."
    gone = [] if old is None else missed(old)
    if not gone:
        return ""
    return (
        f"{path} is left as it is: it has {len(gone)} {what} that are not made here ({gone[0]}, for one). "
        "With another --out there is one of what is."
    )


def _spent(plan: RunPlan, name: str, seconds: float, tables: list[Path]) -> list[dict[str, Any]]:
    """The time of each call so far, this one included. What was made elsewhere is in the tables that are there."""
    log = plan.workspace.runs / f"{name}-log.json"
    try:
        spent = list(read_json(log))
    except (UserError, TypeError):  # none yet, or damaged: it begins anew
        spent = []
    there = [old for path in tables if (old := _read(path, TABLE)) is not None and not is_rehearsal(old)]
    before = (old.get("device_seconds") for old in there)
    spent = max(spent, *(list(found) for found in before if isinstance(found, list)), [], key=len)
    if seconds > 0:
        log.parent.mkdir(parents=True, exist_ok=True)
        spent.append({"seconds": seconds, "jobs": plan.jobs})
        write_json(log, spent)
    return spent


# --- what is there already --------------------------------------------------------------------------------------------


def lost(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The measured cells of a table that are not in the new one, or there with fewer seeds."""
    if is_rehearsal(old):
        return []
    there = dict(cells_in(new.get("rows")))
    return [
        ", ".join(name)
        for name, cell in cells_in(old.get("rows"))
        if name not in there or not set(_seeds(cell)) <= set(_seeds(there[name]))
    ]


def refuse_rehearsal(out: Path) -> None:
    """A rehearsal must not go where real tables and figures lie."""
    for path in sorted([*out.glob("*.json"), *out.glob("figures/*.json")]):
        found = _read(path, TABLE if path.parent == out else FIGURE)
        if found is not None and ("rows" in found or path.parent != out) and not is_rehearsal(found):
            raise UserError(f"{path} is no rehearsal, and a rehearsal would go over it: choose another --out.")


def _read(path: Path, kind: Document) -> dict[str, Any] | None:
    try:
        return kind.read(path)
    except UserError:  # there is none, or nothing that could be lost
        return None


def cells_in(value: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The cells in the rows of a table, however deep, by the names on the way; not the paper's."""
    for key, part in value.items() if isinstance(value, dict) else ():
        if isinstance(part, dict) and not str(key).startswith(PAPER):
            if "mean" in part:
                yield (*name, str(key)), part
            else:
                yield from cells_in(part, (*name, str(key)))


def _seeds(cell: dict[str, Any]) -> list[Any]:
    seeds = cell.get("seeds")
    return seeds if isinstance(seeds, list) else []
