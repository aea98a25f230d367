"""Numbers as a reader wants to see them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["HALF_WIDTH", "answer_text", "plus_minus"]

# Standard errors in the half-width of a 95 % interval.
HALF_WIDTH = 1.959964

_MOST_ANSWERS = 4


def plus_minus(value: float, half_width: float) -> str:
    """A value and its half-width to the same decimal, two digits of the latter.

    Examples
    --------
    >>> plus_minus(3.0708528, 0.0079874)
    '3.0709 ± 0.0080'
    >>> plus_minus(24791.2, 310.0)
    '24791 ± 310'
    """
    if not (np.isfinite(value) and np.isfinite(half_width) and half_width > 0):
        return f"{value:.6g} ± {half_width:.2g}"
    # Of what is rounded to two digits already: 0.0999 has as many decimals as 0.10.
    decimals = 1 - int(np.floor(np.log10(float(f"{half_width:.1e}"))))
    if decimals > 9 or max(abs(value), half_width) >= 1e9:
        return f"{value:.10g} ± {half_width:.1e}"
    decimals = max(decimals, 0)
    return f"{value:.{decimals}f} ± {half_width:.{decimals}f}"


def answer_text(estimate: Any) -> str:
    """The value of an estimate ± its 95 % half-width; of many answers the first few."""
    values, errors = np.ravel(estimate.value), np.ravel(estimate.std_error)
    shown = [plus_minus(v, HALF_WIDTH * e) for v, e in zip(values, errors, strict=True)]
    more = f" and {len(shown) - _MOST_ANSWERS} more" if len(shown) > _MOST_ANSWERS else ""
    return ", ".join(shown[:_MOST_ANSWERS]) + more
