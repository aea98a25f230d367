"""Amounts with the digits that their intervals support, and shares."""

from __future__ import annotations

import numpy as np


def money(value: float, currency: str = "", half: float = 0.0) -> str:
    """An amount of money with the digits that its 95 % half-width supports; a dash for NaN."""
    if np.isnan(value):
        return "–"
    size = abs(value)
    if half > 0 and size > 0:
        # One digit more than the leading one of the half-width where that is 1; at least one digit.
        unit = 10.0 ** np.floor(np.log10(min(half / 2, size)))
        size = round(size / unit) * unit
        scale, letter = next((s for s in _SCALES if size >= s[0] and unit >= s[0] / 1e3), (1.0, ""))
        text = f"{size / scale:,.{max(0, round(np.log10(scale / unit)))}f}{letter}"
    else:
        text = f"{size:,.0f}" if size >= 100 else f"{size:.3g}"
    negative = value < 0 and any(digit in "123456789" for digit in text)
    return f"{'−' if negative else ''}{currency}{text}"


def span(low: float, high: float, currency: str = "") -> str:
    """Both ends of an interval, with the digits that its width supports."""
    half = (high - low) / 2
    ends = (0.0 if abs(x) < half / 20 else x for x in (low, high))
    return " to ".join(money(x, currency, half) for x in ends)


_SCALES = ((1e9, "bn"), (1e6, "m"))


def percent(share: float) -> str:
    """A share in per cent, without decimals; a dash where there is none (NaN)."""
    return "–" if np.isnan(share) else f"{100 * share:.0f} %"
