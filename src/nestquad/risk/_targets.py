"""Measures of risk that were asked for, and their values under a corrected law of J."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import gammaincinv, ndtr

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.functionals import WeightedSample
from nestquad.risk._law import LawOfJ

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

    def interest(self, law: LawOfJ, s: Array) -> Array:
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

    def values(self, law: WeightedSample) -> Array:
        """Measures (k,) of a law."""
        return np.array([_value(law, kind, level) for kind, level in self.keys])

    def measured(self, law: LawOfJ) -> tuple[Array, Array | None]:
        """Measures (k,) of one loss, and posterior draws (K, k); None where nothing is known.

        The central value counts unless the draws exclude it. Student's factor is for the number of
        pairs that carry the variance of residuals.
        """
        value = self.values(law.center)
        if law.pairs is None:
            return value, None
        draws = np.stack([self.values(one) for one in law.draws])
        low, middle, high = np.quantile(draws, [0.025, 0.5, 0.975], axis=0)
        value = np.where((low <= value) & (value <= high), value, middle)
        rng = np.random.default_rng(5)
        draws += self.hidden(law) * rng.standard_normal((len(draws), 1))
        draws = value + law.student * (draws - value)
        for i, (kind, level) in enumerate(self.keys):
            draws[:, i] += _few_hits(law, kind, level, value[i], len(draws))
            if kind == "exceed":
                draws[:, i] = np.clip(draws[:, i], 0.0, 1.0)
            elif kind in ("ee", "ene"):
                draws[:, i] = np.maximum(draws[:, i], 0.0)
        return value, draws

    def hidden(self, law: LawOfJ) -> Array:
        """Standard errors (k,) of measures by the shape of J given Ĵ that noise hides.

        Residuals shrunk by √ρ show ρ^1.5 of the skewness of J given Ĵ: the rest changes a measure
        by about as much again, in either direction.
        """
        if law.scatter is None:
            return np.zeros(len(self.keys))
        change = self.values(law.skewed) - self.values(law.normal)
        return np.asarray(_HIDDEN * (1.0 - self._trust(law) ** 3) * np.abs(change))

    def shows_shape(self, law: LawOfJ, std_error: Array) -> bool:
        """Whether pairs show a J given Ĵ that is far from normal, which matters for a measure."""
        matters = 2.0 * self.hidden(law) > std_error
        return bool((matters & (self._trust(law) > _VISIBLE)).any())

    def _trust(self, law: LawOfJ) -> Array:
        return np.array([law.trust(_place(law, *key)) for key in self.keys])


# Standard errors of the hidden shape, in units of the effect of the visible one.
_HIDDEN = 1.5
# ρ from which residuals show the shape of J given Ĵ: books of options have less, defaults more.
_VISIBLE = 0.4
# Standard deviations of Ĵ around a quantile that count as near it: the correction is smooth on
# the scale of one.
_NEAR = 0.15


def _place(law: LawOfJ, kind: Kind, level: float) -> float:
    """The loss at which a measure looks: a threshold or a quantile."""
    if kind in ("exceed", "ee", "ene"):
        return level
    return law.center.quantile(level)


def _few_hits(law: LawOfJ, kind: Kind, level: float, value: float, n_draws: int) -> Array:
    """Changes (K,) of a measure where few scenarios of the fit are beyond a level, or none.

    The number of hits h is a Poisson variable, and quantiles of gamma variables with h and h + 1
    degrees are limits of its mean (Garwood 1936, Fiducial limits for the Poisson distribution): for
    none, the upper one at 95 % is the rule of three. It counts for the share of hits that Ĵ does
    not decide: they rest on the law of J given Ĵ. Where pairs have met few θ beyond a threshold, it
    counts for all.
    """
    assert law.pairs is not None
    c, n = _place(law, kind, level), law.n_learned
    excess = kind == "es"
    probability = law.center.exceedance(c) if kind == "exceed" else 1.0 - level
    beyond = np.interp(law.pairs.by_scenario().s, law.s, law.m) > c
    below = probability > 0.5 and not excess
    if below:
        probability, beyond = 1.0 - probability, ~beyond
    hits = probability * n
    if not n or hits >= _HITS or kind in ("ee", "ene"):
        return np.zeros(n_draws)
    few = kind == "exceed" and beyond.sum() < _HITS
    share = 1.0 if few else law.undecided(c, below)
    levels = np.random.default_rng(3).permutation((np.arange(n_draws) + 0.5) / n_draws)
    degrees = np.maximum(hits + np.arange(n_draws) % 2, 1e-9)
    change = np.sqrt(share) * (gammaincinv(degrees, levels) - hits) / n
    if excess:
        return np.asarray(change * (value - c) / (1.0 - level))
    if kind == "exceed":
        return np.asarray(-change if below else change)
    # More hits beyond a place move the quantile out.
    tail = probability / np.maximum(1.0 + change / probability, 1e-12)
    levels = np.clip(tail if below else 1.0 - tail, 0.0, 1.0)
    return np.array([law.center.quantile(one) - c for one in levels])


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


def _value(law: WeightedSample, kind: Kind, level: float) -> float:
    if kind == "exceed":
        return law.exceedance(level)
    if kind in ("var", "pfe"):
        return law.quantile(level)
    if kind == "es":
        return law.shortfall(level)
    positive = law.excess(0.0)
    return max(positive if kind == "ee" else positive - law.mean(), 0.0)


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
