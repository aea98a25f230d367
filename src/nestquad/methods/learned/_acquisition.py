"""Choice of the next points (θ, x): expected fall of the variance of the answer.

To first order the answer is F(J) ≈ F(Ĵ) + Σ_m a_m (J(θ_m) − Ĵ(θ_m)), a Gaussian variable. Its
variance falls by Cov(F, g(z))² / Var(g(z)) if g is evaluated at z, whatever the value will be, so
that batches are chosen point by point without values (Gaussian processes forget values: Krause and
others 2008, Near-optimal sensor placements in Gaussian processes; for integrals Briol and others
2015, Frank–Wolfe Bayesian quadrature).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, roots_hermitenorm

from nestquad._typing import Array
from nestquad.accuracy import propagated
from nestquad.gp import IntegratedGP
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._process_model import ProcessModel
from nestquad.points import Sobol, Stream


@dataclass(frozen=True)
class AcquisitionSettings:
    """Tuning numbers of the choice, chosen on few even seeds of the families.

    Attributes
    ----------
    n_candidates
        Candidates (θ, x), scrambled Sobol' points.
    inflation
        Factor of the normal scores of every other candidate: points beyond the bulk of the law
        bound the process in the tails.
    n_nodes
        Nodes of the Gauss–Hermite rule of the derivative of f.
    """

    n_candidates: int = 1024
    inflation: float = 1.3
    n_nodes: int = 6


DEFAULT = AcquisitionSettings()


def linearized(average: DenseAverage, model: ProcessModel, n_nodes: int = 6) -> Array:
    """Derivatives (k, M, p) of the final answers in J at the θ of the sketch.

    Of E f(Ĵ + s ξ), ξ standard normal and s the posterior standard deviation of J, which is
    E[f(Ĵ + s ξ) ξ] / s (Stein's lemma): kinks and jumps of f count where J may reach them.
    """
    base = model.sketch
    spread = np.maximum(base.j.std(axis=0), np.finfo(float).tiny)
    sd = np.maximum(model.sd(base.uniform), 1e-6 * spread)
    weights = base.weights / base.weights.sum()
    nodes, masses = roots_hermitenorm(n_nodes)
    masses = masses / masses.sum()
    answers = weights @ np.nan_to_num(average.f(base.j))
    slopes = []
    for c in range(base.j.shape[1]):
        total = 0.0
        for node, mass in zip(nodes, masses, strict=True):
            moved = base.j + node * sd * (np.arange(base.j.shape[1]) == c)
            f = average.f(model.bounded(moved, base.uniform))
            total = total + mass * node * np.nan_to_num(f)
        slope = weights[:, None] * total / sd[:, c : c + 1]
        slopes.append(_final(average, answers, slope))
    return np.stack(slopes, axis=-1).swapaxes(0, 1)


def _final(average: DenseAverage, answers: Array, slope: Array) -> Array:
    """Derivatives (M, q) of the expectations as those (M, k) of the final answers."""
    if average.problem.combine is None:
        return slope
    # The Jacobian of `combine` by steps of the size of the changes.
    step = np.maximum(np.abs(slope).sum(axis=0), 1e-9 * np.abs(answers) + 1e-300)
    jacobian = propagated(average.problem, answers, np.diag(step)) / step[:, None]
    return np.asarray(slope @ np.nan_to_num(jacobian))


@dataclass(frozen=True, eq=False)
class _Reduction:
    """Covariances of one output: of candidates with the answers, and with each other."""

    process: IntegratedGP
    z: Array
    white: Array
    extra: Array
    covariance: Array
    variance: Array

    @classmethod
    def of(cls, process: IntegratedGP, slopes: Array, theta: Array, z: Array) -> _Reduction:
        """For derivatives (k, M) of the answers in J at scores theta (M, d_θ); candidates z."""
        gp = process.gp
        white, extra = process.whitened(gp._cross(z), gp._trend(z))
        of_answers = process.whitened(slopes @ process.cross(theta), slopes @ process.trend(theta))
        covariance = slopes @ process.cross(theta, z)
        covariance += of_answers[1].T @ extra - of_answers[0].T @ white
        p = gp.parameters
        variance = p.signal * (1.0 + 1e-10) - (white**2).sum(axis=0) + (extra**2).sum(axis=0)
        return cls(process, z, white, extra, covariance, np.maximum(variance, 0.0) + p.noise)

    def column(self, i: int) -> Array:
        """Posterior covariance (C,) of g at all candidates with g at candidate i."""
        prior = (
            self.process.gp.parameters.signal
            * self.process.gp._correlate(self.z, self.z[i : i + 1])[:, 0]
        )
        return np.asarray(prior - self.white.T @ self.white[:, i] + self.extra.T @ self.extra[:, i])


def choose_points(
    average: DenseAverage,
    model: ProcessModel,
    n: int,
    stream: Stream,
    settings: AcquisitionSettings = DEFAULT,
) -> Array:
    """n uniforms (n, d) of (θ, x), each with the largest expected fall given those before.

    Cost
    ----
    O(C (n_points² + M + n n_points)) for C candidates and M θ of the sketch, for each output.
    """
    dim = model.uniform.shape[1]
    uniform = Sobol().uniforms(stream, dim, (0, 1), (0, settings.n_candidates))[0]
    uniform[1::2] = ndtr(settings.inflation * ndtri(uniform[1::2]))
    uniform = np.clip(uniform, 1e-9, 1.0 - 1e-9)
    slopes = linearized(average, model, settings.n_nodes)
    parts = []
    for c, process in enumerate(model.processes):
        theta = process.kind.scores(model.sketch.uniform)
        unit = process.variance_unit**0.5
        parts.append(
            _Reduction.of(process, unit * slopes[:, :, c], theta, process.kind.scores(uniform))
        )
    total = sum((part.covariance**2 / part.variance).sum(axis=1) for part in parts)
    scale = np.maximum(np.asarray(total), np.finfo(float).tiny)
    used: list[list[Array]] = [[] for _ in parts]
    chosen: list[int] = []
    free = np.ones(len(uniform), dtype=bool)
    for _ in range(n):
        falls = sum(((part.covariance**2).T / scale).sum(axis=1) / part.variance for part in parts)
        i = int(np.argmax(np.where(free, falls, -np.inf)))
        chosen.append(i)
        free[i] = False
        for part, before in zip(parts, used, strict=True):
            column = part.column(i) - sum(u * u[i] for u in before)
            direction = column / np.sqrt(part.variance[i])
            before.append(direction)
            part.covariance[:] -= np.outer(
                part.covariance[:, i] / np.sqrt(part.variance[i]), direction
            )
            noise = part.process.gp.parameters.noise
            part.variance[:] = np.maximum(part.variance - direction**2, noise + 1e-12)
    return np.asarray(uniform[chosen])
