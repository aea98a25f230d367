"""Measures of risk that were asked for, and their values under a corrected law of J."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.risk._law import CorrectedLaw

Kind: TypeAlias = Literal["var", "es", "exceed", "ee", "ene", "pfe"]
Key: TypeAlias = tuple[Kind, float]
_BELOW_ONE = "probabilities strictly between 0 and 1, such as 0.99"


@dataclass(frozen=True)
class Targets:
    """Measures of each line: a kind, and its level or threshold."""

    keys: tuple[Key, ...]

    @classmethod
    def of(
        cls, var: float | Sequence[float], es: float | Sequence[float], exceed: object
    ) -> Targets:
        keys: list[Key] = [("var", p) for p in _numbers("var", var, levels=True)]
        keys += [("es", p) for p in _numbers("es", es, levels=True)]
        keys += [("exceed", c) for c in _numbers("exceed", exceed)]
        if not keys:
            raise InputError("var, es, exceed", "no measure", "at least one", "Such as var=0.99.")
        return cls(tuple(keys))

    @classmethod
    def exposure(cls, pfe: float | Sequence[float]) -> Targets:
        levels = _numbers("var", pfe, levels=True)
        return cls((("ee", 0.0), ("ene", 0.0), *(("pfe", p) for p in levels)))

    def interest(self, law: CorrectedLaw, s: Array) -> Array:
        """Density of draws (M,) relative to the law, over dense Ĵ = s: where answers depend on J.

        A quantile or a probability depends on J near its level, shortfall beyond it, exposure
        everywhere. Near means within the error of Ĵ, or a few percent of its spread.
        """
        best = slice(0, 1)
        sd = float(np.sqrt(law.variance))
        m, e = law.m[0], law.e[0]
        total = np.zeros(len(s))
        for kind, level in self.keys:
            if kind in ("ee", "ene"):
                share = np.ones(len(s))
            else:
                c = level if kind == "exceed" else float(law.quantile(level, best)[0])
                place = float(np.interp(c, np.maximum.accumulate(m), law.s))
                error = float(np.interp(place, law.s, e))
                width = max(float(np.hypot(_NEAR * sd, error)), 1e-300)
                t = (s - place) / width
                share = np.exp(-0.5 * np.minimum(t, 0.0 if kind == "es" else np.inf) ** 2)
            mean = float(share.mean())
            total += share / mean if mean > 0 else 0.0
        return total

    def values(self, law: CorrectedLaw) -> Array:
        """Measures (k, 1 + K) by the best correction and by draws of it."""
        return np.stack([_value(law, kind, level) for kind, level in self.keys])

    def dense_errors(self, law: CorrectedLaw, values: Array) -> Array:
        """Directions (k, R) of the error of the average over dense θ."""
        rows = []
        for (kind, level), value in zip(self.keys, values, strict=True):
            if kind == "exceed":
                rows.append(law.replicate_survival(level))
            elif kind in ("var", "pfe"):
                density = float(law.density(np.array([value]), slice(0, 1))[0])
                rows.append(law.replicate_survival(value) / max(density, 1e-300))
            elif kind == "es":
                # The derivative of q + E max(J − q, 0)/(1 − p) in q vanishes.
                c = float(law.quantile(level, slice(0, 1))[0])
                rows.append(law.replicate_excess(c) / (1.0 - level))
            else:
                both = law.replicate_excess(0.0)
                mean = law.replicate_mean()
                rows.append(both if kind == "ee" else both - mean)
        return np.stack(rows)

    def local_errors(self, law: CorrectedLaw, values: Array) -> Array:
        """√v (k,) at the levels of the measures."""
        order = np.argsort(law.m[0], kind="stable")
        levels = [
            level if kind == "exceed" else value
            for (kind, level), value in zip(self.keys, values, strict=True)
        ]
        return np.asarray(np.sqrt(np.interp(levels, law.m[0, order], law.v[0, order])))

    def shifted(self, law: CorrectedLaw, values: Array, shifts: Array) -> Array:
        """Changes (k,) of the measures if all J were larger or smaller by small shifts (k,)."""
        found, best = np.abs(shifts), slice(0, 1)
        for i, (kind, level) in enumerate(self.keys):
            if kind == "exceed":
                sides = [law.survival(level + sign * shifts[i], best)[0] for sign in (1.0, -1.0)]
                found[i] = max(abs(side - values[i]) for side in sides)
        return found


# Standard deviations of Ĵ around a quantile that count as near it: the correction is smooth on
# the scale of one.
_NEAR = 0.15


def label(kind: Kind, level: float) -> str:
    """The name of a measure.

    Examples
    --------
    >>> label("var", 0.99), label("exceed", 100.0)
    ('VaR 99 %', 'P(J > 100)')
    """
    if kind == "exceed":
        return f"P(J > {level:g})"
    words = {"var": "VaR", "es": "ES", "pfe": "PFE", "ee": "EE", "ene": "ENE"}
    return words[kind] if kind in ("ee", "ene") else f"{words[kind]} {100 * level:g} %"


def _value(law: CorrectedLaw, kind: Kind, level: float) -> Array:
    if kind == "exceed":
        return law.survival(level)
    if kind in ("var", "pfe"):
        return law.quantile(level)
    if kind == "es":
        c = law.quantile(level)
        return c + law.excess(c) / (1.0 - level)
    positive = law.excess(0.0)
    return positive if kind == "ee" else positive - law.m @ law.weights


def _numbers(argument: str, given: object, levels: bool = False) -> tuple[float, ...]:
    expected = _BELOW_ONE if levels else "finite thresholds"
    try:
        found = np.atleast_1d(np.asarray(given, dtype=float))
    except (TypeError, ValueError) as error:
        raise InputError(argument, repr(given), expected) from error
    bad = ~np.isfinite(found) | (levels & ((found <= 0) | (found >= 1)))
    if found.ndim > 1 or bad.any():
        raise InputError(argument, repr(given), expected)
    return tuple(dict.fromkeys(found.tolist()))
