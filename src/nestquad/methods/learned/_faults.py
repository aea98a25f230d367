"""Faults of a model of J: tests on residuals of fresh draws, in the words of model validation.

Residuals r at a θ have mean J − Ĵ and independent noise, so that products of two of them have mean
(J − Ĵ)². That mean square is attributed to a shift, to a flattened tail, to a wrong scale, to
coordinates of θ that Ĵ leaves out, and to noise of the fit (calibration intercept and slope: Cox
1958, Two further applications of a model for binary regression; tests robust to unequal variances:
MacKinnon and White 1985, Some heteroskedasticity-consistent covariance matrix estimators).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import fdtrc, ndtri

from nestquad._typing import Array


@dataclass(frozen=True)
class FaultSettings:
    """Tuning numbers of the search for faults.

    Attributes
    ----------
    negligible
        Mean square error as a share of the variance of J, below which there is no fault: 0.3 % of
        the standard deviation of J. Control variates may be biased by less.
    significance
        Probability below which a pattern is not chance, divided by the number of coordinates.
    error
        The same for means, in standard errors: 3.3 have a probability of .001.
    share
        Least share of the mean square error that a fault explains, so that it is worth naming.
    most_of
        Share that a shift, a tail or a scale has to explain, since other faults imply some of them.
    tails
        Shares of scenarios in a tail, tried in turn: a cut-off further out spoils a smaller one.
    most_factors
        Coordinates that are named at most.
    n_bootstrap
        Bootstrap samples of θ.
    """

    negligible: float = 1e-5
    significance: float = 1e-3
    error: float = 3.3
    share: float = 0.1
    most_of: float = 0.4
    tails: tuple[float, ...] = (0.1, 0.05, 0.025)
    most_factors: int = 3
    n_bootstrap: int = 400


@dataclass(frozen=True, eq=False)
class Errors:
    """Fresh residuals of one output of g at θ.

    Attributes
    ----------
    theta, weights
        θ (n, d), and weights (n,) that make them a sample of their law.
    predicted
        Ĵ (n,).
    mean, square
        Mean residual (n,), whose mean is J − Ĵ, and the mean product of two different residuals
        (n,), whose mean is (J − Ĵ)².
    noise
        Variance (n,) of the mean residual by x, from neighbors in Ĵ.
    """

    theta: Array
    weights: Array
    predicted: Array
    mean: Array
    square: Array
    noise: Array

    @classmethod
    def of(cls, theta: Array, weights: Array, predicted: Array, parts: Sequence[Array]) -> Errors:
        """From residuals (n_l, N_l) of levels l with N_l ≥ 2."""
        mean = np.concatenate([part.mean(axis=1) for part in parts])
        square = np.concatenate(
            [
                (part.sum(axis=1) ** 2 - (part**2).sum(axis=1))
                / (part.shape[1] * (part.shape[1] - 1.0))
                for part in parts
            ]
        )
        count = np.repeat([part.shape[1] for part in parts], [len(part) for part in parts])
        within = np.concatenate([part.var(axis=1, ddof=1) for part in parts])
        order = np.argsort(predicted, kind="stable")
        reach = min(16, len(order))
        smooth = np.empty(len(order))
        smooth[order] = np.convolve(within[order], np.ones(reach), "same") / np.convolve(
            np.ones(len(order)), np.ones(reach), "same"
        )
        return cls(theta, weights, predicted, mean, square, smooth / count)

    def where(self, rows: Any) -> Errors:
        return replace(self, **{name: getattr(self, name)[rows] for name in self.__annotations__})

    def precision(self) -> Array:
        """Weights (n,) of mean residuals whose variance over θ adds to their noise."""
        size = np.average(self.square, weights=self.weights)
        total = max(float(size), 0.0) + self.noise
        return np.asarray(self.weights * total.mean() / np.maximum(total, 1e-300))

    def summaries(self, spread: float, rng: np.random.Generator, n: int) -> Array:
        """Draws (1 + n, 3) of bias E[Ĵ − J], mean square, and variance of J; the first is best.

        Resampled by the Bayesian bootstrap of θ (Rubin 1981, The Bayesian bootstrap); `spread` is
        the variance of Ĵ.
        """
        chance = np.concatenate(
            [np.ones((1, len(self.mean))), rng.standard_exponential((n, len(self.mean)))]
        )
        w = chance * self.weights
        w /= w.sum(axis=1, keepdims=True)
        bias, square = w @ self.mean, w @ self.square
        center = w @ self.predicted
        together = w @ (self.predicted * self.mean) - center * bias
        return np.stack([-bias, square, spread + 2.0 * together + square - bias**2], axis=1)


@dataclass(frozen=True)
class Fault:
    """A fault of a model of J.

    Attributes
    ----------
    kind
        ``"shift"``, ``"flattened tail"``, ``"scale"``, ``"missing factor"``, ``"overfit"`` or
        ``"unexplained"``.
    share
        Share of the mean square error that it explains.
    size
        Mean error J − Ĵ of a shift or in a tail, slope of J on Ĵ of a scale or an overfit.
    coordinate
        Coordinate of θ that is missing, from 0; None for other faults.
    side, tail
        1 for an upper tail, −1 for a lower one, 0 otherwise; and its share of scenarios.
    """

    kind: str
    share: float
    size: float = 0.0
    coordinate: int | None = None
    side: int = 0
    tail: float = 0.0


def find_faults(
    errors: Errors, total: float, lowest: float, settings: FaultSettings
) -> tuple[Fault, ...]:
    """Faults that fresh residuals show, in the order of their shares.

    `total` is the mean square of J − Ĵ, `lowest` its lower 95 % limit; none without evidence.
    """
    if lowest <= 0 or len(errors.mean) < 32:
        return ()
    faults, left = [], errors
    w = errors.weights / errors.weights.sum()
    mean, noise = _mean(errors)
    if abs(mean) > settings.error * noise and mean**2 / total >= settings.most_of:
        faults.append(Fault("shift", min(mean**2 / total, 1.0), mean))
        left = _less(errors, mean)
    share = float(w @ left.square) / total
    for side in (1, -1):
        fault, rows = _tail(left, side, total, settings)
        if fault is not None:
            faults.append(fault)
            left = left.where(~rows)
            share -= fault.share
    if share < settings.share or len(left.mean) < 32:
        return _ordered(faults)
    total_left = float(np.average(left.square, weights=left.weights))
    slope, t, part = _slope(left, total_left)
    if abs(t) > settings.error and part >= 2.0 * settings.most_of:
        return _ordered([*faults, Fault("scale", part * share, slope)])
    factors = [
        replace(one, share=one.share * share) for one in _factors(left, total_left, settings)
    ]
    faults += factors
    share -= sum(one.share for one in factors)
    if share >= settings.most_of * (1.0 if factors else 0.5) and not (faults and share < 0.5):
        rough = t < -settings.error
        faults.append(Fault("overfit" if rough else "unexplained", min(share, 1.0), slope))
    return _ordered(faults)


def _ordered(faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: -fault.share))


def _less(errors: Errors, mean: float) -> Errors:
    """Errors about another mean."""
    return replace(
        errors,
        mean=errors.mean - mean,
        square=errors.square - 2.0 * mean * errors.mean + mean**2,
    )


def _mean(errors: Errors) -> tuple[float, float]:
    """Mean of J − Ĵ over the law, and its standard error."""
    w = errors.weights / errors.weights.sum()
    mean = float(w @ errors.mean)
    return mean, float(np.linalg.norm(w * (errors.mean - mean)))


def _tail(
    errors: Errors, side: int, total: float, settings: FaultSettings
) -> tuple[Fault | None, Any]:
    """A tail of Ĵ in which errors have one sign, J beyond Ĵ, and most of the mean square."""
    s, w = side * errors.predicted, errors.weights / errors.weights.sum()
    order = np.argsort(s, kind="stable")
    rank = np.cumsum(w[order])
    for tail in settings.tails:
        rows = s >= s[order][np.searchsorted(rank, 1.0 - tail)]
        if rows.sum() < 8 or (~rows).sum() < 8:
            continue
        square, inside = float((w * errors.square)[rows].sum()), float(w[rows].sum())
        mean, noise = _mean(errors.where(rows))
        one_sided = mean**2 * inside >= 0.25 * max(square, 0.0)
        beyond = side * mean > settings.error * noise
        if beyond and one_sided and square >= settings.most_of * total:
            share = min(square / total, 1.0)
            return Fault("flattened tail", share, mean, side=side, tail=inside), rows
    return None, None


def _slope(errors: Errors, total: float) -> tuple[float, float, float]:
    """Slope of J on Ĵ, the t of its distance to 1, and the share of the mean square it explains."""
    w = errors.precision()
    x = errors.predicted - np.average(errors.predicted, weights=w)
    design = np.stack([np.ones_like(x), x], axis=1)
    coefficients, covariance = _robust(design, errors.mean, w)
    slope, variance = float(coefficients[1]), float(covariance[1, 1])
    own = errors.weights / errors.weights.sum()
    part = max(slope**2 - variance, 0.0) * float(own @ x**2) / max(total, 1e-300)
    return 1.0 + slope, slope / np.sqrt(max(variance, 1e-300)), min(part, 1.0)


def _factors(errors: Errors, total: float, settings: FaultSettings) -> list[Fault]:
    """Coordinates of θ on which J − Ĵ depends, by forward selection.

    Not given Ĵ: a noisy Ĵ = J + ε has errors that depend on θ given Ĵ, and on no coordinate alone.
    """
    n, d = errors.theta.shape
    w = errors.precision()
    s = _scores(errors.predicted)
    base = np.ones((n, 1))
    free = {k: _scores(column) for k, column in enumerate(errors.theta.T) if np.ptp(column) > 0}
    named: list[Fault] = []
    while free and len(named) < settings.most_factors:
        tested = []
        for k, c in free.items():
            columns = [c, c**2 - 1.0, c**3 - 3.0 * c, *([c * s] if np.ptp(s) > 0 else [])]
            tested.append((*_tested(base, np.stack(columns, axis=1), errors, w), k, columns))
        p, part, k, columns = min(tested, key=lambda test: (test[0], -test[1]))
        part /= max(total, 1e-300)
        if p > settings.significance / d or part < settings.share:
            break
        named.append(Fault("missing factor", min(part, 1.0), coordinate=k))
        base = np.concatenate([base, np.stack(columns, axis=1)], axis=1)
        del free[k]
    return named


def _tested(base: Array, columns: Array, errors: Errors, w: Array) -> tuple[float, float]:
    """Probability of further columns by chance (Wald test), and the mean square they explain."""
    root = np.sqrt(w)[:, None]
    # Orthogonal to the base and to each other, so that coefficients are shares of the mean square.
    q, _ = np.linalg.qr(root * np.concatenate([base, columns], axis=1))
    q = q[:, base.shape[1] :] / np.maximum(root, 1e-300)
    design = np.concatenate([base, q], axis=1)
    coefficients, covariance = _robust(design, errors.mean, w)
    own, covariance = coefficients[base.shape[1] :], covariance[base.shape[1] :, base.shape[1] :]
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlation = covariance / scale / scale[:, None]
    wald = float(own / scale @ np.linalg.lstsq(correlation, own / scale, rcond=None)[0])
    k, n = len(own), len(w)
    shares = errors.weights / errors.weights.sum()
    gram = q.T @ (shares[:, None] * q)
    part = float(own @ gram @ own - np.trace(gram @ covariance))
    return float(fdtrc(k, max(n - design.shape[1], 1), wald / k)), max(part, 0.0)


def _robust(design: Array, y: Array, w: Array) -> tuple[Array, Array]:
    """Weighted least squares, and the covariance HC3 of its coefficients."""
    gram = np.linalg.pinv(design.T @ (w[:, None] * design), hermitian=True)
    coefficients = gram @ (design.T @ (w * y))
    leverage = np.minimum(w * np.einsum("ij,jk,ik->i", design, gram, design), 0.99)
    score = design * (w * (y - design @ coefficients) / (1.0 - leverage))[:, None]
    return coefficients, gram @ (score.T @ score) @ gram


def _scores(values: Array) -> Array:
    """Normal scores of ranks, equal values with their mean rank."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - 0.5 * count
    return np.asarray(ndtri(middle[which.ravel()] / len(values)))
