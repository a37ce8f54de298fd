"""kcciol list: what representations, learners and presets there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from tyro.conf import Positional

from kcciol import representations
from kcciol.cli.terminal import out, parse, print_presets
from kcciol.errors import UserError


@dataclass(frozen=True)
class ListOptions:
    """What there is: representations (how theta is learned beforehand), learners (what one example does), presets."""

    what: Positional[Literal["representations", "learners", "presets"]]


def list_(words: Sequence[str]) -> int:
    """What there is: kcciol list representations|learners|presets."""
    if not words:
        raise UserError("kcciol list needs to know what: representations, learners or presets.")
    options = parse(ListOptions, "list", words)
    if options.what == "presets":
        print_presets()
        return 0
    if options.what == "representations":
        table = Table("name", "what it is", "from", box=None, pad_edge=False)
        for name, method in representations.REPRESENTATIONS.items():
            table.add_row(name, method.what, method.paper)
        out.print(table)
        out.print("kcciol train PRESET --representation NAME")
        return 0
    from kcciol.learners import LEARNERS, typical_bytes

    table = Table("name", "what it is", "from", "keeps", "replay", "tasks", box=None, pad_edge=False)
    for name, learner in LEARNERS.items():
        card, size = learner.card, typical_bytes(name)
        kept = "network" if size is None else f"{size / 1e6:.1f} MB"
        table.add_row(name, card.what, card.paper, kept, "yes" if card.replay else "-", "yes" if card.tasks else "-")
    out.print(table)
    out.print("keeps: after 200 classes of 2304 features; replay: keeps examples; tasks: is told when one ends")
    alone = ", ".join(name for name, learner in LEARNERS.items() if learner.card.sequential)
    out.print(f"Many streams are learned side by side, but for {alone}, which takes them one after another.")
    out.print("kcciol evaluate RUN --learner NAME, or kcciol evaluate RUN --compare")
    return 0
