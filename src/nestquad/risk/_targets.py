"""Measures of risk that were asked for, and their values under a law of J."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import ndtr

from nestquad._checks import numbers, shown
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.functionals import WeightedSample
from nestquad.result import Estimate

Kind: TypeAlias = Literal["var", "es", "exceed", "spectral", "ee", "ene", "pfe"]
Key: TypeAlias = tuple[Kind, Any]
"""A kind with its level, threshold, or name of a spectrum."""
Weighting: TypeAlias = Callable[[Array], Any]
_BELOW_ONE = "probabilities strictly between 0 and 1, such as 0.99"


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
        phi = values_of("spectral", function, u.ravel(), expected)
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

    def values(self, law: WeightedSample) -> Array:
        """Measures (k,) of a law."""
        return np.array([self._value(law, kind, level) for kind, level in self.keys])

    def place(self, law: WeightedSample, kind: Kind, level: Any) -> float:
        """The loss at which a measure looks: a threshold or a quantile."""
        if kind in ("exceed", "ee", "ene"):
            return float(level)
        if kind == "spectral":
            level = float(self.spectra[level].weights @ self.spectra[level].levels)
        return law.quantile(level)

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


def values_of(argument: str, function: Callable[[Array], Any], at: Array, expected: str) -> Array:
    """Values of a user's function of an array."""
    try:
        return numbers(argument, function(at), expected)
    except InputError:
        raise
    except Exception as error:
        given = f"a function that raised {type(error).__name__}: {error}"
        raise InputError(argument, given, expected) from error


def _numbers(argument: str, given: object, levels: bool = False) -> tuple[float, ...]:
    expected = _BELOW_ONE if levels else "finite thresholds"
    found = np.atleast_1d(numbers(argument, given, expected))
    bad = ~np.isfinite(found) | (levels & ((found <= 0) | (found >= 1)))
    if found.ndim > 1 or bad.any() or np.asarray(given).dtype == bool:
        raise InputError(argument, repr(given), expected)
    return tuple(dict.fromkeys(found.tolist()))
