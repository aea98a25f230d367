"""Numbers and runs in words."""

from __future__ import annotations

import math

__all__ = ["count", "duration", "factor", "number"]


def number(value: float) -> str:
    """Two digits that tell something.

    Examples
    --------
    >>> number(0.0000724), number(0.0131), number(4.52), number(248.4)
    ('7.2e-5', '0.013', '4.5', '248')
    """
    if not math.isfinite(value):
        return "–"
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:#.2g}".rstrip(".") if abs(value) < 100 else f"{value:.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def factor(value: float) -> str:
    """How many times, in two digits.

    Examples
    --------
    >>> factor(1.31), factor(38634), factor(3.2e9)
    ('1.3×', '39,000×', '3e9×')
    """
    if not math.isfinite(value):
        return "–"
    if value < 10:
        return f"{value:.2g}×"
    if value < 1e5:
        return f"{float(f'{value:.2g}'):,.0f}×"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}×"


def count(value: float) -> str:
    """A number of evaluations: 1,024; 3.2e7; more than anybody has."""
    if not math.isfinite(value):
        return "never"
    if value < 1e6:
        rounded = round(value) if value < 1000 else int(float(f"{value:.3g}"))
        return f"{rounded:,}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def duration(seconds: float) -> str:
    """3 s, 4 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
