"""Where the bounds of settings hold."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kcciol.errors import UserError
from kcciol.learners.base import check_settings
from kcciol.learners.er import MemorySettings
from kcciol.learners.slda import SLDASettings


@dataclass(frozen=True)
class OtherDefault(MemorySettings):
    slots: int = 5


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (MemorySettings(slots=0), "slots is 0, but must be 1 or more: use `online` to keep nothing."),
        (OtherDefault(slots=-3), "slots is -3, but must be 1 or more: use `online` to keep nothing."),
        (MemorySettings(rate=1e-50), "rate is 1e-50 (so small that it is 0 in float32), but must be above 0"),
        (MemorySettings(rate=1e300), "rate is 1e+300, but must be above 0 and at most 1e+06."),
        (SLDASettings(1.5), "shrinkage is 1.5, but must be above 0 and at most 1."),
    ],
)
def test_a_number_beyond_its_bounds_is_refused(settings: MemorySettings | SLDASettings, says: str) -> None:
    with pytest.raises(UserError) as raised:
        check_settings(settings)
    assert str(raised.value).startswith(says)


def test_what_bounds_allow_is_taken() -> None:
    check_settings(SLDASettings(1.0))
    check_settings(OtherDefault(replay=0))
    assert OtherDefault().slots == 5
