"""Measures of risk that were asked for, and their values under a corrected law of J."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import ndtr

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.methods.learned import Pairs
from nestquad.risk._law import REPEATS, CorrectedLaw, positive

Kind: TypeAlias = Literal["var", "es", "exceed", "ee", "ene", "pfe"]
Key: TypeAlias = tuple[Kind, float]
# Fewer hits beyond a threshold than this are few, and three more are possible.
_HITS = 20.0
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
        width = np.hypot(law.e, max(_NEAR * float(np.sqrt(law.variance)), 1e-300))
        total = np.zeros(len(s))
        for kind, level in self.keys:
            share = np.ones(len(s))
            if kind not in ("ee", "ene"):
                chance = ndtr((law.m - _place(law, kind, level)) / width)
                chance = np.interp(s, law.s, chance)
                share = chance * (1.0 - chance) + (chance**2 if kind == "es" else 0.0)
            mean = float(share.mean())
            total += share / mean if mean > 0 else 0.0
        return total

    def repeats(self, laws: Sequence[CorrectedLaw], n: int) -> int:
        """How many of n pairs to draw at the same θ: for the smallest errors on the whole."""
        total = np.zeros(len(REPEATS))
        for law in laws:
            for kind, level in self.keys:
                one = _Functional(law, kind, level, _place(law, kind, level))
                error = law.repeated(one.c, one.excess, n)
                total += error / max(float(error.min()), 1e-300)
        return int(REPEATS[np.argmin(total)])

    def values(self, law: CorrectedLaw) -> Array:
        """Measures (k, 1 + K) by the best correction and by draws of it."""
        return np.stack([_value(law, kind, level) for kind, level in self.keys])

    def measured(self, law: CorrectedLaw) -> tuple[Array, dict[str, Array]]:
        """Measures (k,) of one loss, and directions (k, ·) of their errors by cause."""
        found = self.values(law)
        values = found[:, 0]
        if law.pairs is None:
            return values, {}
        # Nodes are wider than what they stand for, by up to their width; and sums have rounding.
        wider = replace(law.best, spread=2.0 * law.spread)
        parts = {
            "correction": (found[:, 1:] - found[:, :1]) / np.sqrt(found.shape[1] - 1.0),
            "nodes": np.hypot(self.values(wider) - found[:, :1], 1e-12 * found[:, :1]),
        }
        each: dict[str, list[Array]] = {"average": [], "local": [], "shape": [], "hits": []}
        for (kind, level), value in zip(self.keys, values, strict=True):
            one = _Functional(law, kind, level, _place(law, kind, level))
            each["average"].append(one.answer(one.average()))
            each["local"].append(np.array([one.shifted(value)]))
            each["shape"].append(one.answer(law.shape_error(one.c, one.excess)))
            each["hits"].append(one.answer(one.unseen(law.pairs, value)))
        return values, parts | {name: np.stack(rows) for name, rows in each.items()}


# Standard deviations of Ĵ around a quantile that count as near it: the correction is smooth on
# the scale of one.
_NEAR = 0.15


def _place(law: CorrectedLaw, kind: Kind, level: float) -> float:
    """The loss at which a measure looks: a threshold or a quantile."""
    if kind in ("exceed", "ee", "ene"):
        return level
    return float(law.best.quantile(level)[0])


@dataclass(frozen=True)
class _Functional:
    """P(J > c) behind a quantile or an exceedance, E max(J − c, 0) behind shortfall and exposure.

    Errors of a measure are those of its functional, times a derivative.
    """

    law: CorrectedLaw
    kind: Kind
    level: float
    c: float

    @property
    def excess(self) -> bool:
        return self.kind in ("es", "ee", "ene")

    def answer(self, error: Array | float) -> Array:
        """Errors of the measure from those of its functional."""
        error = np.atleast_1d(error)
        if self.kind == "es":  # the derivative of q + E max(J − q, 0)/(1 − p) in q vanishes
            return error / (1.0 - self.level)
        if self.kind not in ("var", "pfe"):
            return error
        density = self.law.best.density(self.c)[0]
        with np.errstate(divide="ignore", over="ignore"):  # without a density, it may be anywhere
            return np.asarray(np.divide(error, density, out=np.zeros(len(error)), where=error != 0))

    def average(self) -> Array:
        """Errors (R,) of the average over dense θ."""
        law = self.law
        t = (law.m - self.c) / law.e
        if self.excess:
            return law.by_replicate(law.e * positive(-t if self.kind == "ene" else t))
        return law.by_replicate(ndtr(t))

    def shifted(self, value: float) -> float:
        """Change of the measure if all J near it were larger or smaller by a share of √v.

        The error of Ĵ does not average out over the θ at a level if these are few. It is all but
        orthogonal to cubics, so that it changes sign at least four times along a coordinate:
        4^(d − 1) patches of independent errors.
        """
        law, order = self.law, np.argsort(self.law.m, kind="stable")
        at = self.c if self.kind == "exceed" else value
        size = float(2.0 ** (1 - law.dim) * np.sqrt(np.interp(at, law.m[order], law.v[0, order])))
        if self.kind != "exceed":
            return size
        sides = [law.best.survival(self.c + sign * size)[0] for sign in (1.0, -1.0)]
        return max(abs(float(side) - value) for side in sides)

    def unseen(self, pairs: Pairs, value: float) -> float:
        """Error where few scenarios of the fit are on one side of a level, or none.

        The number of hits is a Poisson variable, and h + 3 an upper limit at 95 % for small h. It
        counts for the share of hits that Ĵ does not decide: they rest on the shape of the law of J
        given Ĵ. Where pairs have met few θ beyond a threshold, it counts for all.
        """
        law, c, n = self.law, self.c, self.law.n_learned
        probability = float(np.clip(law.best.survival(c)[0], 0.0, 1.0))
        beyond = np.interp(pairs.by_scenario().s, law.s, law.m) > c
        below = probability > 0.5 and not self.excess
        if below:
            probability, beyond = 1.0 - probability, ~beyond
        if probability * n >= _HITS or self.kind in ("ee", "ene"):
            return 0.0
        few = self.kind == "exceed" and beyond.sum() < _HITS
        share = 1.0 if few else law.undecided(c, below)
        error = float(np.sqrt(share * (probability * n + 3.0))) / n
        return float(error * (value - c)) if self.excess else error


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
        return np.clip(law.survival(level), 0.0, 1.0)
    if kind in ("var", "pfe"):
        return law.quantile(level)
    if kind == "es":
        c = law.quantile(level)
        return c + law.excess(c) / (1.0 - level)
    positive = law.excess(0.0)
    return np.maximum(positive if kind == "ee" else positive - law.mean(), 0.0)


def _numbers(argument: str, given: object, levels: bool = False) -> tuple[float, ...]:
    expected = _BELOW_ONE if levels else "finite thresholds"
    try:
        found = np.atleast_1d(np.asarray(given))
        if found.size and found.dtype.kind not in "iuf":
            raise TypeError(found.dtype)
        found = found.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(argument, repr(given), expected) from error
    bad = ~np.isfinite(found) | (levels & ((found <= 0) | (found >= 1)))
    if found.ndim > 1 or bad.any():
        raise InputError(argument, repr(given), expected)
    return tuple(dict.fromkeys(found.tolist()))
