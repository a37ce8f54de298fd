"""Between which values a number among the settings must lie, said once, where the setting stands."""

from __future__ import annotations

import dataclasses
from ctypes import c_float
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from kcciol.errors import UserError

Number = TypeVar("Number", int, float)
HIGHEST_RATE = 1e6  # of any optimiser
MOST_STEPS = 10_000  # that a setting may ask for with each example or task: a file must not keep one busy for ever
_KEY = "bounds"


@dataclass(frozen=True)
class Bounds:
    """low and high may be reached, `above` may not."""

    low: float | None = None
    above: float | None = None
    high: float | None = None
    remedy: str = ""

    def holds(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
        )

    def __str__(self) -> str:
        rules = []
        if self.low is not None:
            rules.append(f"{self.low:g} or more")
        if self.above is not None:
            rules.append(f"above {self.above:g}")
        if self.high is not None:
            rules.append(f"at most {self.high:g}")
        return " and ".join(rules)


def bounded(
    default: Number,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    remedy: str = "",
) -> Number:
    """A setting whose number has bounds; remedy: what to do instead of going beyond them."""
    field: Any = dataclasses.field(default=default, metadata={_KEY: Bounds(low, above, high, remedy)})
    return cast("Number", field)


def bounds_of(kind: type[Any]) -> dict[str, Bounds]:
    """Those of all settings of a kind; a subclass that gives a setting another default leaves it its bounds."""
    found: dict[str, Bounds] = {}
    for parent in reversed(kind.__mro__):
        own = parent.__dict__.get("__dataclass_fields__", {}).values()
        found |= {field.name: field.metadata[_KEY] for field in own if _KEY in field.metadata}
    return found


def require_within(settings: Any) -> None:
    """Refuse numbers beyond their bounds, fractions as they are after rounding to the float32 of the learners."""
    for name, bounds in bounds_of(type(settings)).items():
        value = getattr(settings, name)
        held = c_float(value).value if isinstance(value, float) else value
        if not bounds.holds(held):
            remedy = f": {bounds.remedy}" if bounds.remedy else ""
            rounded = f" (so small that it is {held:g} in float32)" if held == 0 != value else ""
            raise UserError(f"{name} is {value:g}{rounded}, but must be {bounds}{remedy}.")
