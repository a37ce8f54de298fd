"""Numbers as people read them."""

import math


def half_width(value: float | None, digits: int = 1) -> str:
    """How far an interval reaches, behind its middle: with so many digits after the point, or as many as it takes to
    see that it is not 0; nothing where it could not be measured.

    >>> half_width(0.42), half_width(0.034), half_width(0.0), half_width(None), half_width(math.nan)
    (' ± 0.4', ' ± 0.03', '', '', '')
    """
    if value is None or not math.isfinite(value) or value <= 0:
        return ""
    while float(text := f"{value:.{digits}f}") == 0:
        digits += 1
    return f" ± {text}"
