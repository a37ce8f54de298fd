"""What is said of a learner before it is imported: written out in its class, so that its source can be read instead."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kcciol.plugins import written_out


@dataclass(frozen=True)
class Card:
    """What `kcciol list learners` says of a method, and what an evaluation must know of it."""

    what: str
    paper: str  # where it comes from
    keeps: str  # between two examples, beside the weights of the head
    replay: bool = False  # keeps examples
    capacity: str = ""  # the setting that says how many of them
    per_class: bool = False  # and it says how many of each class, not of all
    tasks: bool = False  # is told when a task ends
    order_free: bool = False  # the order of the examples changes nothing
    shuffled: bool = False  # its stream is shuffled first
    sequential: bool = False  # its copies run one after another
    solves: bool = False  # the first answer after an example costs the solution of a large system
    trains: tuple[str, ...] = ("head", "all")  # a head on a frozen network, the whole network


def card_in(source: ast.AST | None) -> Card | None:
    r"""The card that is written out in a class, `card = Card(...)` of plain values; none where it is not.

    >>> card_in(ast.parse("class A:\n    card = Card('what it is', 'nobody', keeps='nothing')").body[0]).keeps
    'nothing'
    """
    return written_out(source, Card)
