"""Gains without draws of parameters: data with finitely many values, and grids of the prior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy

from nestquad._typing import Array
from nestquad.design._experiment import Setup
from nestquad.distributions import Empirical
from nestquad.errors import EvaluationError, InputError
from nestquad.points import Sobol, Stream

_GLANCE, _LOOK = 32, 1024  # simulations that show whether data are counts, and their range
_CHECKED = 4  # nodes at which the probabilities of all outcomes are summed
_COMPARED = 16  # outcomes whose likelihoods are compared with sums of those of single counts
_RANGES = (1.5, 2.5)  # ranges of counts relative to the largest simulated
_MOST_OUTCOMES = 4096
_FEWEST_NODES, _MOST_NODES = 256, 2**14  # nodes of the prior for each replicate
_INTERVALS, _FINEST = (10, 16), 2**13  # of the first grids in each variable, and of the last
_END = 6.0  # of a grid in each driving normal; beyond are 2e-9 of the mass
_LIGHTEST = 1e-8  # weight of grid points relative to the largest
_MOST_CELLS = 2**22  # likelihoods in memory at once
_GOLDEN = 1.618
_CONVERGING = 0.5  # ratio of changes below which their sum is no accident; h² has 0.38
_LARGEST = 1e6  # limit of minus log likelihoods: their probabilities are zero
_ABSENT = 1e-4  # nats of outcomes that a table lacks, at most
_TOTAL = 1e-6  # largest error of the sum of probabilities of all outcomes


class PriorGrid(NamedTuple):
    """Equispaced points (n, k) of driving normals, and their weights."""

    points: Array
    weights: Array

    @classmethod
    def finer(cls, k: int, accuracy: float = 0.0) -> Iterator[PriorGrid]:
        """Grids of k = 1 or 2 normals; none of more.

        The spacing falls by the golden section, so that no period is hidden from all of them.
        """
        intervals, more = _INTERVALS
        while k <= 2 and intervals <= _FINEST:
            axis = np.linspace(-_END, _END, intervals + 1)
            points = np.stack(np.meshgrid(*[axis] * k), axis=-1).reshape(-1, k)
            weights = np.exp(-0.5 * (points**2).sum(axis=1))
            kept = weights > max(1e-3 * accuracy, _LIGHTEST) * weights.max()
            yield cls(points[kept], weights[kept] / weights[kept].sum())
            intervals, more = more, intervals + more


@dataclass(frozen=True, eq=False)
class OutcomeTable:
    """Likelihoods of all outcomes (K, n_y) at nodes of the prior.

    Where observations are independent given θ, log likelihoods of the outcomes are sums, of those
    of the few outcomes `single` (M, n_y) that differ from the first one in one coordinate: `parts`
    (K, n_y) are their indices. `constants` (K,) are missing from `log_prob`.
    """

    setup: Setup
    rows: Array
    constants: Array
    single: Array
    parts: Any = None

    @classmethod
    def of(
        cls, setup: Setup, most: int, likelihoods: float, stream: Stream, known: float = 0.0
    ) -> OutcomeTable:
        """Table of outcomes from `support`, or of counts around the simulated ones.

        It has no rows where the data are not counts, or too many for the likelihoods, or where
        probabilities do not add up to one. The coefficients of binomial and Poisson laws may be
        missing from `log_prob`: the number of trials is the largest count in all coordinates, or
        the `known` one of other designs.
        """
        experiment = setup.experiment
        k = experiment.prior_law.base_dim
        least = _INTERVALS[1] ** k // 2 if k <= 2 else 8 * _FEWEST_NODES
        limit = min(_MOST_OUTCOMES, likelihoods / (_CHECKED + least))
        if experiment.support is not None:
            table = cls.of_rows(setup, experiment.outcomes(setup.design))
            totals = np.exp(table.logs(table._few(stream))).sum(axis=1)
            if np.abs(totals - 1.0).max() > _TOTAL:
                given = f"from {totals.min():.4g} to {totals.max():.4g}"
                raise InputError(
                    "support",
                    f"outcomes whose probabilities add up to numbers {given}",
                    "all outcomes, and a log_prob with all constants",
                )
            return table
        none, sizes = cls.of_rows(setup, np.zeros((0, 1))), np.zeros(1)
        for n in (_GLANCE, min(_LOOK, most // 4)):
            u = Sobol().uniforms(stream.child(7), experiment.dim, (0, 1), (0, n))[0]
            y = setup.simulated(u)[1]
            sizes = y.max(axis=0) + 1.0
            if not ((y == np.round(y)) & (y >= 0)).all() or np.prod(sizes) > _MOST_OUTCOMES:
                return none
        wider = [np.ceil(factor * sizes) for factor in _RANGES]
        sizes_tried = [sizes, np.full_like(sizes, sizes.max()), np.maximum(sizes, known + 1.0)]
        for ranges in np.unique([*sizes_tried, *wider], axis=0).astype(int):
            if np.prod(ranges) > _MOST_OUTCOMES or 1 + (ranges - 1).sum() > limit:
                continue
            table = cls._of_counts(setup, ranges, stream)
            if len(table.single) > limit:
                continue
            try:
                with np.errstate(all="ignore"):
                    found = table._complete(stream)
            except EvaluationError:  # outcomes that cannot occur
                continue
            if found is not None:
                return found
        return none

    @classmethod
    def of_rows(cls, setup: Setup, rows: Array) -> OutcomeTable:
        return cls(setup, rows, np.zeros(len(rows)), rows)

    @classmethod
    def _of_counts(cls, setup: Setup, ranges: Any, stream: Stream) -> OutcomeTable:
        """Table of all counts below some numbers, by single coordinates where that is the same."""
        rows = np.stack(np.meshgrid(*map(np.arange, ranges), indexing="ij"), axis=-1)
        rows = rows.reshape(-1, len(ranges))
        before = np.concatenate([[0], np.cumsum(ranges - 1)[:-1]])
        single = np.zeros((1 + (ranges - 1).sum(), len(ranges)))
        for j, size in enumerate(ranges):
            single[1 + before[j] : before[j] + size, j] = np.arange(1, size)
        whole = cls.of_rows(setup, rows.astype(float))
        parts = np.where(rows > 0, rows + before, 0)
        summed = replace(whole, single=single, parts=parts)
        some = stream.child(12).generator().integers(len(rows), size=_COMPARED)
        latent = whole._few(stream)
        try:
            with np.errstate(all="ignore"):
                direct = cls.of_rows(setup, whole.rows[some]).logs(latent)
                alike = np.allclose(summed.logs(latent)[:, some], direct, rtol=1e-9, atol=1e-9)
        except EvaluationError:
            return whole
        return summed if alike else whole

    def _complete(self, stream: Stream) -> OutcomeTable | None:
        """Table with the constants that let probabilities add up to one, if there are such."""
        logs, n = self.logs(self._few(stream)), self.rows.max(axis=0)
        poisson = -gammaln(self.rows + 1.0)
        binomial = gammaln(n + 1.0) + poisson - gammaln(n - self.rows + 1.0)
        for constants in (self.constants, binomial.sum(axis=1), poisson.sum(axis=1)):
            if np.abs(np.exp(logs + constants).sum(axis=1) - 1.0).max() < _TOTAL:
                return replace(self, constants=constants)
        return None

    def _few(self, stream: Stream) -> Array:
        """Nodes (4, k) at which the table is checked."""
        experiment = self.setup.experiment
        base = experiment.prior_law.base_dim
        u = Sobol().uniforms(stream.child(8), base, (0, 1), (0, _CHECKED))[0]
        return experiment.latent(u)

    def logs(self, latent: Array) -> Array:
        """Log likelihoods (n, K) at nodes (n, k) in latent coordinates."""
        logs = self.setup.log_likelihood(self.single[None], latent[:, None])
        if self.parts is not None:
            first, n_y = logs[:, :1], self.parts.shape[1]
            logs = sum((logs[:, at] for at in self.parts.T), (1 - n_y) * first)
        return np.asarray(logs + self.constants)

    def nodes(self, likelihoods: float, replicates: int) -> int:
        """Nodes for each replicate, a power of two; 0 if they would be too few."""
        n = int(min(likelihoods / (len(self.single) * replicates), _MOST_NODES))
        return 0 if n < _FEWEST_NODES else 1 << (n.bit_length() - 1)

    def quadrature(self, likelihoods: float, accuracy: float) -> tuple[float, float]:
        """Gain and error over all samples of the prior, or a grid of one or two driving normals.

        The grid is refined until its error is below the accuracy, or too many likelihoods.
        """
        law = self.setup.experiment.prior_law
        if isinstance(law, Empirical):
            if not self._affords(len(law.weights), likelihoods):
                return 0.0, np.inf
            logs = self.logs(np.arange(float(len(law.weights)))[:, None])
            evidence, divergence = divergences(logs, law.weights)
            return float(np.exp(evidence) @ divergence), absent_gain(logs, law.weights)
        best, terms = (0.0, np.inf), list[Array]()
        for grid in PriorGrid.finer(law.base_dim, accuracy):
            if best[1] <= accuracy or not self._affords(len(grid.points), likelihoods):
                break
            logs = self.logs(grid.points)
            if (absent := absent_gain(logs, grid.weights)) > _ABSENT:
                return 0.0, np.inf
            evidence, divergence = divergences(logs, grid.weights)
            terms.append(np.exp(evidence) * divergence)
            best = float(terms[-1].sum()), grid_error(terms) + absent
            likelihoods -= len(grid.points) * len(self.single)
        return best

    def _affords(self, nodes: int, likelihoods: float) -> bool:
        return nodes * len(self.single) <= likelihoods and nodes * len(self.rows) <= _MOST_CELLS

    def gains(self, n: int, replicates: int, stream: Stream) -> Array:
        """Jackknife pseudo-values (R,) of the mutual information, with n nodes each.

        Leaving out one scrambled net of nodes at a time removes the bias of first order of the
        entropy of the data (Efron and Stein, 1981, The jackknife estimate of variance). They are
        NaN where outcomes are absent that matter.
        """
        experiment, inside, means = self.setup.experiment, [], []
        base = experiment.prior_law.base_dim
        for r in range(replicates):
            u = Sobol().uniforms(stream.child(9, r), base, (0, 1), (0, n))[0]
            logs = self.logs(experiment.latent(u))
            p = np.exp(logs)
            if absent_gain(logs, np.full(n, 1.0 / n)) > _ABSENT:
                return np.full(replicates, np.nan)
            inside.append(float((p * np.maximum(logs, -_LARGEST)).sum(axis=1).mean()))
            means.append(p.mean(axis=0))
        table, within = np.array(means), np.array(inside)

        def entropy(mass: Array) -> Array:
            return -np.asarray(xlogy(mass, mass).sum(axis=-1))

        whole = within.mean() + entropy(table.mean(axis=0))
        left = (replicates * table.mean(axis=0) - table) / (replicates - 1)
        without = (within.sum() - within) / (replicates - 1) + entropy(np.maximum(left, 0.0))
        return np.asarray(replicates * whole - (replicates - 1) * without)


def grid_error(terms: Sequence[Array]) -> float:
    """Error of the last of sums of terms (K,) on ever finer grids; infinite for fewer than three.

    Where likelihoods are analytic, the error of the trapezoidal rule is C exp(−a/h) (Trefethen and
    Weideman, 2014, The exponentially convergent trapezoidal rule): with spacings by the golden
    section φ, the last change times the ratio of the last two to the power of φ.
    """
    if len(terms) < 3:
        return np.inf
    before, change = np.abs(np.diff(terms[-3:], axis=0)).sum(axis=1)
    ratio, moved = change / max(before, 1e-300), abs(float(np.sum(terms[-1] - terms[-2])))
    return 2.0 * moved * ratio**_GOLDEN if ratio < _CONVERGING else float(change)


def absent_gain(logs: Array, weights: Array) -> float:
    """Bound of the gain by outcomes that are not in a table, in nats.

    With probability m, their posteriors are on a part of the prior that has at least about m.
    """
    m = float(weights @ np.maximum(1.0 - np.exp(logs).sum(axis=1), 0.0))
    return float(m * (1.0 - np.log(max(m, 1e-300))))


def divergences(logs: Array, weights: Array) -> tuple[Array, Array]:
    """Log evidence (K,) of rows, and the divergences (K,) of their posteriors from the prior."""
    top = np.maximum(logs.max(axis=0), -_LARGEST)
    p = np.exp(logs - top)
    mass = np.maximum(weights @ p, 1e-300)
    inside = weights @ (p * np.maximum(logs - top, -_LARGEST)) / mass
    return np.log(mass) + top, inside - np.log(mass)
