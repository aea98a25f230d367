"""Flags: caveats attached to an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# Differences below this share of a standard error are noise of the fit.
_NOISE = 0.25


class Flag:
    """The texts of flags."""

    NOTHING = "not distinguishable from 0"
    MISFIT = "misfit: the cross-fitted value is shown"
    MISSED = "misfit, interactions: the value of a second fit is shown, at least this much"
    UNSEEN = "misfit, neighbors: it may be worth much more"
    FEW_ROWS = "too few rows"
    ABOVE_EVPI = "above EVPI"
    BELOW_MEMBER = "below its member {}"
    CONSTANT = "constant column {}"
    DUPLICATE = "column {} repeats {}"


FLAG_WORDS = {
    "not distinguishable from 0": "deciding by these parameters gained nothing in held-out draws "
    "beyond what chance does; the value may well be zero.",
    "misfit:": "held-out draws contradict the regression; shown is what deciding by it gained in "
    "them, which is rather too low than too high.",
    "interactions": "trees found what the splines have no columns for; shown is what deciding by "
    "both gained in held-out draws, a lower bound, and the interval reaches up to EVPI.",
    "neighbors": "draws with nearly the same values of these parameters agree beyond what was "
    "fitted; the interval is widened by the most that this can be worth.",
    "too few rows": "more draws are needed for a number to rely on.",
    "above EVPI": "knowing part cannot be worth more than knowing all; the excess is noise.",
    "below its member": "knowing more cannot be worth less; the difference is noise.",
    "constant column": "a parameter that does not vary has no value of information.",
    "repeats": "the column tells nothing that the other does not.",
}
"""Meaning of each flag, by the words that it contains."""


def columns_to_use(known: pd.DataFrame) -> tuple[list[str], dict[str, str]]:
    """Informative columns, without constants and copies, and flags for the others.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [2.0, 4.0, 8.0], "c": [5.0, 5.0, 5.0]})
    >>> columns_to_use(table)
    (['a'], {'b': 'column b repeats a', 'c': 'constant column c'})
    """
    names = [str(name) for name in known.columns]
    values = known.to_numpy(dtype=float)
    centered = values - values.mean(axis=0)
    spread = np.abs(centered).max(axis=0)
    constant = spread <= 1e-12 * np.abs(values).max(axis=0)
    # Scaled twice: squares of very large or very small numbers leave the range of floats.
    units = centered / np.where(constant, 1.0, spread)
    units /= np.where(constant, 1.0, np.linalg.norm(units, axis=0))
    alike = np.abs(units.T @ units) > 1 - 1e-10
    usable: list[int] = []
    flags: dict[str, str] = {}
    for j, name in enumerate(names):
        twin = next((k for k in usable if alike[j, k]), None)
        if constant[j]:
            flags[name] = Flag.CONSTANT.format(name)
        elif twin is not None:
            flags[name] = Flag.DUPLICATE.format(name, names[twin])
        else:
            usable.append(j)
    return [names[j] for j in usable], flags


def group_flags(
    sets: Mapping[str, tuple[str, ...]], found: Mapping[str, list[Any]], ceiling: list[Any]
) -> dict[str, list[Any]]:
    """Answers with flags from comparisons with their members and with EVPI."""
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
    """A flag where an answer exceeds EVPI."""
    above = answer.value > ceiling.value + _NOISE * ceiling.se
    return [Flag.ABOVE_EVPI] if above else []
