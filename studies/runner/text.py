"""Words of reports: numbers, durations, seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable

# Which seeds of random problems serve which purpose.
PARITY = {
    "odd": "Odd seeds, which are to report; even ones are to develop on.",
    "even": "Even seeds, which are to develop on: these numbers are no report.",
    "both": "Even seeds, which are to develop on, and odd ones: these numbers are no report.",
}


def of_parity(seeds: Iterable[int], parity: str) -> tuple[int, ...]:
    """The seeds that are odd, even, or both."""
    return tuple(seed for seed in seeds if parity in ("both", ("even", "odd")[seed % 2]))


def geometric(values: Iterable[float]) -> float:
    """Geometric mean of the values that are finite and positive."""
    known = [math.log(value) for value in values if math.isfinite(value) and value > 0]
    return math.exp(sum(known) / len(known)) if known else math.nan


def number(value: float) -> str:
    """Two significant digits.

    Examples
    --------
    >>> number(0.0000724), number(0.0131), number(4.52), number(248.4)
    ('7.2e-5', '0.013', '4.5', '248')
    """
    if not math.isfinite(value):
        return "–"
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:#.2g}".rstrip(".") if abs(value) < 100 else f"{value:.0f}"
    return _scientific(value)


def limit(value: float) -> str:
    """A target: as `number`, without a trailing zero."""
    return f"{value:.2g}" if 0.01 <= abs(value) < 1000 else _scientific(value).replace(".0e", "e")


def short(value: float) -> str:
    """A ratio: 0.4, 7.3, 58, 1.2e6."""
    return f"{value:.1f}" if value < 10 else f"{value:.0f}" if value < 1000 else number(value)


def factor(value: float) -> str:
    """A factor in two digits.

    Examples
    --------
    >>> factor(1.31), factor(38634), factor(3.2e9)
    ('1.3×', '39,000×', '3e9×')
    """
    if not math.isfinite(value):
        return "–"
    if value < 10:
        return f"{value:.2g}×"
    return f"{float(f'{value:.2g}'):,.0f}×" if value < 1e5 else f"{_scientific(value, 0)}×"


def times(value: float) -> str:
    return f"{value:,.0f} ×" if value >= 100 else f"{value:.2f} ×"


def count(value: float) -> str:
    """A number of evaluations: 1,024; 3.2e7; never."""
    if not math.isfinite(value):
        return "never"
    if value >= 1e6:
        return _scientific(value)
    return f"{round(value) if value < 1000 else int(float(f'{value:.3g}')):,}"


def seconds(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f} s"
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def duration(value: float) -> str:
    """3 s, 4 min, 2.5 h."""
    if value < 90:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def _scientific(value: float, digits: int = 1) -> str:
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"
