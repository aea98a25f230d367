"""Promises made for every problem at once, and what became of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks._page import error
from benchmarks._study import Verdict

__all__ = ["enough", "every", "short"]

# With fewer seeds than this a mean or a coverage says too little for a verdict.
_ENOUGH_SEEDS = 10


def enough(row: Mapping[str, Any]) -> bool:
    return bool(row["seeds"] >= _ENOUGH_SEEDS)


def short(value: float) -> str:
    """A ratio: 0.4, 7.3, 58, 1.2e6."""
    return f"{value:.1f}" if value < 10 else f"{value:.0f}" if value < 1000 else error(value)


def every(
    expected: int,
    claim: str,
    target: str,
    rows: list[dict[str, Any]],
    *,
    value: Callable[[dict[str, Any]], float],
    text: Callable[[dict[str, Any]], str],
    good: Callable[[float], bool],
) -> Verdict:
    """One promise for every problem: how many keep it, the worst of them, and who does not."""
    claim = f"{claim}, every problem"
    known = [row for row in rows if math.isfinite(value(row)) or row["failed"]]
    if not known:
        return Verdict(claim, target, "–", None)
    kept = [row for row in known if not row["failed"] and good(value(row))]
    missed = [row for row in known if row not in kept]
    broken = [row["problem"] for row in missed if row["failed"]]
    measured = [row for row in known if not row["failed"]]
    parts = [f"{len(kept)} of {len(known)}"]
    if measured:
        shown = [row for row in measured if row in missed] or [max(measured, key=value)]
        listed = ", ".join(f"{r['problem']} {text(r)}" for r in sorted(shown, key=value)[::-1])
        parts.append(f"{'not' if missed else 'worst:'} {listed}")
    if broken:
        parts.append(f"failed runs: {', '.join(broken)}")
    complete = len(known) == expected and all(map(enough, known))
    return Verdict(claim, target, "; ".join(parts), not missed if complete else None)
