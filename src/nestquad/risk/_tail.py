"""Error of Ĵ as a regression on θ, Ĵ and x of residuals at pairs, with posterior draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import ndtr

from nestquad._typing import Array, Indices
from nestquad.methods.learned import Check
from nestquad.regression import ScoreTable, Term


@dataclass(frozen=True)
class TailSettings:
    """Tuning numbers of the regression of residuals.

    Attributes
    ----------
    values_per_term, most_terms
        Pairs for each coefficient, and the most coefficients: a limit of time.
    degree
        Degree in the score of Ĵ.
    score_size
        Prior standard deviation of terms in the score of Ĵ alone, in those of all others: models of
        low degree are too flat in the tails.
    reach
        Changes beyond those at pairs that are allowed elsewhere, in units of their range.
    claimed
        Share of the variance that the model claims that is expected to be left.
    fewest_coordinates
        Coordinates of θ from which residuals are learned: in fewer a lattice follows J, and the
        regression misled it where J grows fast in the tails.
    clearly
        Standard errors by which the fit has to predict other pairs better than no change.
    penalties
        Ratios of noise variance to prior variance of a coefficient, for each pair.
    rows
        Rows at which terms are computed at a time: a limit of memory.
    """

    values_per_term: int = 4
    most_terms: int = 400
    degree: int = 3
    score_size: float = 5.0
    reach: float = 0.5
    claimed: float = 0.25
    fewest_coordinates: int = 3
    clearly: float = 2.0
    penalties: tuple[float, ...] = tuple(np.logspace(-6.0, 3.0, 46))
    rows: int = 1 << 13


SETTINGS = TailSettings()


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Bayesian linear regression with independent coefficients of one prior variance.

    The ratio of noise to prior variance is averaged over its posterior (MacKay 1992, Bayesian
    interpolation).

    Shapes
    ------
    columns (m, k), coefficients (k,); left (m,): residuals under the fit to all other rows; axes
    (k, k) and gain (k,): the matrix from moments to coefficients; hidden (k,): variances along the
    axes that the noise of the rows does not account for.
    """

    columns: Array
    coefficients: Array
    left: Array
    axes: Array
    gain: Array
    hidden: Array

    @classmethod
    def of(cls, columns: Array, y: Array) -> LinearFit:
        n = len(y)
        size, axes = np.linalg.eigh(columns.T @ columns)
        size = np.maximum(size, 1e-12 * size[-1] + 1e-300)
        moments = axes.T @ (columns.T @ y)
        options = n * np.array(SETTINGS.penalties)[:, None]
        kept = size / (size + options)
        rest = np.maximum(y @ y - kept @ (moments**2 / size), 1e-12 * (y @ y) + 1e-300)
        logs = 0.5 * np.log(options / (size + options)).sum(axis=1) - 0.5 * n * np.log(rest)
        chance = np.exp(logs - logs.max())
        gain = (chance / chance.sum()) @ (kept / size)
        coefficients = axes @ (gain * moments)
        leverage = (columns @ axes) ** 2 @ gain
        left = (y - columns @ coefficients) / np.maximum(1.0 - leverage, 1e-3)
        hidden = np.maximum(gain - size * gain**2, 0.0) * np.mean(left**2)
        return cls(columns, coefficients, left, axes, gain, hidden)

    def without_own(self, columns: Array) -> Array:
        """Predictions (m,) at columns (m, k) that belong to rows, by the fit to all other rows."""
        half = (columns @ self.axes) * self.gain
        own = np.einsum("mk,mk->m", half, self.columns @ self.axes)
        return np.asarray(columns @ self.coefficients - own * self.left)

    def variances(self) -> Array:
        """Posterior variances (m,) at the rows."""
        spread = self.gain * np.mean(self.left**2)
        return np.asarray((self.columns @ self.axes) ** 2 @ spread)

    def changes(self, multipliers: Array, rng: np.random.Generator) -> Array:
        """Draws (K, k) of errors of coefficients, by multipliers (K, m) of residuals.

        The wild bootstrap (Wu 1986, Jackknife, bootstrap and other resampling methods in regression
        analysis), and by the prior in directions that the rows do not show.
        """
        moments = (multipliers * self.left) @ self.columns @ self.axes
        unseen = np.sqrt(self.hidden) * rng.standard_normal(moments.shape)
        return np.asarray((moments * self.gain + unseen) @ self.axes.T)


def theta_terms(dim: int, room: int) -> list[Term]:
    """Terms of degree two in dim coordinates, and of a higher degree in the last."""
    more: list[Term] = [((dim - 1, k),) for k in range(3, SETTINGS.degree + 1)]
    lines: list[Term] = [(), *(((k, 1),) for k in range(dim))]
    squares: list[Term] = [((k, 2),) for k in range(dim)]
    products: list[Term] = [((k, 1), (m, 1)) for k, m in combinations(range(dim), 2)]
    groups = (lines + squares + more + products, lines + squares + more, lines)
    return next((each for each in groups if len(each) <= room), [()])


