"""kcciol list: what there is to be named, ours and of other packages. Nothing that is slow is imported for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rich.table import Table
from tyro.conf import Positional

from kcciol.cli.terminal import out, parse, print_presets, say
from kcciol.encoders import ENCODERS
from kcciol.errors import UserError
from kcciol.learners import LEARNERS, card_of
from kcciol.meta.methods import REPRESENTATIONS
from kcciol.plugins import Registry

What = Literal["representations", "learners", "encoders", "data", "presets"]


@dataclass(frozen=True)
class ListOptions:
    """What there is: representations (how theta is learned beforehand), learners (what one example does), encoders
    (what makes features of images), data (sets), presets."""

    what: Positional[What]


def list_(words: Sequence[str]) -> int:
    """What there is: kcciol list representations|learners|encoders|data|presets."""
    if not words:
        *others, last = get_args(What)
        raise UserError(f"kcciol list needs to know what: {', '.join(others)} or {last}.")
    LISTS[parse(ListOptions, "list", words).what]()
    return 0


def list_representations() -> None:
    rows = {name: [method.what, method.paper] for name, method in REPRESENTATIONS.items()}
    _print(["what it is", "from"], rows, "kcciol train PRESET --representation NAME")


def list_learners() -> None:
    cards, wrong = LEARNERS.survey(card_of)
    rows = {name: [c.what, c.keeps, c.paper] for name, c in cards.items()}
    _print(
        ["what it is", "keeps", "from"],
        rows,
        "keeps: between two examples, beside the head, unless its settings say otherwise",
        f"Told when a task ends: {', '.join(n for n, c in cards.items() if c.tasks)}.",
        f"Many streams are learned side by side, but for {', '.join(n for n, c in cards.items() if c.sequential)}, "
        "which takes them one after another.",
        "Only for a whole network, not for kcciol.OnlineLearner: "
        f"{', '.join(n for n, c in cards.items() if 'head' not in c.trains)}.",
        "kcciol evaluate RUN --learner NAME, or kcciol evaluate RUN --compare",
    )
    _print_packages(LEARNERS, cards, wrong)


def list_encoders() -> None:
    kinds, wrong = ENCODERS.survey(ENCODERS.describe)
    rows = {name: [what] for name, what in kinds.items()}
    _print(["what it is"], rows, "kcciol encoders says more of each, and how one is opened")
    _print_packages(ENCODERS, kinds, wrong)


def list_data() -> None:
    from kcciol.data import DATASETS  # here, because it needs numpy

    found, wrong = DATASETS.survey(DATASETS.find)
    rows = {name: [dataset.description] for name, dataset in found.items()}
    _print(["what it is"], rows, "kcciol data list says where their files belong and which can be downloaded")
    _print_packages(DATASETS, found, wrong)


def _print(columns: Sequence[str], rows: Mapping[str, Sequence[str]], *below: str) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)  # it is there to be copied
    for column in columns:
        table.add_column(column)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    out.print(table)
    for line in below:
        out.print(line, soft_wrap=False)


def _print_packages(registry: Registry[Any], names: Mapping[str, object], wrong: Sequence[str]) -> None:
    """Where names come from that are not ours, and what cannot be used."""
    for name in names:
        if package := registry.package(name):
            out.print(f"{name} comes from the package {package}.")
    for sentence in wrong:
        say(f"kcciol: {sentence}")


LISTS: dict[What, Callable[[], None]] = {
    "representations": list_representations,
    "learners": list_learners,
    "encoders": list_encoders,
    "data": list_data,
    "presets": print_presets,
}
