"""What has to be said about a number beside the number: flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Flag", "columns_to_use", "flags_against", "group_flags"]

# Differences below this share of a standard error are noise of the fit.
_NOISE = 0.25


class Flag:
    """The texts of flags."""

    NOTHING = "not distinguishable from 0"
    MISFIT = "misfit: the cross-fitted value is shown"
    FEW_ROWS = "too few rows"
    ABOVE_EVPI = "above EVPI"
    BELOW_MEMBER = "below its member {}"
    CONSTANT = "constant column {}"
    DUPLICATE = "column {} repeats {}"


def columns_to_use(known: pd.DataFrame) -> tuple[list[str], tuple[str, ...]]:
    """Columns that tell something, without constants and copies, and flags about the others.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [2.0, 4.0, 8.0], "c": [5.0, 5.0, 5.0]})
    >>> columns_to_use(table)
    (['a'], ('column b repeats a', 'constant column c'))
    """
    scaled: dict[str, Any] = {}
    flags: list[str] = []
    for name in known.columns:
        values = known[name].to_numpy(dtype=float)
        centered = values - values.mean()
        spread = float(np.abs(centered).max())
        if spread <= 1e-12 * float(np.abs(values).max()):
            flags.append(Flag.CONSTANT.format(name))
            continue
        # Scaled twice: squares of very large or very small numbers leave the range of floats.
        unit = centered / spread
        unit = unit / np.linalg.norm(unit)
        twin = next((k for k, other in scaled.items() if abs(unit @ other) > 1 - 1e-10), None)
        if twin is None:
            scaled[str(name)] = unit
        else:
            flags.append(Flag.DUPLICATE.format(name, twin))
    return list(scaled), tuple(flags)


def group_flags(
    sets: Mapping[str, tuple[str, ...]], found: Mapping[str, list[Any]], ceiling: list[Any]
) -> dict[str, list[Any]]:
    """The answers with flags that come of comparing them: with their members, and with EVPI."""
    flagged: dict[str, list[Any]] = {}
    for label, answers in found.items():
        inside = [other for other in sets if set(sets[other]) < set(sets[label])]
        flagged[label] = []
        for w, answer in enumerate(answers):
            flags = list(answer.flags)
            best = max(inside, key=lambda name: found[name][w].value, default=None)
            if best is not None:
                member = found[best][w]
                if member.value - answer.value > _NOISE * max(member.se, answer.se):
                    flags.append(Flag.BELOW_MEMBER.format(best))
            flags += flags_against(answer, ceiling[w])
            flagged[label].append(replace(answer, flags=tuple(flags)))
    return flagged


def flags_against(answer: Any, ceiling: Any) -> list[str]:
    """A flag where an answer is above what knowing everything is worth."""
    above = answer.value > ceiling.value + _NOISE * ceiling.se
    return [Flag.ABOVE_EVPI] if above else []
