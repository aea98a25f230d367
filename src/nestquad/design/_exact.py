"""Gains by enumeration: data with finitely many values, and nodes of the prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, xlogy

from nestquad._typing import Array
from nestquad.design._experiment import Setup
from nestquad.distributions import Empirical
from nestquad.errors import EvaluationError, InputError
from nestquad.points import Sobol, Stream

_GLANCE, _LOOK = 32, 1024  # simulations that show whether data are counts, and their range
_CHECKED = 4  # nodes at which the probabilities of all outcomes are summed
_RANGES = (1.0, 1.5, 2.5)  # ranges of counts relative to the largest simulated
_MOST_OUTCOMES = 4096
_FEWEST_NODES, _MOST_NODES = 256, 2**14  # nodes of the prior for each replicate
_FEWEST_GAUSS, _MOST_GAUSS = 12, 128  # nodes of a Gauss rule in each variable
_LARGEST = 1e6  # limit of minus log likelihoods: their probabilities are zero
_TOTAL = 1e-6  # largest error of the sum of probabilities of all outcomes


@dataclass(frozen=True, eq=False)
class Table:
    """Likelihoods of all outcomes at nodes of the prior."""

    setup: Setup
    outcomes: Array

    @classmethod
    def of(cls, setup: Setup, most: int, likelihoods: float, stream: Stream) -> Table:
        """Table of outcomes from `support`, or of counts around the simulated ones.

        It has no outcomes where the data are not counts, or too many for the likelihoods, or where
        probabilities do not add up to one, as without constants in `log_prob`.
        """
        experiment = setup.experiment
        if experiment.support is not None:
            table = cls(setup, experiment.outcomes(setup.design))
            low, high = table._total(stream)
            if max(abs(low - 1.0), abs(high - 1.0)) > _TOTAL:
                raise InputError(
                    "support",
                    f"outcomes whose probabilities add up to {low:.4g} to {high:.4g}",
                    "all outcomes, and a log_prob with all constants",
                )
            return table
        k, none = experiment.prior_law.base_dim, cls(setup, np.zeros((0, 1)))
        least = 8 * (_FEWEST_GAUSS**k if k <= 2 else _FEWEST_NODES)
        limit = min(_MOST_OUTCOMES, likelihoods / (_CHECKED + least))
        sizes = np.zeros(1)
        for n in (_GLANCE, min(_LOOK, most // 4)):
            u = Sobol().uniforms(stream.child(7), experiment.dim, (0, 1), (0, n))[0]
            y = setup.simulated(u)[1]
            sizes = y.max(axis=0) + 1.0
            if not ((y == np.round(y)) & (y >= 0)).all() or np.prod(sizes) > limit:
                return none
        for factor in _RANGES:
            grid = np.meshgrid(*(np.arange(np.ceil(factor * size)) for size in sizes))
            rows = np.stack(grid, axis=-1).reshape(-1, len(sizes)).astype(float)
            if len(rows) > limit:
                break
            table = cls(setup, rows)
            low, high = table._total(stream)
            if max(abs(low - 1.0), abs(high - 1.0)) < _TOTAL:
                return table
        return none

    def _total(self, stream: Stream) -> tuple[float, float]:
        """Least and largest sum of the probabilities of all outcomes at a few nodes."""
        base = self.setup.experiment.prior_law.base_dim
        u = Sobol().uniforms(stream.child(8), base, (0, 1), (0, _CHECKED))[0]
        try:
            with np.errstate(all="ignore"):
                total = np.exp(self.logs(u)).sum(axis=1)
        except EvaluationError:  # outcomes that cannot occur
            return 0.0, 0.0
        return float(total.min()), float(total.max())

    def logs(self, uniform: Array) -> Array:
        """Log likelihoods (n, outcomes) at nodes from uniforms (n, k)."""
        latent = self.setup.experiment.latent(uniform)
        return self.setup.log_likelihood(self.outcomes[None], latent[:, None])

    def nodes(self, likelihoods: float, replicates: int) -> int:
        """Nodes for each replicate, a power of two; 0 if they would be too few."""
        if not len(self.outcomes):
            return 0
        n = int(min(likelihoods / (len(self.outcomes) * replicates), _MOST_NODES))
        return 0 if n < _FEWEST_NODES else 1 << (n.bit_length() - 1)

    def quadrature(self, likelihoods: float) -> tuple[float, float]:
        """Gain and error by Gauss rules over one or two driving variables.

        The error is the change from a rule with three quarters of the nodes in each variable; of
        Gauss–Legendre and Gauss–Hermite rules the one with the smaller error is taken.
        """
        law = self.setup.experiment.prior_law
        k = law.base_dim
        n = (likelihoods / (4.0 * max(len(self.outcomes), 1))) ** (1.0 / k) if k <= 2 else 0.0
        n, best = min(int(n), _MOST_GAUSS), (0.0, np.inf)
        if n < _FEWEST_GAUSS or isinstance(law, Empirical):
            return best
        for rule in (np.polynomial.legendre.leggauss, np.polynomial.hermite_e.hermegauss):
            values = []
            for size in (3 * n // 4, n):
                x, w = rule(size)
                u = (x + 1.0) / 2.0 if rule is np.polynomial.legendre.leggauss else ndtr(x)
                u = np.clip(u, 1e-16, 1.0 - 1e-16)
                nodes = np.stack(np.meshgrid(*[u] * k), axis=-1).reshape(-1, k)
                weights = np.prod(np.meshgrid(*[w / w.sum()] * k), axis=0).ravel()
                logs = self.logs(nodes)
                p = np.exp(logs)
                mean = weights @ p
                inside = weights @ (p * np.maximum(logs, -_LARGEST)).sum(axis=1)
                values.append(float(inside - xlogy(mean, mean).sum()))
            error = abs(values[1] - values[0])
            best = min(best, (values[1], error), key=lambda pair: pair[1])
        return best

    def gains(self, n: int, replicates: int, stream: Stream) -> Array:
        """Jackknife pseudo-values (R,) of the mutual information, with n nodes each.

        Leaving out one scrambled net of nodes at a time removes the bias of first order of the
        entropy of the data (Efron and Stein, 1981, The jackknife estimate of variance).
        """
        base, inside, means = self.setup.experiment.prior_law.base_dim, [], []
        for r in range(replicates):
            logs = self.logs(Sobol().uniforms(stream.child(9, r), base, (0, 1), (0, n))[0])
            p = np.exp(logs)
            inside.append(float((p * np.maximum(logs, -_LARGEST)).sum(axis=1).mean()))
            means.append(p.mean(axis=0))
        table, within = np.array(means), np.array(inside)

        def entropy(mass: Array) -> Array:
            return -np.asarray(xlogy(mass, mass).sum(axis=-1))

        whole = within.mean() + entropy(table.mean(axis=0))
        left = (replicates * table.mean(axis=0) - table) / (replicates - 1)
        without = (within.sum() - within) / (replicates - 1) + entropy(np.maximum(left, 0.0))
        return np.asarray(replicates * whole - (replicates - 1) * without)