def control_terms(dim: int, d: int, room: int) -> list[Term]:
    """Terms of coordinates dim, …, d − 1 of x, which have mean zero given θ."""
    lines: list[Term] = [((k, 1),) for k in range(dim, d)]
    squares: list[Term] = [((k, 2),) for k in range(dim, d)]
    mixed: list[Term] = [((k, 1), (m, 1)) for k in range(dim) for m in range(dim, d)]
    groups = (lines + squares + mixed, lines + squares, lines)
    return next((each for each in groups if len(each) <= room), [])


@dataclass(frozen=True, eq=False)
class TailFit:
    """Regression of residuals g − ĝ at pairs on θ and the score of Ĵ.

    Differences of the two residuals of a pair are free of θ: they show control variates in x. Means
    of pairs less these show J − Ĵ. Pairs are many where a measure depends on J, and polynomials of
    degree two are nearer there than a model of all θ.

    Attributes
    ----------
    fit, terms, sizes
        The regression on terms times their prior standard deviations.
    ends
        Least and largest change of Ĵ.
    change
        Change (m,) of Ĵ at each pair, under the fit to all other scenarios.
    variance
        Variance (m,) of the change by errors of coefficients.
    """

    fit: LinearFit
    terms: Sequence[Term]
    sizes: Array
    ends: tuple[float, float]
    change: Array
    variance: Array

    @classmethod
    def of(
        cls, check: Check, residuals: Array, z: Array, node: Indices
    ) -> tuple[Array, TailFit | None]:
        """From residuals (m, 2) at pairs of scenarios `node`, whose Ĵ have normal scores z (m,).

        Residuals less control variates, and the fit, None unless it predicts pairs that it has not
        seen clearly better than no change.
        """
        dim = check.uniform.shape[1] + 1
        if dim <= SETTINGS.fewest_coordinates:
            return residuals, None
        room = min(len(z) // SETTINGS.values_per_term, SETTINGS.most_terms)
        theta, rest = _with_score(check.uniform, z), residuals
        controls = control_terms(dim, dim + check.inner.shape[2], room)
        if controls:
            first, second = (
                _table(np.concatenate([theta, check.inner[:, view]], axis=1)).matrix(controls)
                for view in (0, 1)
            )
            between = LinearFit.of(first - second, residuals[:, 0] - residuals[:, 1])
            own = [between.without_own(columns) for columns in (first, second)]
            rest = residuals - np.stack(own, axis=1)
        _, rows, group, count = np.unique(
            node, return_index=True, return_inverse=True, return_counts=True
        )
        terms = theta_terms(dim, min(len(rows) // SETTINGS.values_per_term, room))
        y = np.bincount(group, rest.mean(axis=1)) / count
        of_score = np.array([all(k == dim - 1 for k, _ in term) for term in terms])
        sizes = np.where(of_score, SETTINGS.score_size, 1.0)
        fit = LinearFit.of(_table(theta[rows]).matrix(terms) * sizes, y)
        gain = y**2 - fit.left**2
        if gain.mean() <= SETTINGS.clearly * gain.std() / np.sqrt(len(gain)):
            return rest, None
        change, fitted = (y - fit.left)[group], fit.columns @ fit.coefficients
        reach = SETTINGS.reach * float(np.ptp(fitted))
        ends = float(fitted.min()) - reach, float(fitted.max()) + reach
        r = rest - change[:, None]
        return r, cls(fit, terms, sizes, ends, change, fit.variances()[group])

    def at(self, uniform: Array, z: Array) -> Array:
        """Change (M,) of Ĵ at uniforms (M, d) of θ, with normal scores z (M,) of Ĵ."""
        found = [
            self.columns(uniform[rows], z[rows]) @ self.fit.coefficients for rows in _blocks(len(z))
        ]
        return np.clip(np.concatenate(found), *self.ends)

    def columns(self, uniform: Array, z: Array) -> Array:
        """Terms (M, k)."""
        return _table(_with_score(uniform, z)).matrix(self.terms) * self.sizes

    def means(self, uniform: Array, z: Array, node: Indices, weights: Array) -> Array:
        """Weighted means (n, k) of the terms over the θ of each node."""
        n = int(node.max()) + 1
        total = np.zeros((n, len(self.terms)))
        for rows in _blocks(len(z)):
            one = np.arange(rows.stop - rows.start)
            share = csr_matrix((weights[rows], (node[rows], one)), shape=(n, len(one)))
            total += share @ self.columns(uniform[rows], z[rows])
        return total / np.maximum(np.bincount(node, weights, n), 1e-300)[:, None]


def _blocks(n: int) -> list[slice]:
    return [slice(k, min(k + SETTINGS.rows, n)) for k in range(0, n, SETTINGS.rows)]


def _table(points: Array) -> ScoreTable:
    return ScoreTable(points, ("normal",) * points.shape[1])


def _with_score(uniform: Array, z: Array) -> Array:
    return np.concatenate([uniform, ndtr(z)[:, None]], axis=1)
