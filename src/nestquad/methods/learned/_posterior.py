"""Posterior of J: draws of the function, and of every functional of it.

Two kinds of evidence make it. *Independent randomizations*: the change of a functional when one
group of points is deleted, over the change that the posterior of the model expects, calibrates the
errors of its paths. *Fresh pairs*: the discrepancy J − Ĵ given Ĵ has a mean b and a variance v that
no point of the fit has seen. A draw is

    J_k = Ĵ + b_k(Ĵ) + √v_k(Ĵ) ε_k + κ_k e_k,

and a functional F has draws F(Ĵ + b_k + √v_k ε_k) + κ_k ½ [F(Ĵ + e_k) − F(Ĵ − e_k)]. Only the odd
part of a path counts: that f(Ĵ) is biased because J scatters about Ĵ is learned from pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nestquad._typing import Array
from nestquad.methods.learned._discrepancy import (
    Evidence,
    Pairs,
    Scores,
    draw_bias,
    draw_variances,
)
from nestquad.methods.learned._evidence import Check
from nestquad.methods.learned._model import ModelOfJ, Paths


@dataclass(frozen=True)
class PosteriorSettings:
    """Tuning numbers of the posterior of J; `studies ablate` measures each.

    Attributes
    ----------
    n_paths
        Paths of the model: the variance of a functional is then known to a quarter.
    n_discrepancies
        Draws of the discrepancy.
    n_draws
        Draws of a functional, each a path, a discrepancy and a calibration factor: the 97.5 %
        quantile is then known to 5 % of a standard deviation.
    prior_sd
        Standard deviation of log κ² before deleted groups are seen. Models are wrong about their
        error by orders of magnitude.
    group_dof
        Degrees of freedom that a deleted group adds to what is known of κ².
    visible
        Step for an f with jumps, as a share of the standard deviation of J: smaller errors would
        carry none of a few hundred θ across a jump.
    """

    n_paths: int = 32
    n_discrepancies: int = 64
    n_draws: int = 1024
    prior_sd: float = 3.0
    group_dof: float = 1.0
    visible: float = 0.1


DEFAULT = PosteriorSettings()
# Median of the square of a standard normal variable.
_MEDIAN_SQUARE = 0.4549


@dataclass(frozen=True, eq=False)
class FunctionalDraws:
    """Draws (K, k) of a functional less its value at Ĵ, and the power of n at which they narrow."""

    values: Array
    rate: float


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of J at the θ of a model's sketch.

    Attributes
    ----------
    model, check
        The model, and fresh pairs where there are any.
    rng
        Randomness of the draws.
    jumps
        Whether functionals jump where J can be.
    """

    model: ModelOfJ
    check: Check | None
    rng: np.random.Generator
    jumps: bool = False
    settings: PosteriorSettings = DEFAULT

    @cached_property
    def paths(self) -> Paths:
        return self.model.paths(self.settings.n_paths, self.rng)

    @cached_property
    def surprise(self) -> float:
        return 1.0 if self.check is None else self.check.surprise(self.model)

    def draws(self, functional: Callable[[Array], Array]) -> FunctionalDraws:
        """Draws of a functional less its value at Ĵ.

        The functional maps J (M, p) at the sketch to answers (S, k): the answer itself, then others
        with errors of the same kind, which make the calibration more certain.
        """
        center = functional(self.model.sketch.j)[0]
        own = np.stack([self._odd(functional, error) for error in self.paths.errors])
        shift = np.stack([functional(j)[0] - center for j in self._discrepant()])
        n = self.settings.n_draws
        kappa, expected = self._factors(functional, center.size)
        path = self.rng.integers(len(own), size=n)
        sign = self.rng.choice([-1.0, 1.0], size=(n, 1))
        moved = shift[self.rng.integers(len(shift), size=n)]
        values = np.nan_to_num(moved + sign * kappa * own[path, 0])
        return FunctionalDraws(values, _rate(own[:, 0], expected))

    def _odd(self, functional: Callable[[Array], Array], error: Array) -> Array:
        """Odd part (S, k) of the change of a functional by an error (M, p) of J."""
        base = self.model.sketch
        step = self._step(error) if self.jumps else 1.0
        sides = [self.model.bounded(base.j + s * error, base.uniform) for s in (step, -step)]
        up, down = (functional(side) for side in sides)
        return np.asarray(np.nan_to_num(up - down) / (2.0 * step))

    def _step(self, error: Array) -> float:
        """Multiple of an error at which jumps of f are seen."""
        size, spread = np.median(np.abs(error), axis=0), self.model.sketch.j.std(axis=0)
        seen = size > 0
        if not seen.any():
            return 1.0
        return max(1.0, float((self.settings.visible * spread[seen] / size[seen]).min()))

    def _factors(self, functional: Callable[[Array], Array], k: int) -> tuple[Array, list[Array]]:
        """Draws (K, k) of κ given the changes of deleted groups, and variances expected of these.

        The mean over groups and answers of squared observed over expected changes is a multiple of
        a χ² variable over its degrees of freedom, so its logarithm is about normal.
        """
        groups, prior = len(self.paths.observed), self.settings.prior_sd**-2
        mean, precision, expected = np.zeros(k), prior, []
        if groups > 1:
            observed = [self._odd(functional, change) for change in self.paths.observed]
            expected = [
                np.mean([self._odd(functional, change) ** 2 for change in changes], axis=0)
                for changes in self.paths.expected
            ]
            total = np.sum(expected, axis=0)
            squares = np.sum(np.square(observed), axis=0)
            known = total > 0
            ratio = np.where(known, squares / np.where(known, total, 1.0), 1.0).mean(axis=0)
            likelihood = 0.5 * self.settings.group_dof * groups
            precision = prior + likelihood
            mean = np.log(np.clip(ratio, 1e-12, 1e6)) * likelihood / precision
        normal = self.rng.standard_normal((self.settings.n_draws, 1))
        logarithm = mean + normal / np.sqrt(precision)
        return np.exp(0.5 * logarithm) * np.sqrt(self.surprise), expected

    @cached_property
    def _claimed(self) -> Array:
        """Factor (p,) of the variance that the model claims at single θ, from deleted groups."""
        if len(self.paths.observed) < 2:
            return np.full(self.model.sketch.j.shape[1], self.surprise)
        observed = np.median(self.paths.observed**2, axis=(0, 1)) / _MEDIAN_SQUARE
        expected = np.median((self.paths.expected**2).mean(axis=1), axis=(0, 1))
        ratio = np.where(expected > 0, observed / np.where(expected > 0, expected, 1.0), 1.0)
        return np.asarray(np.clip(ratio, 1e-12, 1e6) * self.surprise)

    def _discrepant(self) -> Array:
        """Draws (K, M, p) of Ĵ + b(Ĵ) + √v(Ĵ) ε."""
        base, n = self.model.sketch, self.settings.n_discrepancies
        if self.check is None:
            return base.j[None]
        check = self.check
        r, s = check.residuals(self.model), self.model.mean(check.uniform)
        claims = self.model.sd(check.uniform) ** 2 * self._claimed
        drawn = np.repeat(base.j[None], n, axis=0)
        normal = self.rng.standard_normal((n, *base.j.shape)) @ _correlation(r).T
        values = check.values.reshape(-1, base.j.shape[1])
        low = np.minimum(base.j.min(axis=0), values.min(axis=0))
        high = np.maximum(base.j.max(axis=0), values.max(axis=0))
        for c in np.flatnonzero(np.ptp(base.j, axis=0) > 0):
            law = Scores.of(base.j[:, c], base.weights)
            pairs = Pairs(s[:, c], r[:, :, c], check.weights, claims[:, c])
            seen = Evidence(pairs, law(pairs.s), max(1e-12 * law.variance, 1e-300))
            b = draw_bias(law, seen, n, self.rng)
            v = draw_variances(law, seen, b[0], n, self.rng)
            order = np.argsort(np.argsort(base.j[:, c], kind="stable"), kind="stable")
            drawn[:, :, c] += b[1:, order] + np.sqrt(v[1:, order]) * normal[:, :, c]
        drawn = np.clip(drawn, low, high)
        return np.stack([self.model.bounded(j, base.uniform) for j in drawn])


def _correlation(residuals: Array) -> Array:
    """Root (p, p) of the correlation of J − Ĵ between outputs, from residuals (m, 2, p)."""
    products = np.einsum("mc,md->cd", residuals[:, 0], residuals[:, 1])
    both = 0.5 * (products + products.T)
    values, vectors = np.linalg.eigh(both)
    covariance = (vectors * np.maximum(values, 0.0)) @ vectors.T
    sizes = np.sqrt(np.diag(covariance))
    if not (sizes > 0).all():
        return np.eye(len(sizes))
    values, vectors = np.linalg.eigh(covariance / np.outer(sizes, sizes))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _rate(own: Array, expected: list[Array]) -> float:
    """Power of n at which standard deviations fall, from all points to all groups but one.

    Deleting a group adds the expected variance of the change to that of the functional.
    """
    variance, n = float(np.mean(own**2)), len(expected)
    if n < 2 or not variance > 0:
        return 1.0
    more = float(np.mean([one[0] for one in expected]))
    return float(np.clip(0.5 * np.log1p(more / variance) / np.log(n / (n - 1.0)), 0.5, 3.0))
