"""Measures of risk that were asked for, and their values under a corrected law of J."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import gammaincinv, ndtr

from nestquad._checks import numbers, shown
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.functionals import WeightedSample
from nestquad.result import Estimate
from nestquad.risk._law import LawOfJ

Kind: TypeAlias = Literal["var", "es", "exceed", "spectral", "ee", "ene", "pfe"]
Key: TypeAlias = tuple[Kind, Any]
"""A kind with its level, threshold, or name of a spectrum."""
Weighting: TypeAlias = Callable[[Array], Any]
_BELOW_ONE = "probabilities strictly between 0 and 1, such as 0.99"


@dataclass(frozen=True)
class TargetSettings:
    """Tuning numbers of measures.

    Attributes
    ----------
    near
        Standard deviations of Ĵ around a quantile that count as near it: the correction is smooth
        on the scale of one.
    few
        Scenarios beyond a level from which their number is no error of its own, and pairs beyond a
        threshold below which nothing is taken as decided by Ĵ there.
    hidden
        Standard errors by the shape of J given Ĵ that noise hides, in units of what the visible
        shape changes: they are as large, with a margin for measures that are not linear in it.
    """

    near: float = 0.15
    few: int = 20
    hidden: float = 1.5


SETTINGS = TargetSettings()


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Spectral measure ∫ φ(u) q(u) du of the quantiles q of J.

    Acerbi (2002), Spectral measures of risk. Cells of u are even in normal scores up to a
    probability of 1e-9; φ is averaged over points of each cell.

    Shapes
    ------
    levels, density, weights (n,): middle of each cell, φ there, and its integral over the cell.
    """

    levels: Array
    density: Array
    weights: Array

    @classmethod
    def of(cls, name: str, function: object, n: int = 4096, n_points: int = 8) -> Spectrum:
        expected = "a function of levels u (n,) in (0, 1), at least 0, with integral 1"
        if not callable(function):
            raise InputError("spectral", f"{name}: {shown(function)}", expected)
        edges = np.concatenate([[0.0], ndtr(np.linspace(-6.0, 6.0, n - 1)), [1.0]])
        inside = (np.arange(n_points) + 0.5) / n_points
        u = edges[:-1, None] + np.diff(edges)[:, None] * inside
        try:
            phi = numbers("spectral", function(u.ravel()), expected)
        except InputError:
            raise
        except Exception as error:  # of the user's function
            given = f"{name}, which raised {type(error).__name__}: {error}"
            raise InputError("spectral", given, expected) from error
        if phi.shape != (u.size,) or not np.isfinite(phi).all() or (phi < 0).any():
            raise InputError("spectral", f"{name} with values {shown(phi[:3])}, …", expected)
        density = phi.reshape(u.shape).mean(axis=1)
        weights = density * np.diff(edges)
        total = float(weights.sum())
        if abs(total - 1.0) > 0.01:
            raise InputError("spectral", f"{name} with the integral {total:.4g}", expected)
        return cls(u.mean(axis=1), density, weights / total)

    def value(self, law: WeightedSample) -> float:
        return float(self.weights @ law.quantiles(self.levels))


