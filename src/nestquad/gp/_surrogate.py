"""Surrogates of J over θ: kinds of dense Gaussian processes, and fitting one to all outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.gp._dense import (
    GP,
    Correlation,
    Hyperparameters,
    PolynomialTrend,
    Shape,
    fit_gp,
    trends,
)


@dataclass(frozen=True)
class SurrogateKind:
    """A model of J, or of log J where J has to stay positive."""

    shape: Shape
    trend: PolynomialTrend
    additive: bool = False
    logarithm: bool = False

    def __str__(self) -> str:
        what = "log J" if self.logarithm else "J"
        kernel = {"gaussian": "Gaussian", "matern52": "Matérn-5/2"}[self.shape]
        return f"{what}: {'additive ' if self.additive else ''}{kernel}, {self.trend} trend"


@dataclass(frozen=True)
class Surrogate:
    """Ĵ(θ) for all outputs, over normal scores z of θ: processes of J / `scale` (p,), or of log J.

    Shapes
    ------
    z (n, d) → (n, p).
    """

    kind: SurrogateKind
    outputs: tuple[GP, ...]
    scale: Array

    def mean(self, z: Array) -> Array:
        return self._back(np.stack([gp.mean(z) for gp in self.outputs], axis=1))

    def can_model(self, js: Array) -> Array:
        """The leading js (m, T, p) that the model can take: positive ones for log J."""
        if not self.kind.logarithm:
            return js
        return js[: int((js > 0).all(axis=(1, 2)).cumprod().sum())]

    def means(self, z: Array, js: Array) -> Array:
        """Predictions at z from other values js (m, T, p), with the same model: (m, n, p)."""
        modelled = np.log(js) if self.kind.logarithm else js / self.scale
        columns = [gp.means(z, modelled[:, :, c].T).T for c, gp in enumerate(self.outputs)]
        return self._back(np.stack(columns, axis=2))

    def sd(self, z: Array) -> Array:
        """Standard deviation of Ĵ, to first order for log J."""
        sd = np.stack([gp.sd(z) for gp in self.outputs], axis=1)
        return np.asarray(sd * (self.mean(z) if self.kind.logarithm else self.scale))

    def paths(self, z: Array, count: int, rng: np.random.Generator) -> Array:
        """Draws of J from the posterior at z (n, d): (count, n, p)."""
        draws = np.empty((count, z.shape[0], len(self.outputs)))
        for c, gp in enumerate(self.outputs):
            root = _square_root(gp.covariance(z))
            draws[:, :, c] = gp.mean(z) + rng.standard_normal((count, root.shape[1])) @ root.T
        return self._back(draws)

    def leave_one_out(self) -> Array:
        """Each design point predicted from the others, (T, p)."""
        return self._back(np.stack([gp.leave_one_out[0] for gp in self.outputs], axis=1))

    def restricted(self, rows: NDArray[np.bool_]) -> Surrogate:
        """Condition the processes on a subset of the design points."""
        return replace(self, outputs=tuple(gp.restricted(rows) for gp in self.outputs))

    def change_paths(
        self, fewer: Surrogate, z: Array, count: int, rng: np.random.Generator
    ) -> Array:
        """Draws (count, n, p) of Ĵ of `fewer` points less Ĵ, as the prior expects them."""
        draws = np.empty((count, z.shape[0], len(self.outputs)))
        for c, (gp, other) in enumerate(zip(self.outputs, fewer.outputs, strict=True)):
            root = _square_root(other.covariance(z) - gp.covariance(z))
            draws[:, :, c] = rng.standard_normal((count, root.shape[1])) @ root.T
        return np.asarray(draws * (self.mean(z) if self.kind.logarithm else self.scale))

    def log_predictive_density(self, j: Array) -> float:
        """Leave-one-out log density of the values j (T, p), for models of J and of log J."""
        total = 0.0
        for c, gp in enumerate(self.outputs):
            mean, sd = gp.leave_one_out
            total += float(np.sum(-0.5 * ((gp.y - mean) / sd) ** 2 - np.log(sd)))
            unit = j[:, c] if self.kind.logarithm else np.full(len(j), self.scale[c])
            total -= float(np.sum(np.log(unit)))
        return total

    def _back(self, modelled: Array) -> Array:
        if not self.kind.logarithm:
            return np.asarray(self.scale * modelled)
        return np.asarray(np.exp(np.clip(modelled, -700.0, 700.0)))


def first_kinds(dim: int, n_points: int, *, positive: bool) -> list[SurrogateKind]:
    """Kinds to start the search from: rough and smooth, with and without logarithm."""
    offered = [t for t in trends(dim, n_points) if t.degree <= 2]
    linear = [t for t in offered if t.degree <= 1][-1]
    pairs: list[tuple[Shape, PolynomialTrend]] = [("matern52", linear), ("gaussian", offered[-1])]
    return [
        SurrogateKind(shape, trend, additive=dim > 3, logarithm=logarithm)
        for logarithm in ([False, True] if positive else [False])
        for shape, trend in pairs
    ]


def near_kinds(kind: SurrogateKind, dim: int, n_points: int) -> list[SurrogateKind]:
    """Kinds that differ in one respect: the trend by one step, the shape, or how it combines."""
    # A logarithm of a higher degree is wild in the tails (tests/methods/test_auto.py, `logarithm`).
    offered = [t for t in trends(dim, n_points) if t.degree <= 2 or not kind.logarithm]
    at = offered.index(kind.trend) if kind.trend in offered else len(offered)
    steps = [offered[i] for i in (at + 1, at - 1) if 0 <= i < len(offered)]
    other: Shape = "matern52" if kind.shape == "gaussian" else "gaussian"
    near = [replace(kind, trend=trend) for trend in steps]
    near.append(replace(kind, shape=other))
    if dim > 1:
        near.append(replace(kind, additive=not kind.additive))
    return near


def fit_surrogate(
    kind: SurrogateKind,
    z: Array,
    j: Array,
    change: Array,
    starts: tuple[Hyperparameters, ...] | None = None,
) -> Surrogate | None:
    """Fit one kind to J (T, p); `change` (T, p) is the change of J with half the inner points."""
    outputs = []
    scale = scale_of(j)  # squares of J may be out of range
    for c in range(j.shape[1]):
        unit = j[:, c] if kind.logarithm else scale[c]
        y, noise = np.log(j[:, c]) if kind.logarithm else j[:, c] / unit, change[:, c] / unit
        gp = fit_gp(
            Correlation(kind.shape, kind.additive),
            kind.trend,
            z,
            y,
            noise_shape=_smooth_noise(z, noise),
            noise_guess=0.3 * float(np.mean(noise**2)),
            start=starts[c] if starts else None,
        )
        if gp is None:
            return None
        outputs.append(gp)
    return Surrogate(kind, tuple(outputs), scale)


def _smooth_noise(z: Array, change: Array) -> Array:
    """Relative noise variances as a smooth function of z, of geometric mean one.

    Single changes say little; how their size varies with θ is seen by regression of its logarithm
    on a quadratic in z, with enough points for it.
    """
    size = np.log(change**2 + 1e-6 * np.mean(change**2) + 1e-300)
    functions = np.concatenate([np.ones((len(z), 1)), z, z**2], axis=1)
    if len(z) < 3 * functions.shape[1]:
        return np.ones(len(z))
    # A weak pull to a constant: one point with a large change must not bend the rest.
    penalty = np.diag([0.0] + [4.0] * (functions.shape[1] - 1))
    normal = functions.T @ functions + penalty
    fitted = functions @ np.linalg.solve(normal, functions.T @ size)
    fitted -= fitted.mean()
    return np.asarray(np.exp(np.clip(fitted, -9.0, 9.0)))


def _square_root(covariance: Array) -> Array:
    """A factor of a positive semi-definite matrix, however singular: Cholesky with pivots."""
    lower, pivots, rank, _ = lapack.dpstrf(covariance, tol=1e-12 * covariance.max(), lower=1)
    root = np.empty((len(lower), rank))
    root[pivots - 1] = np.tril(lower)[:, :rank]
    return root