@dataclass(frozen=True)
class Targets:
    """Measures of each line: a kind, and its level, threshold or name."""

    keys: tuple[Key, ...]
    spectra: Mapping[str, Spectrum] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        var: float | Sequence[float],
        es: float | Sequence[float],
        exceed: object,
        spectral: Weighting | Mapping[str, Weighting] | None = None,
    ) -> Targets:
        keys: list[Key] = [("var", p) for p in _numbers("var", var, levels=True)]
        keys += [("es", p) for p in _numbers("es", es, levels=True)]
        keys += [("exceed", c) for c in _numbers("exceed", exceed)]
        given = {} if spectral is None else spectral
        given = given if isinstance(given, Mapping) else {"spectral": given}
        spectra = {str(name): Spectrum.of(str(name), one) for name, one in given.items()}
        keys += [("spectral", name) for name in spectra]
        if not keys:
            raise InputError("var, es, exceed", "no measure", "at least one", "Such as var=0.99.")
        return cls(tuple(keys), spectra)

    @classmethod
    def exposure(cls, pfe: float | Sequence[float]) -> Targets:
        levels = _numbers("var", pfe, levels=True)
        return cls((("ee", 0.0), ("ene", 0.0), *(("pfe", p) for p in levels)))

    def interest(self, law: LawOfJ, s: Array) -> Array:
        """Density of draws (M,) relative to the law, over dense Ĵ = s: where J matters."""
        shares = self.dependence(law, s)
        means = shares.mean(axis=1)
        return np.asarray((1.0 / np.where(means > 0, means, np.inf)) @ shares)

    def dependence(self, law: LawOfJ, s: Array) -> Array:
        """Change (k, M) of each measure with J at Ĵ = s, but for a factor.

        A quantile or a probability depends on J near its level, shortfall beyond it, a spectral
        measure by its weight, exposure everywhere. Near means within the error of Ĵ, or a few
        percent of its spread.
        """
        least = max(SETTINGS.near * float(np.sqrt(law.variance)), 1e-300)
        width = np.hypot(np.sqrt(law.v[0]), least)
        found = np.ones((len(self.keys), len(s)))
        for i, (kind, level) in enumerate(self.keys):
            if kind == "spectral":
                spectrum = self.spectra[level]
                found[i] = np.interp(
                    ndtr(np.interp(s, law.s, law.z)), spectrum.levels, spectrum.density
                )
            elif kind not in ("ee", "ene"):
                chance = ndtr((law.m - self._place(law, kind, level)) / width)
                chance = np.interp(s, law.s, chance)
                found[i] = chance * (1.0 - chance) + (chance**2 if kind == "es" else 0.0)
        return found

    def values(self, law: WeightedSample) -> Array:
        """Measures (k,) of a law."""
        return np.array([self._value(law, kind, level) for kind, level in self.keys])

    def _value(self, law: WeightedSample, kind: Kind, level: Any) -> float:
        if kind == "exceed":
            return law.exceedance(level)
        if kind in ("var", "pfe"):
            return law.quantile(level)
        if kind == "es":
            return law.shortfall(level)
        if kind == "spectral":
            return self.spectra[level].value(law)
        positive = law.excess(0.0)
        return max(positive if kind == "ee" else positive - law.mean(), 0.0)

    def _place(self, law: LawOfJ, kind: Kind, level: Any) -> float:
        """The loss at which a measure looks: a threshold or a quantile."""
        if kind in ("exceed", "ee", "ene"):
            return float(level)
        if kind == "spectral":
            level = float(self.spectra[level].weights @ self.spectra[level].levels)
        return law.center.quantile(level)

    def measured(self, law: LawOfJ) -> tuple[Array, Array | None]:
        """Measures (k,) of one loss, and posterior draws (K, k); None where nothing is known."""
        if law.pairs is None:
            return self.values(law.center), None
        value, *each = (self.values(sample) for sample in law.samples)
        draws = np.stack(each)
        draws += self._hidden(law) * np.random.default_rng(5).standard_normal((len(draws), 1))
        for i, (kind, level) in enumerate(self.keys):
            if kind not in ("spectral", "ee", "ene"):
                place = self._place(law, kind, level)
                draws[:, i] += _few_hits(law, kind, level, place, value[i], len(draws))
            if kind in ("exceed", "ee", "ene"):
                draws[:, i] = np.clip(draws[:, i], 0.0, 1.0 if kind == "exceed" else np.inf)
        return value, draws

    def _hidden(self, law: LawOfJ) -> Array:
        """Standard errors (k,) of measures by the shape of J given Ĵ that noise hides.

        Residuals shrunk by √ρ show ρ^1.5 of the skewness of J given Ĵ, and 1 − ρ³ of it is unknown.
        """
        if law.scatter is None or not law.v[0].any():
            return np.zeros(len(self.keys))
        change = self.values(law.central("sharp")) - self.values(law.central("normal"))
        trust = np.array([law.trust_at(self._place(law, *key)) for key in self.keys])
        return np.asarray(SETTINGS.hidden * (1.0 - trust**3) * np.abs(change))


def _few_hits(law: LawOfJ, kind: Kind, level: float, c: float, value: float, n_draws: int) -> Array:
    """Changes (K,) of a measure where few scenarios of the fit are beyond a level, or none.

    The number of hits h is a Poisson variable, and quantiles of gamma variables with h and h + 1
    degrees are limits of its mean (Garwood 1936, Fiducial limits for the Poisson distribution): for
    none, the upper one at 95 % is the rule of three. It counts for the share of hits that Ĵ does
    not decide: they rest on the law of J given Ĵ. Where pairs have met few θ beyond a threshold, it
    counts for all. Pairs do not count as hits: on odd seeds intervals of deep tails were too short.
    """
    assert law.pairs is not None
    excess = kind == "es"
    probability = law.center.exceedance(c) if kind == "exceed" else 1.0 - level
    beyond = np.interp(law.pairs.by_scenario().s, law.s, law.m) > c
    below = probability > 0.5 and not excess
    if below:
        probability, beyond = 1.0 - probability, ~beyond
    n, hits = law.n_learned, probability * law.n_learned
    if not n or hits >= SETTINGS.few:
        return np.zeros(n_draws)
    few = kind == "exceed" and beyond.sum() < SETTINGS.few
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
    return law.center.quantiles(np.clip(tail if below else 1.0 - tail, 0.0, 1.0)) - c


def part_of(estimate: Estimate, which: Any) -> Estimate:
    """One of several answers, or some of them, as an estimate of its own."""
    value, error = (np.atleast_1d(one)[which] for one in (estimate.value, estimate.std_error))
    single = np.ndim(value) == 0
    covariance = None
    if not single and estimate.covariance is not None:
        covariance = estimate.covariance[np.ix_(which, which)]
    steps = []
    for step in estimate.trace:
        both = (np.atleast_1d(one)[which] for one in (step.value, step.std_error))
        steps.append(replace(step, **dict(zip(("value", "std_error"), both, strict=True))))
    return replace(
        estimate,
        value=float(value) if single else value,
        std_error=float(error) if single else error,
        covariance=covariance,
        draws=None if estimate.draws is None else estimate.draws[:, which],
        trace=tuple(steps),
    )


def label(kind: Kind, level: Any) -> str:
    """The name of a measure.

    Examples
    --------
    >>> label("var", 0.99), label("exceed", 100.0)
    ('VaR 99 %', 'P(J > 100)')
    """
    if kind == "exceed":
        return f"P(J > {level:g})"
    if kind == "spectral":
        return str(level)
    words = {"var": "VaR", "es": "ES", "pfe": "PFE", "ee": "EE", "ene": "ENE"}
    return words[kind] if kind in ("ee", "ene") else f"{words[kind]} {100 * level:g} %"


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
